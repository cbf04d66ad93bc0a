// The calls of a recorder: what they returned at each recorded step, under one slider, also where no kernel answers.
import { mountView } from "./base.js";
import { drawCalls } from "./calls.js";
import { Snapshots } from "./snapshots.js";

/** @typedef {import("./payload.js").CallsData} CallsData */

/** @type {import("./base.js").Draw<CallsData>} */
function draw(view, data, channel) {
  if (channel?.isThere) return void drawCalls(view, data, channel); // its own slider brings all pictures
  const snapshots = new Snapshots(data);
  const rows = drawCalls(view, data, channel, snapshots.columns);
  snapshots.moved = () => rows.renew();
  snapshots.slider(view);
}

/** @type {import("./base.js").Render} */
export const render = (root, data, channel) => mountView(root, /** @type {CallsData} */ (data), channel, draw);
