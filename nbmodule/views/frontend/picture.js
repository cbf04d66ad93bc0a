// Draws the pictures of arrays: tiles of one byte per cell on a canvas, bars, and the legend that is always there.
import { bytesOf, el, svg } from "./base.js";
import { count, number } from "./format.js";
import { emptyPlot, frameOf } from "./plot.js";
import { linePath } from "./scale.js";

/**
 * @typedef {{ kind: string, shape: number[], data: string, scale: string, limits: [number, number], classes?: string[], labels?: string[],
 *   of: string, about: string, notes?: string[], extremes?: [number, number][], window?: number[], axes?: number[], lengths?: number[],
 *   exact?: string, exact_type?: string, ends?: number[],
 *   codes?: Uint8Array, values?: Values, edges?: [number[], number[]] }} Picture `codes`, `values` and `edges` where the page made the picture itself
 * @typedef {[number, number, number]} Color
 * @typedef {Float32Array | Float64Array | BigInt64Array | BigUint64Array} Numbers
 * @typedef {{ type: string, numbers: Numbers }} Values
 * @typedef {{ t: number, r: number, c: number }} Cell
 */

const CLASSES = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c6bb1", "#a6761d", "#666666", "#b2df8a"];
export const FIRST = 3;
const READABLE = 13;
const LARGEST_CELL = 44;
const MOST_APART = 16;
const MOST_NAMED = 27; // rows whose cells are still readable, and bars that have names
const [LETTER, LONGEST_LABEL] = [6.6, 16]; // pixels of a letter of 11 px, and letters of a turned name
export const LAST = 255;
const [HUES, PHASE_LEVELS] = [36, 7]; // as in pictures.py
const [GAP, APART] = [4, 16]; // pixels between tiles, and between blocks of tiles
const [NUMBER_HEIGHT, NUMBERED_WIDTH] = [11, 20]; // pixels of the number above a tile, and of the narrowest tile that has one
const MOST_RINGS = 12;
const MOST_BARS = 256; // as in pictures.py: a longer vector is a line

/** @type {WeakMap<EventTarget, (event: MouseEvent) => Cell | null>} */
const under = new WeakMap();

/**
 * The cell of a drawn picture under the pointer.
 * @param {MouseEvent} event
 */
export function cellUnder(event) {
  return under.get(/** @type {EventTarget} */ (event.composedPath()[0]))?.(event) ?? null;
}

/**
 * Draw a picture with its legend.
 * @param {import("./base.js").View} view
 * @param {Picture} picture
 * @param {number} [room] most pixels across
 * @param {number} [tall] most pixels down, where it is to fill its room
 */
export function drawPicture(view, picture, room = 420, tall = 0) {
  const box = el("figure", "picture");
  if (picture.kind === "text") box.append(el("div", "quiet", picture.about));
  else if (picture.kind === "bars" && picture.shape[0] > MOST_BARS) line(box, picture, room);
  else if (picture.kind === "bars") bars(box, picture, room);
  else if (isApart(picture)) box.append(apart(view, picture, room));
  else tiles(view, box, picture, room, tall);
  return box;
}

/**
 * The bytes of the cells.
 * @param {Picture} picture
 */
export const codesOf = (picture) => picture.codes ?? bytesOf(picture.data);

/**
 * The values of the cells, where they are known.
 * @param {Picture} picture
 * @returns {Values | undefined}
 */
export function valuesOf(picture) {
  if (picture.values || !picture.exact) return picture.values;
  const [bytes, type] = [bytesOf(picture.exact).buffer, picture.exact_type ?? "f4"];
  const Kind = { f4: Float32Array, c8: Float32Array, i8: BigInt64Array, u8: BigUint64Array }[type] ?? Float64Array;
  return { type, numbers: new Kind(bytes) };
}

/**
 * One value with all the digits that tell it from its neighbors.
 * @param {Values} values
 * @param {number} k
 */
export function exactText({ type, numbers }, k) {
  if (type[0] !== "c") return shortest(numbers[k], type);
  const [re, im] = [Number(numbers[2 * k]), Number(numbers[2 * k + 1])];
  const [part, size, angle] = [type === "c8" ? "f4" : "f8", Math.hypot(re, im), (Math.atan2(im, re) * 180) / Math.PI];
  return `${shortest(re, part)}${im < 0 || Object.is(im, -0) ? "-" : "+"}${shortest(Math.abs(im), part)}j (|x| ${number(size)} ∠ ${number(angle, 3)}°)`;
}

