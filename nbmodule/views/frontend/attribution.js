// The view of `nb.attribute`: a picture on the input, and a bar for each module.
import { el, mountView } from "./base.js";
import { bars } from "./heat.js";
import { drawPicture } from "./picture.js";

/** @type {import("./base.js").Render} */
export const render = (root, data, channel) =>
  mountView(root, data, channel, (view) => {
    const box = el("div", "tried");
    const room = Math.min(view.root.clientWidth || 900, 1100) - 12;
    const { picture, rows, title } = /** @type {import("./messages.js").AttributionData} */ (data);
    if (picture) box.append(drawPicture(view, picture, picture.kind === "bars" ? room : 420));
    box.append(bars(rows, title[0], () => {}));
    view.body.append(box);
  });
