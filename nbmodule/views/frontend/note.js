// A view of one text: what a part looks like that has nothing else to show.
import { el, mountView } from "./base.js";

/** @type {import("./base.js").Render} */
export const render = (root, data, channel) =>
  mountView(root, data, channel, (view) => {
    const { error, text } = /** @type {import("./payload.js").NoteData} */ (data);
    view.body.append(el("pre", error ? "failed" : "text", text));
  });