/**
 * @param {number | bigint} v
 * @param {string} type
 */
function shortest(v, type) {
  if (typeof v === "bigint" || !Number.isFinite(v)) return typeof v === "bigint" ? String(v) : number(v);
  if (type !== "f4" || Number.isInteger(v)) return String(v);
  for (let digits = 6; digits < 9; digits++) if (Math.fround(Number(v.toPrecision(digits))) === v) return String(Number(v.toPrecision(digits)));
  return String(Number(v.toPrecision(9)));
}

/**
 * Return true if a few tiles have names along their sides: then each is drawn by itself, large enough for the names.
 * @param {Picture} picture
 */
function isApart({ shape: [n, h, w], labels }) {
  return n > 1 && n <= MOST_APART && Math.max(h, w) <= MOST_NAMED && (labels?.length === h || labels?.length === w);
}

/**
 * @param {import("./base.js").View} view
 * @param {Picture} picture
 * @param {number} room
 */
function apart(view, picture, room) {
  const [n, h, w] = picture.shape;
  const [codes, values] = [codesOf(picture), valuesOf(picture)];
  const all = Array.from({ length: n }, (_, t) => {
    const one = el("figure", "picture", el("figcaption", "quiet", String(t)));
    const extremes = (picture.extremes ?? []).filter(([k]) => Math.floor(k / (h * w)) === t).map(([k, v]) => /** @type {[number, number]} */ ([k % (h * w), v]));
    const some = values && { type: values.type, numbers: values.numbers.subarray(...[t, t + 1].map((k) => k * (values.numbers.length / n))) };
    tiles(view, one, { ...picture, shape: [1, h, w], exact: undefined, values: some, ends: picture.ends && [picture.ends[t]], extremes, notes: t ? [] : picture.notes, codes: codes.subarray(t * h * w, (t + 1) * h * w) }, room, 0, t);
    return one;
  });
  return el("div", "apart", ...all);
}

/**
 * The item at the end of a legend, given the picture and a function that draws it in light colors. A page without a
 * kernel has the browser's own menu for it.
 * @typedef {(picture: Picture, drawn: () => Element) => Node} LegendEnd
 */
/** @type {LegendEnd | null} */
let legendEnd = null;

/** @param {LegendEnd} fn */
export function useLegendEnd(fn) {
  legendEnd = fn;
}

/**
 * Translate one byte into its value.
 * @param {Picture} picture
 * @param {number} code
 * @param {number} [t] its tile, where each has its own scale
 */
export function meaning(picture, code, t = 0) {
  if (code < FIRST) return ["NaN", "∞", "-∞"][code];
  if (picture.scale === "classes") return picture.classes?.[code - FIRST] ?? "";
  if (picture.scale === "phase") {
    const [hue, level] = [Math.floor((code - FIRST) / PHASE_LEVELS), (code - FIRST) % PHASE_LEVELS];
    return `≈ ${number((level / (PHASE_LEVELS - 1)) * picture.limits[1], 2)} ∠ ${hue * 10 - 180}°`;
  }
  const low = picture.limits[0];
  const at = picture.notes?.some((note) => note.endsWith("clipped")) ? code : 0;
  const sign = at === LAST ? "≥" : at === FIRST && low < 0 ? "≤" : "≈";
  const value = decoded(picture, code, t);
  if (picture.scale.startsWith("log") && Math.abs(value) === low) return `size ≤ ${number(low, 3)}`; // the foot holds all that is smaller
  return `${sign} ${number(value, 3)}`;
}

/**
 * The value in the middle of what a byte stands for.
 * @param {Picture} picture
 * @param {number} code
 * @param {number} [t]
 */
export function decoded(picture, code, t = 0) {
  if (code < FIRST) return [NaN, Infinity, -Infinity][code];
  const [low, high] = picture.ends ? [picture.limits[0] < 0 ? -picture.ends[t] : 0, picture.ends[t]] : picture.limits;
  if (!picture.scale.startsWith("log")) return low + ((code - FIRST) / (LAST - FIRST)) * (high - low);
  const [zero, steps] = picture.scale === "log" ? [FIRST, LAST - FIRST - 1] : [(FIRST + LAST) / 2, (LAST - FIRST) / 2 - 1];
  const away = Math.abs(code - zero);
  return away ? Math.sign(code - zero) * low * (high / low) ** ((away - 1) / steps) : 0;
}

