// Whether every view of a page can be read as it stands; returns one sentence for each fault.
() => {
  const NUMBER = /^[-−+±×≈≤≥~]?[\d.,]+(e-?\d+)?( ?(%|[KMGT]iB|B|µs|ms|s|±.*))?$/;
  const faults = [];
  const say = (/** @type {string} */ text) => faults.length < 40 && faults.push(text);
  const hosts = [...document.querySelectorAll("nbm-view")];
  for (const host of hosts) {
    const root = host.shadowRoot?.querySelector(".nbm-view");
    if (!root) {
      say("a view was not drawn");
      continue;
    }
    for (const node of root.querySelectorAll(".nbm-failed")) if (node.textContent && node.checkVisibility()) say(`failed: ${node.textContent.slice(0, 80)}`);
    for (const node of root.querySelectorAll("path.nbm-line")) {
      const { stroke } = getComputedStyle(node);
      if (stroke === "none" || / 0\)$/.test(stroke)) say(`a series without a stroke: ${node.getAttribute("class")}`);
      if (!node.getAttribute("d")) say("a series without points");
    }
    for (const plot of root.querySelectorAll(".nbm-plotbox")) {
      for (const key of plot.querySelectorAll(".nbm-legend line.nbm-line")) {
        const color = [...key.classList].find((name) => /^nbm-c\d$/.test(name));
        const isHidden = key.closest("[aria-pressed=false]");
        if (!isHidden && !plot.querySelector(`path.nbm-line.${color}`)) say(`a series of the legend is not drawn: ${key.closest("span, button")?.textContent}`);
      }
    }
    const [own, page] = [Math.max(root.scrollWidth, root.clientWidth), document.documentElement.clientWidth];
    if (own > root.clientWidth + 1 || root.getBoundingClientRect().right > page + 1) say(`wider than its place: ${own} of ${page}`);

    /** The part of a rectangle that its ancestors let through, and whether they cut it where nobody can scroll. */
    /** @typedef {{ left: number, right: number, top: number, bottom: number }} Part */
    const seen = (/** @type {DOMRect} */ box, /** @type {Element | null} */ node) => {
      let [left, right, top, bottom, cut] = [box.left, box.right, box.top, box.bottom, false];
      for (let up = node; up && up !== root.parentNode; up = up.parentElement) {
        const style = getComputedStyle(up);
        if (style.overflowX === "visible" || up instanceof SVGElement) continue;
        const edge = up.getBoundingClientRect();
        if (["hidden", "clip"].includes(style.overflowX) && (right > edge.right + 1.5 || left < edge.left - 1.5)) cut = true;
        [left, right, top, bottom] = [Math.max(left, edge.left), Math.min(right, edge.right), Math.max(top, edge.top), Math.min(bottom, edge.bottom)];
      }
      return { left, right, top, bottom, cut, shown: right - left > 1 && bottom - top > 1 };
    };
    /** @typedef {{ words: string, parent: HTMLElement, part: Part, lines: Part[] }} Text */
    const texts = /** @type {Text[]} */ ([]);
    const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      const text = walk.currentNode;
      const parent = text.parentElement;
      const words = text.textContent.trim();
      if (!words || !parent.checkVisibility({ opacityProperty: true }) || parent.closest("style, option, .nbm-live, script, title, textarea")) continue;
      const range = document.createRange();
      range.selectNodeContents(text);
      const box = range.getBoundingClientRect();
      const part = seen(box, parent);
      if (NUMBER.test(words) && part.cut && part.shown) say(`a number is cut: ${words} in ${parent.className}`);
      if (part.shown) texts.push({ words, parent, part, lines: [...range.getClientRects()].map((line) => seen(line, parent)).filter((line) => line.shown) });
    }
    /** Whether two visible rectangles share more than their edges. */
    const overlap = (/** @type {Part} */ a, /** @type {Part} */ b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4;
    /** Whether a row has scrolled away under the titles of the columns, whose background hides it. */
    const isCovered = (/** @type {Text} */ row, /** @type {Text} */ title) => {
      const head = title.parent.closest(".nbm-main > .nbm-head")?.getBoundingClientRect();
      return Boolean(head && !row.parent.closest(".nbm-head") && title.part.top >= head.top - 1 && title.part.bottom <= head.bottom + 1);
    };
    texts.forEach((one, k) => {
      for (const other of texts.slice(k + 1)) {
        if (one.parent.textContent === other.parent.textContent || !overlap(one.part, other.part)) continue;
        if (isCovered(one, other) || isCovered(other, one)) continue;
        if (one.lines.some((a) => other.lines.some((b) => overlap(a, b)))) say(`"${one.words.slice(0, 40)}" lies on "${other.words.slice(0, 40)}"`);
      }
    });
    for (const node of root.querySelectorAll("button, select, input")) {
      if (!node.checkVisibility({ opacityProperty: true })) continue;
      const own = seen(node.getBoundingClientRect(), node.parentElement);
      if (!own.shown) continue;
      for (const { words, parent, part } of texts) {
        if (node.contains(parent) || parent.contains(node)) continue;
        if (overlap(own, part)) say(`"${words.slice(0, 40)}" lies on the button "${(node.textContent || node.getAttribute("aria-label") || "").slice(0, 30)}"`);
      }
    }
    for (const list of root.querySelectorAll(".nbm-rows")) {
      const labels = new Set();
      const above = [];
      for (const row of list.querySelectorAll(".nbm-row")) {
        const level = Number(row.getAttribute("aria-level") ?? 1);
        const lead = row.querySelector(".nbm-lead-number")?.textContent ?? "";
        above.length = level - 1;
        above.push(`${lead} ${row.querySelector(".nbm-name")?.textContent ?? ""}`);
        const label = above.join(" > ");
        if (labels.has(label)) say(`two rows are called ${label}`);
        labels.add(label);
      }
    }
  }
  return faults;
}
