// The returns of submodules as pictures, in the order of the calls.
import { button, el, mountView, readers } from "./base.js";
import { badges, histogram, numberWords, spread } from "./marks.js";
import { drawPicture } from "./picture.js";

/** @typedef {import("./payload.js").CallsData} CallsData */

/** @type {import("./base.js").Draw<CallsData>} */
function draw(view, data, channel) {
  const [cls, output, stats, picture, error] = readers(data, "class_name", "outputs", "statistics", "pictures", "error");
  const room = Math.max(200, Math.min(view.root.clientWidth || 900, 1100) - 60);
  const list = el("div", "cards");
  list.setAttribute("role", "list");
  list.tabIndex = 0;
  data.depth.forEach((depth, i) => {
    const head = el("div", "cardhead", el("b", "", data.label[i]), el("span", "quiet", cls(i) ?? ""), el("code", "", output(i) ?? ""));
    const known = stats(i);
    if (known?.b.length) head.append(histogram(known, 52, 16), el("span", "number", spread(known)));
    badges(head, [error(i) && [error(i) ?? "", "wrong"], ...numberWords(known)]);
    const card = el("section", `card${error(i) ? " wrong" : ""}`, head);
    card.setAttribute("role", "listitem");
    card.style.marginLeft = `${Math.min(depth, 6) * 16}px`;
    for (const [k, each] of (picture(i) ?? []).entries()) card.append((k === 0 && channel?.viewer?.(view, i, each, room - depth * 16, { others: (picture(i) ?? []).length > 1 })) || drawPicture(view, each, room - depth * 16));
    list.append(card);
  });
  if (!data.depth.length) list.append(el("div", "empty", "no returns yet: call the model with track_submod_rets=True"));
  const main = el("div", "main", list);
  view.body.append(main);
  const cards = /** @type {HTMLElement[]} */ ([...list.children]);
  let at = -1;
  const go = (/** @type {number} */ to) => {
    cards[at]?.classList.remove("nbm-selected");
    at = Math.min(Math.max(to, 0), cards.length - 1);
    cards[at]?.classList.add("nbm-selected");
    cards[at]?.scrollIntoView({ block: "nearest" });
    view.say(cards[at]?.querySelector("b")?.textContent ?? "");
  };
  const keys = /** @type {Record<string, () => void>} */ ({
    ArrowDown: () => go(at + 1),
    ArrowUp: () => go(at - 1),
    "]": () => go(at + 1),
    "[": () => go(at - 1),
    Home: () => go(0),
    End: () => go(cards.length - 1),
    Enter: () => cards[at]?.querySelector("button")?.focus(),
    Escape: () => list.focus(),
  });
  list.addEventListener("keydown", (event) => {
    const act = event.target === list || event.key === "Escape" ? keys[event.key] : undefined;
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    act();
    event.preventDefault();
  }, { signal: view.signal });
  for (const node of list.querySelectorAll("button")) node.tabIndex = -1;
  const more = button("show all", "Show the whole height", () => main.classList.toggle("nbm-tall"));
  view.tools.append(more);
  requestAnimationFrame(() => (more.hidden = main.scrollHeight <= main.clientHeight + 1));
}

/** @type {import("./base.js").Render} */
export const render = (root, data, channel) => mountView(root, /** @type {CallsData} */ (data), channel, draw);