/**
 * The first row (or column) of the array that a cell stands for, and the one after its last.
 * @param {Picture} picture
 * @param {0 | 1} side rows or columns
 * @param {number} k
 */
export function span(picture, side, k) {
  const known = picture.edges?.[side];
  if (known) return [known[k], known[k + 1]];
  const cells = picture.shape[1 + side];
  const [first, n] = picture.window ? [picture.window[side], picture.window[2 + side]] : [0, cells];
  return [first + Math.floor((k * n) / cells), first + Math.floor(((k + 1) * n) / cells)]; // as block_edges of pictures.py
}

/**
 * Find the rows and columns of the array that one cell stands for: one of each, or a block.
 * @param {Picture} picture
 * @param {number} r
 * @param {number} c
 */
export function placeOf(picture, r, c) {
  const side = (/** @type {0 | 1} */ which, /** @type {number} */ k) => {
    const [from, to] = span(picture, which, k);
    return to - from > 1 ? `${from}:${to}` : String(from);
  };
  const wide = picture.axes?.length === 1 && (picture.window?.[3] ?? picture.shape[2]); // a long vector, folded into rows
  if (wide && span(picture, 0, r)[1] - span(picture, 0, r)[0] === 1) {
    const [row, [from, to]] = [span(picture, 0, r)[0], span(picture, 1, c)];
    return to - from > 1 ? `${row * wide + from}:${row * wide + to}` : String(row * wide + from);
  }
  return [picture.labels?.[r] ?? side(0, r), picture.labels?.[c] ?? side(1, c)].join(", ");
}

/**
 * Write the value of the cell under the pointer.
 * @param {Picture} picture
 * @param {Uint8Array} codes
 * @param {number} t
 * @param {number} r
 * @param {number} c
 * @param {Values} [exact] the values themselves, where they are known
 */
export function said(picture, codes, t, r, c, exact) {
  const [n, h, w] = picture.shape;
  const k = (t * h + r) * w + c;
  const x = picture.extremes?.find(([cell]) => cell === k);
  const which = n > 1 ? `${tileIndex(picture, t)}: ` : "";
  return `${which}[${placeOf(picture, r, c)}] ${x ? `${number(x[1])} stands out` : exact && picture.scale !== "classes" ? exactText(exact, k) : meaning(picture, codes[k], t)}`;
}

/**
 * The place of a tile on the axes that tiles are made of.
 * @param {Picture} picture
 * @param {number} t
 */
function tileIndex(picture, t) {
  const lengths = (picture.lengths ?? []).slice(2);
  if (lengths.length < 2) return String(t);
  const at = [];
  for (const n of [...lengths].reverse()) {
    at.unshift(t % n);
    t = Math.floor(t / n);
  }
  return `[${at.join(", ")}]`;
}

/**
 * The color of each byte: blue, background, orange for signed values; background to one hue for others.
 * @param {Picture} picture
 * @param {Color} ground
 * @param {boolean} dark
 * @returns {Color[]}
 */
export function colorsOf(picture, ground, dark) {
  const [blue, orange] = /** @type {[Color, Color]} */ (dark ? [[86, 164, 255], [255, 150, 60]] : [[17, 88, 168], [199, 78, 8]]);
  const mark = /** @type {Color} */ (dark ? [235, 235, 235] : [20, 20, 20]);
  const colors = /** @type {Color[]} */ ([[214, 20, 190], mark, mark]);
  for (let code = FIRST; code <= LAST; code++) {
    const at = (code - FIRST) / (LAST - FIRST);
    if (picture.scale === "classes" && isBool(picture)) colors.push(mix(ground, blue, picture.classes?.[code - FIRST] === "True" ? 1 : 0.12));
    else if (picture.scale === "classes") colors.push(hex(CLASSES[(code - FIRST) % CLASSES.length]));
    else if (picture.scale === "phase") colors.push(mix(ground, hueColor(Math.floor((code - FIRST) / PHASE_LEVELS)), ((code - FIRST) % PHASE_LEVELS) / (PHASE_LEVELS - 1)));
    else if (picture.scale.endsWith("signed")) colors.push(at < 0.5 ? mix(ground, blue, 1 - 2 * at) : mix(ground, orange, 2 * at - 1));
    else colors.push(mix(ground, blue, at));
  }
  return colors;
}

