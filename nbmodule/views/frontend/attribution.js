// The view of `nb.attribute`: a picture on the input, and a bar for each module.
import { el, mountView } from "./base.js";
import { bars } from "./heat.js";
import { drawPicture } from "./picture.js";
import { useWhatIfStyles } from "./what_if_style.js";

/** @type {import("./base.js").Render} */
export const render = (root, data, channel) =>
  mountView(root, data, channel, (view) => {
    useWhatIfStyles(view);
    const box = el("div", "tried");
    const room = Math.min(view.root.clientWidth || 900, 1100) - 12;
    if (data.picture) box.append(drawPicture(view, data.picture, data.picture.k === "bars" ? room : 420));
    box.append(bars(data.rows, data.title[0], () => {}));
    view.body.append(box);
  });
