// One array: its picture, every element counted, extremes with their places, a corner of values.
import { button, closer, copy, el, mountView } from "./base.js";
import { tsv } from "./format.js";
import { numbers, numberWords, badges } from "./marks.js";
import { drawPicture } from "./picture.js";

/** @type {import("./base.js").Draw} */
function draw(view, data, channel) {
  const card = el("div", "array");
  const room = Math.max(200, Math.min(view.root.clientWidth || 900, 1100) - 300);
  if (data.err) view.body.append(el("div", "failed", data.err));
  const main = el("div", "stage");
  if (data.picture) main.append(channel?.figure?.(view, 0, data.picture, Math.min(room, 640)) ?? drawPicture(view, data.picture, Math.min(room, 640)));
  if (!data.err && data.picture && data.picture.k !== "text") main.append(closer(view, channel, 0, { labels: data.picture.lb, numbers: !data.stats }));
  card.append(main);
  const side = el("div", "side");
  const words = el("div", "words");
  badges(words, numberWords(data.stats));
  side.append(words);
  const single = data.whole && data.corner?.length === 1 && data.corner[0].length === 1;
  if (single) main.append(el("div", "bignumber", data.corner[0][0]));
  else numbers(side, data.stats);
  if (data.corner?.length && !single) {
    const table = el("table", "corner");
    for (const row of data.corner) table.append(el("tr", "", ...row.map((/** @type {string} */ cell) => el("td", "", cell))));
    side.append(el("div", "quiet", data.whole ? "values" : "corner of values"), table);
  }
  card.append(side);
  view.body.append(card);
  if (data.corner?.length) {
    const what = data.whole ? "copy values" : "copy corner";
    view.tools.append(button(what, `${data.whole ? "Copy the values" : "Copy the corner of values"} as a table (TSV)`, () => void copy(view, tsv(data.corner))));
  }
}

/** @type {import("./base.js").Render} */
export const render = (root, data, channel) => mountView(root, data, channel, draw);