/**
 * Return true if the values are truth values: then False is pale.
 * @param {Picture} picture
 */
function isBool({ classes }) {
  return Boolean(classes?.length) && /** @type {string[]} */ (classes).every((text) => text === "True" || text === "False");
}

/**
 * @param {Color} a
 * @param {Color} b
 * @param {number} share
 * @returns {Color}
 */
function mix(a, b, share) {
  const s = Math.max(0, Math.min(1, share)) ** 0.85;
  return /** @type {Color} */ (a.map((x, k) => Math.round(x + (b[k] - x) * s)));
}

/**
 * The full color of a phase: 0 is red, a third of a turn green.
 * @param {number} hue
 * @returns {Color}
 */
function hueColor(hue) {
  const turn = ((hue / HUES + 0.5) % 1) * 6;
  const part = (/** @type {number} */ shift) => {
    const at = (turn + shift + 6) % 6;
    return Math.round(255 * (0.075 + 0.85 * Math.max(0, Math.min(1, Math.abs(at - 3) - 1))));
  };
  return [part(0), part(4), part(2)];
}

/** @param {string} text */
function hex(text) {
  return /** @type {Color} */ ([1, 3, 5].map((k) => parseInt(text.slice(k, k + 2), 16)));
}

/**
 * Choose the number of tiles in a row: one that leaves no gap in the last row where that costs at most half of the width.
 * @param {number} n
 * @param {number} most
 */
function evenRows(n, most) {
  for (let across = most; 2 * across > most; across--) if (n % across === 0) return across;
  return most;
}

/**
 * Lay out a grid of tiles: whole pixels per cell, the size of all, the place of each tile.
 * @param {number[]} shape tiles, rows, columns
 * @param {number} room most pixels across
 * @param {number[]} [lengths] of the axes that tiles are made of: the last runs across, the one before down, those before make blocks
 * @param {number} [tall] most pixels down, where the picture is to fill its room
 */
export function gridOf([n, h, w], room, lengths = [], tall = 0) {
  const gap = n > 1 ? GAP : 0;
  const long = lengths.filter((length) => length > 1);
  const laid = (/** @type {number} */ cell) => {
    const label = n > 1 && w * cell >= NUMBERED_WIDTH ? NUMBER_HEIGHT : 0;
    const [stepX, stepY] = [w * cell + gap, h * cell + gap + label];
    const most = Math.max(1, Math.min(n, Math.floor((room + gap) / stepX)));
    const [down = n, across = most] = long.length > 1 ? long.slice(-2) : [];
    if (long.length < 2 || across > most) {
      const even = evenRows(n, most);
      return { cell, label, width: even * stepX - gap, height: Math.ceil(n / even) * stepY - gap, place: (/** @type {number} */ t) => [(t % even) * stepX, Math.floor(t / even) * stepY + label] };
    }
    const each = across * down;
    const [blocks, blockX, blockY] = [Math.ceil(n / each), across * stepX - gap + APART, Math.min(down, Math.ceil(n / across)) * stepY - gap + APART];
    const beside = Math.max(1, Math.min(blocks, long.at(-3) ?? 1, Math.floor((room + APART) / blockX)));
    const place = (/** @type {number} */ t) => {
      const block = Math.floor(t / each);
      return [(block % beside) * blockX + (t % across) * stepX, Math.floor(block / beside) * blockY + Math.floor((t % each) / across) * stepY + label];
    };
    return { cell, label, width: beside * blockX - APART, height: Math.ceil(blocks / beside) * blockY - APART, place };
  };
  const most = n === 1 ? Math.min(room, 360) : Math.max(48, Math.min(n <= 4 ? 160 : 96, room / Math.min(n, 4) - 6));
  if (!tall) return laid(Math.min(LARGEST_CELL, Math.max(1, Math.floor(most / Math.max(h, w)))));
  for (let cell = LARGEST_CELL; cell > 1; cell--) {
    const grid = laid(cell);
    if (grid.width <= room && grid.height <= tall) return grid;
  }
  return laid(1);
}

/**
 * @param {import("./base.js").View} view
 * @param {HTMLElement} box
 * @param {Picture} picture
 * @param {number} room
 * @param {number} tall
 * @param {number} [first] which tile its first one is
 */
