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
    if (host.scrollWidth > host.clientWidth + 1) say(`wider than its place: ${host.scrollWidth} of ${host.clientWidth}`);

    /** The part of a rectangle that its ancestors let through, and whether they cut it where nobody can scroll. */
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
    const texts = [];
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
      if (part.shown) texts.push({ words, parent, part });
    }
    for (const node of root.querySelectorAll("button, select, input")) {
      if (!node.checkVisibility({ opacityProperty: true })) continue;
      const own = seen(node.getBoundingClientRect(), node.parentElement);
      if (!own.shown) continue;
      for (const { words, parent, part } of texts) {
        if (node.contains(parent) || parent.contains(node)) continue;
        const [wide, tall] = [Math.min(own.right, part.right) - Math.max(own.left, part.left), Math.min(own.bottom, part.bottom) - Math.max(own.top, part.top)];
        if (wide > 2 && tall > 4) say(`"${words.slice(0, 40)}" lies on the button "${(node.textContent || node.getAttribute("aria-label") || "").slice(0, 30)}"`);
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
