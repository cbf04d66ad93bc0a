// A view of one text: what a part looks like that has nothing else to show.
import { el, mountView } from "./base.js";

/** @type {import("./base.js").Render} */
export const render = (root, data, channel) =>
  mountView(root, data, channel, (view) => view.body.append(el("pre", data.error ? "failed" : "text", data.text)));