function tiles(view, box, picture, room, tall, first = 0) {
  const [n, h, w] = picture.shape;
  const codes = codesOf(picture);
  const grid = gridOf(picture.shape, room, (picture.lengths ?? []).slice(2), tall);
  const canvas = el("canvas", "canvas");
  const ratio = Math.min(3, Math.ceil(globalThis.devicePixelRatio || 1));
  const { width, height } = grid;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.width = `${width}px`;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", picture.about);
  const legend = el("div", "legend");
  const value = el("div", "value");
  const exact = valuesOf(picture);
  const paint = () => {
    const dark = view.root.dataset.theme === "dark";
    const colors = colorsOf(picture, groundOf(view), dark);
    paintTiles(canvas, codes, picture, grid, colors, ratio, dark);
    rings(canvas, picture, grid, ratio, dark);
    legend.replaceChildren(...legendOf(picture, colors, codes), save);
  };
  const light = () => {
    const copy = /** @type {HTMLCanvasElement} */ (canvas.cloneNode());
    paintTiles(copy, codes, picture, grid, colorsOf(picture, [255, 255, 255], false), ratio, false);
    rings(copy, picture, grid, ratio, false);
    canvas.after(copy);
    queueMicrotask(() => copy.remove());
    return copy;
  };
  const save = legendEnd?.(picture, light) ?? "";
  const cellAt = (/** @type {MouseEvent} */ event) => {
    const x = event.offsetX * (width / canvas.clientWidth);
    const y = event.offsetY * (height / canvas.clientHeight);
    for (let t = 0; t < n; t++) {
      const [left, top] = grid.place(t);
      const down = y - top;
      const r = down < 0 && down >= -grid.label ? 0 : Math.floor(down / grid.cell); // the number above a tile is part of it
      const c = Math.floor((x - left) / grid.cell);
      if (r >= 0 && c >= 0 && r < h && c < w) return { t, r, c };
    }
    return null;
  };
  under.set(canvas, (event) => {
    const found = cellAt(event);
    return found && { ...found, t: found.t + first };
  });
  canvas.addEventListener("pointermove", (event) => {
    const cell = cellAt(event);
    value.textContent = cell ? said(picture, codes, cell.t, cell.r, cell.c, exact) : "\u00a0";
  });
  canvas.addEventListener("pointerleave", () => (value.textContent = "\u00a0"));
  value.textContent = "\u00a0"; // its line is there before anything is pointed at, so that nothing moves
  box.append(withAxes(named(canvas, picture, grid), picture), legend, value);
  view.onTheme(paint);
  paint();
}

/**
 * The names and lengths of the axes along the edges of a picture.
 * @param {HTMLElement} drawn
 * @param {Picture} picture
 */
function withAxes(drawn, picture) {
  const { axes = [], lengths = [] } = picture;
  if (axes.length < 2) return drawn;
  const name = (/** @type {number} */ k) => `axis ${axes[k]}: ${part(k)}${count(lengths[k])}`;
  const part = (/** @type {number} */ k) => {
    const [first, n] = picture.window && k < 2 ? [picture.window[k], picture.window[2 + k]] : [0, lengths[k]];
    return n < lengths[k] ? `${count(first)}…${count(first + n - 1)} of ` : "";
  };
  const ways = ["across", "down", "in blocks"];
  const tiles = axes.slice(2).map((_, k, all) => `${name(k + 2)}${all.length > 1 ? ` ${ways[Math.min(all.length - 1 - k, 2)]}` : ""}`).join(", ");
  const down = el("span", "axisdown", `${name(0)} →`); // the text is turned with its arrow
  return el("div", "axes", el("span", "axisacross", `${name(1)} →${tiles && picture.shape[0] > 1 ? ` · one tile for each index of ${tiles}` : ""}`), down, el("div", "", drawn));
}

/**
 * Names beside the rows and below the columns of one tile, where there is room to read them.
 * @param {HTMLCanvasElement} canvas
 * @param {Picture} picture
 * @param {ReturnType<typeof gridOf>} grid
 */
function named(canvas, picture, grid) {
  const [n, h, w] = picture.shape;
  const names = picture.labels ?? [];
  if (n > 1 || grid.cell < READABLE || (names.length !== h && names.length !== w)) return canvas;
  const list = (/** @type {string} */ cls, /** @type {number} */ count) => {
    const box = el("div", cls, ...(names.length === count ? names.map((text) => el("span", "", text)) : []));
    box.style.setProperty("--cell", `${grid.cell}px`);
    box.setAttribute("aria-hidden", "true");
    return box;
  };
  return el("div", "named", canvas, list("down", h), list("across", w));
}

