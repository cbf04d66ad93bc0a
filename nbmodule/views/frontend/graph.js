// The graph: what it computes. Boxes fold; one of them can fill the picture; keys do all that the mouse does.
import { mountView } from "./base.js";
import { GraphView } from "./graph_view.js";

/** @type {import("./base.js").Render} */
export const render = (root, data, channel) => mountView(root, data, channel, (view) => void new GraphView(view, /** @type {import("./messages.js").GraphData} */ (data), channel));
