// Saves a picture of the page as a file: PNG as it is drawn, SVG with its legend as text. Both on a light background.
import { button, el, svg } from "./base.js";
import { number } from "./format.js";
import { fileName, hand, pngOf } from "./sending.js";

const LEGEND = 20;

/**
 * Put a drawing, or an image of a canvas, and its legend into one SVG.
 * @param {Element} drawn
 * @param {string} legend
 * @returns {{ node: SVGElement, width: number, height: number }}
 */
function standalone(drawn, legend) {
  const box = drawn.getBoundingClientRect();
  const [width, height] = [Math.ceil(Math.max(box.width, 160)), Math.ceil(box.height) + LEGEND];
  const node = svg("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` });
  node.append(svg("rect", { width, height, fill: "#fff" }));
  if (drawn instanceof HTMLCanvasElement) {
    const image = { href: drawn.toDataURL(), width: box.width, height: box.height, style: "image-rendering:pixelated" };
    node.append(svg("image", image));
  } else {
    const frame = /** @type {HTMLElement | null} */ (drawn.closest(".nbm-view"));
    const theme = frame?.dataset.theme;
    if (frame) frame.dataset.theme = "light";
    const copy = /** @type {Element} */ (drawn.cloneNode(true));
    const parts = drawn.querySelectorAll("*");
    copy.querySelectorAll("*").forEach((part, k) => {
      const style = getComputedStyle(parts[k]);
      part.setAttribute("style", ["fill", "stroke", "font-size"].map((key) => `${key}:${style.getPropertyValue(key)}`).join(";"));
    });
    if (frame) frame.dataset.theme = theme;
    node.append(copy);
  }
  node.append(svg("text", { x: 2, y: height - 6, "font-size": 11, "font-family": "sans-serif", fill: "#333" }, legend));
  return { node, width, height };
}

/**
 * @param {Element} drawn a canvas or an SVG
 * @param {string} legend
 * @param {string} name
 * @param {"svg" | "png"} kind
 */
function savePicture(drawn, legend, name, kind) {
  const { node, width, height } = standalone(drawn, legend);
  const text = node.outerHTML;
  const made = kind === "png" ? pngOf(text, width, height) : Promise.resolve(new Blob([text], { type: "image/svg+xml" }));
  void made.then((blob) => hand(`${fileName(name)}.${kind}`, blob));
}

/**
 * Buttons that save a picture with its legend.
 * @param {import("./picture.js").Picture} picture
 * @param {() => Element} drawn
 */
export function saving(picture, drawn) {
  const [low, high] = picture.limits.map((x) => number(x, 3));
  const legend = [picture.of, picture.scale === "classes" ? (picture.classes ?? []).join(" ") : `${low} … ${high}`, ...(picture.notes ?? [])].join("   ");
  const box = el("span", "saving");
  for (const kind of /** @type {("png" | "svg")[]} */ (["png", "svg"])) {
    box.append(button(kind, `Save this picture as ${kind.toUpperCase()}`, () => savePicture(drawn(), legend, picture.of, kind)));
  }
  return box;
}