/**
 * The color behind the view, read from its computed style.
 * @param {import("./base.js").View} view
 * @returns {Color}
 */
function groundOf(view) {
  const parts = (getComputedStyle(view.root).backgroundColor.match(/[\d.]+/g) ?? []).slice(0, 3).map(Number);
  return parts.length === 3 ? /** @type {Color} */ (parts) : [255, 255, 255];
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Uint8Array} codes
 * @param {Picture} picture
 * @param {ReturnType<typeof gridOf>} grid
 * @param {Color[]} colors
 * @param {number} ratio
 * @param {boolean} dark
 */
function paintTiles(canvas, codes, picture, grid, colors, ratio, dark) {
  const [n, h, w] = picture.shape;
  const brush = canvas.getContext("2d");
  if (!brush) return;
  brush.clearRect(0, 0, canvas.width, canvas.height);
  brush.imageSmoothingEnabled = false;
  const small = document.createElement("canvas");
  [small.width, small.height] = [w, h];
  const pen = small.getContext("2d");
  if (!pen) return;
  const size = grid.cell * ratio;
  // A frame and a number tell a tile of zeros from a place without one.
  brush.strokeStyle = dark ? "#4a525c" : "#c4cad1";
  brush.fillStyle = dark ? "#a0a8b2" : "#5f6670";
  brush.font = `${9 * ratio}px sans-serif`;
  const hasNumbers = grid.label > 0 && brush.measureText(tileIndex(picture, n - 1)).width <= w * size;
  for (let t = 0; t < n && n > 1; t++) {
    const [x, y] = grid.place(t).map((at) => at * ratio);
    brush.strokeRect(x - 0.5, y - 0.5, w * size + 1, h * size + 1);
    if (hasNumbers) brush.fillText(tileIndex(picture, t), x, y - 3 * ratio);
  }
  for (let t = 0; t < n; t++) {
    const image = pen.createImageData(w, h);
    for (let k = 0; k < w * h; k++) image.data.set([...colors[codes[t * w * h + k]], 255], k * 4);
    pen.putImageData(image, 0, 0);
    const [x, y] = grid.place(t).map((at) => at * ratio);
    brush.drawImage(small, x, y, w * size, h * size);
    if (size >= 8) marks(brush, codes.subarray(t * w * h, (t + 1) * w * h), w, x, y, size);
  }
}

/**
 * A ring around each cell that shows an element which stands out of its block: a cell alone is a pixel or two.
 * @param {HTMLCanvasElement} canvas
 * @param {Picture} picture
 * @param {ReturnType<typeof gridOf>} grid
 * @param {number} ratio
 * @param {boolean} dark
 */
function rings(canvas, picture, grid, ratio, dark) {
  const brush = canvas.getContext("2d");
  if (!brush || !picture.extremes?.length) return;
  const [, h, w] = picture.shape;
  brush.strokeStyle = dark ? "#fff" : "#000";
  brush.lineWidth = 1.5 * ratio;
  const largest = [...picture.extremes].sort(([, a], [, b]) => Math.abs(b) - Math.abs(a)).slice(0, MOST_RINGS);
  for (const [k] of largest) {
    const t = Math.floor(k / (h * w));
    const [left, top] = grid.place(t);
    const x = left + ((k % w) + 0.5) * grid.cell;
    const y = top + ((Math.floor(k / w) % h) + 0.5) * grid.cell;
    brush.beginPath();
    brush.arc(x * ratio, y * ratio, (grid.cell / 2 + 3) * ratio, 0, 2 * Math.PI);
    brush.stroke();
  }
}

/**
 * Marks that need no color: a diagonal for NaN, ▲ and ▼ for infinities.
 * @param {CanvasRenderingContext2D} brush
 * @param {Uint8Array} codes
 * @param {number} w
 * @param {number} x
 * @param {number} y
 * @param {number} size
 */
function marks(brush, codes, w, x, y, size) {
  brush.strokeStyle = "#fff";
  brush.fillStyle = "#f80";
  brush.textAlign = "center";
  brush.textBaseline = "middle";
  brush.font = `${size * 0.7}px sans-serif`;
  codes.forEach((code, k) => {
    if (code >= FIRST) return;
    const [left, top] = [x + (k % w) * size, y + Math.floor(k / w) * size];
    if (code) brush.fillText(code === 1 ? "▲" : "▼", left + size / 2, top + size / 2);
    else {
      brush.beginPath();
      brush.moveTo(left, top + size);
      brush.lineTo(left + size, top);
      brush.stroke();
    }
  });
}

