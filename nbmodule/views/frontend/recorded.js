// The calls of a recorder: what they returned at each recorded step, under one slider, also where no kernel answers.
import { mountView } from "./base.js";
import { drawCalls } from "./calls.js";
import { Moments } from "./moments.js";

/** @type {import("./base.js").Draw} */
function draw(view, data, channel) {
  if (channel?.isThere) return void drawCalls(view, data, channel); // its own slider brings all pictures
  const moments = new Moments(data);
  const rows = drawCalls(view, data, channel, moments.columns);
  moments.moved = () => rows.renew();
  moments.slider(view);
}

/** @type {import("./base.js").Render} */
export const render = (root, data, channel) => mountView(root, data, channel, draw);
