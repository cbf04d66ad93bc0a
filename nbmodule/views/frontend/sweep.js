// The view of `nb.sweep` and `nb.trace_causes`.
import { mountView } from "./base.js";
import { heat } from "./heat.js";

/** @type {import("./base.js").Render} */
export const render = (root, data, channel) =>
  mountView(root, data, channel, (view) => {
    const sweep = /** @type {import("./payload.js").SweepData} */ (/** @type {unknown} */ (data));
    view.body.append(heat(view, { ...sweep, notes: [] }, null));
  });