/**
 * @param {Picture} picture
 * @param {Color[]} colors
 * @param {Uint8Array} codes
 */
function legendOf(picture, colors, codes) {
  const rgb = (/** @type {number} */ code) => `rgb(${colors[code].join(",")})`;
  const parts = [];
  if (picture.scale === "classes") {
    picture.classes?.forEach((text, k) => {
      const swatch = el("span", "swatch");
      swatch.style.background = rgb(FIRST + k);
      parts.push(el("span", "", swatch, ` ${text}`));
    });
  } else if (picture.limits[0] === 0 && picture.limits[1] === 0 && !picture.ends) {
    if (codes.some((code) => code >= FIRST)) parts.push(el("span", "", "all zeros"));
  } else if (codes.some((code) => code >= FIRST)) {
    const strip = el("span", "strip");
    const full = (/** @type {number} */ hue) => FIRST + PHASE_LEVELS * hue + PHASE_LEVELS - 1;
    const stops = picture.scale.endsWith("signed") ? [3, 66, 129, 192, 255] : picture.scale === "phase" ? [0, 6, 12, 18, 24, 30, 35].map(full) : [3, 129, 255];
    strip.style.background = `linear-gradient(90deg, ${stops.map(rgb).join(",")})`;
    if (picture.scale === "phase") parts.push(el("span", "", "−180°"), strip, el("span", "", `180°, strongest at |x| = ${number(picture.limits[1], 3)}`));
    else if (picture.scale === "logsigned") parts.push(el("span", "", `−${number(picture.limits[1], 3)}`), strip, el("span", "", `${number(picture.limits[1], 3)}, equal factors from ±${number(picture.limits[0], 3)}`));
    else if (picture.scale === "log") parts.push(el("span", "", `0, ${number(picture.limits[0], 3)}`), strip, el("span", "", `${number(picture.limits[1], 3)}, equal factors`));
    else if (picture.ends) parts.push(el("span", "", picture.limits[0] < 0 ? "−end" : "0"), strip, el("span", "", `end, of each tile its own: ${number(Math.min(...picture.ends), 3)} … ${number(Math.max(...picture.ends), 3)}`));
    else parts.push(el("span", "", number(picture.limits[0], 3)), strip, el("span", "", number(picture.limits[1], 3)));
  }
  const blocks = picture.notes?.some((note) => note.startsWith("mean of "));
  ["NaN", "+Inf", "−Inf"].forEach((word, code) => {
    const n = codes.reduce((sum, one) => sum + Number(one === code), 0);
    if (!n) return;
    const swatch = el("span", "swatch", code ? " ▲▼"[code] : "╱");
    swatch.style.cssText = `background:${rgb(code)};color:${code ? "#f80" : "#fff"}`;
    parts.push(el("span", "", swatch, ` ${word} ${count(n)}${blocks ? (n === 1 ? " block" : " blocks") : ""}`));
  });
  return [...parts, ...(picture.notes ?? []).map((text) => el("span", "quiet", text))];
}

/**
 * @param {HTMLElement} box
 * @param {Picture} picture
 * @param {number} room
 */
function bars(box, picture, room) {
  const values = new Float32Array(bytesOf(picture.data).buffer);
  const n = values.length;
  const labels = picture.labels ?? [];
  const words = values.length <= MOST_NAMED ? [...values].map((_, k) => labels[k] ?? String(k)) : [];
  const named = words.length > 0;
  const longest = Math.max(...words.map((text) => text.length), 0) * LETTER;
  const upright = n * Math.max(22, longest + 6) <= room; // else the names are turned
  const width = Math.min(room, Math.max(n * (named ? (upright ? Math.max(22, longest + 6) : 22) : 3), 40));
  const height = 72;
  const below = !named ? 1 : upright ? 14 : Math.min(longest, LONGEST_LABEL * LETTER) + 8;
  const [low, high] = picture.limits;
  const span = high - low || 1;
  const y = (/** @type {number} */ v) => height - ((Math.max(low, Math.min(high, v)) - low) / span) * height;
  const w = width / n;
  const drawing = svg("svg", { class: `nbm-bars ${low < 0 ? "nbm-signed" : ""}`, width, height: height + below, role: "img", "aria-label": picture.about });
  values.forEach((v, k) => {
    const good = Number.isFinite(v);
    const top = good ? Math.min(y(v), y(0)) : 0;
    const tall = good ? Math.max(Math.abs(y(v) - y(0)), 0.5) : height;
    const label = labels[k] ?? String(k);
    const kind = Number.isNaN(v) ? "nbm-nan" : !good ? "nbm-inf" : v < 0 ? "nbm-minus" : "nbm-plus";
    drawing.append(svg("rect", { x: k * w, y: top, width: Math.max(w - (w > 3 ? 1 : 0), 0.5), height: tall, class: kind }));
    if (kind === "nbm-inf" && w > 8) drawing.append(svg("text", { x: (k + 0.5) * w, y: v > 0 ? 10 : height - 3, "text-anchor": "middle", class: "nbm-sign" }, v > 0 ? "▲" : "▼"));
    drawing.append(svg("rect", { x: k * w, y: 0, width: w, height, class: "nbm-hit" }, svg("title", {}, `${label}: ${number(v)}`)));
    const text = label.length > LONGEST_LABEL ? `${label.slice(0, LONGEST_LABEL / 2)}…${label.slice(1 - LONGEST_LABEL / 2)}` : label;
    const [x, y0] = [(k + 0.5) * w, height + 4];
    if (named && upright) drawing.append(svg("text", { x, y: height + 11, "text-anchor": "middle" }, label));
    else if (named) drawing.append(svg("text", { x, y: y0, "text-anchor": "end", "dominant-baseline": "central", transform: `rotate(-90 ${x} ${y0})` }, text));
  });
  drawing.append(svg("line", { x1: 0, x2: width, y1: y(0), y2: y(0), class: "nbm-zero" }));
  box.append(drawing, vectorLegend(picture, values, drawing));
}

/**
 * A long vector as a line over its index.
 * @param {HTMLElement} box
 * @param {Picture} picture
 * @param {number} room
 */
function line(box, picture, room) {
  const values = new Float32Array(bytesOf(picture.data).buffer);
  const n = values.length;
  const finite = values.filter(Number.isFinite);
  const [low, high] = [finite.reduce((a, b) => Math.min(a, b), picture.limits[0]), finite.reduce((a, b) => Math.max(a, b), picture.limits[1])];
  const frame = frameOf(Math.min(room, 900), 172, [0, n - 1], [low, high], false);
  const { drawing, clip } = emptyPlot(frame, picture.about, "index");
  clip.append(svg("path", { class: "nbm-line nbm-c0", d: linePath(Array.from(values, (_, k) => frame.x(k)), Array.from(values, (v) => (Number.isFinite(v) ? frame.y(v) : NaN))) }));
  const value = el("div", "value", "\u00a0");
  drawing.addEventListener("pointermove", (event) => {
    const at = frame.step(/** @type {PointerEvent} */ (event).clientX - drawing.getBoundingClientRect().left);
    const k = Math.min(Math.max(Math.round(at), 0), n - 1);
    value.textContent = `[${k}] ${number(values[k])}`;
  });
  box.append(drawing, vectorLegend(picture, values, drawing), value);
}

/**
 * The range of a vector, how many of its elements are not finite, and notes.
 * @param {Picture} picture
 * @param {Float32Array} values
 * @param {Element} drawing
 */
function vectorLegend(picture, values, drawing) {
  const [low, high] = picture.limits;
  const legend = el("div", "legend", el("span", "", `${number(low, 3)} … ${number(high, 3)}`));
  for (const [word, color, is] of /** @type {[string, string, (v: number) => boolean][]} */ ([["NaN", "#d614be", Number.isNaN], ["+Inf", "var(--fg)", (v) => v === Infinity], ["−Inf", "var(--fg)", (v) => v === -Infinity]])) {
    const found = values.reduce((sum, v) => sum + Number(is(v)), 0);
    const swatch = el("span", "swatch");
    swatch.style.background = color;
    if (found) legend.append(el("span", "", swatch, ` ${word} ${count(found)}`));
  }
  for (const text of picture.notes ?? []) legend.append(el("span", "quiet", text));
  legend.append(legendEnd?.(picture, () => drawing) ?? "");
  return legend;
}
