// Saves the picture on the page as a file of its own, with the colors it has now.
import { fileName, hand } from "./sending.js";

const PAINT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "paint-order", "opacity", "font-size", "font-weight", "font-family"];

/**
 * Hand the drawn picture to the reader as SVG.
 * @param {SVGElement} picture
 * @param {{ width: number, height: number }} size
 * @param {string} name
 */
export function saveSvg(picture, size, name) {
  const copy = /** @type {SVGElement} */ (picture.cloneNode(true));
  const [from, to] = [picture.querySelectorAll("*"), copy.querySelectorAll("*")];
  from.forEach((node, i) => {
    const style = getComputedStyle(node);
    to[i].setAttribute("style", PAINT.map((key) => `${key}:${style.getPropertyValue(key)}`).join(";"));
  });
  copy.firstElementChild?.setAttribute("transform", "translate(12 12)");
  const [width, height] = [Math.ceil(size.width + 24), Math.ceil(size.height + 24)];
  for (const [key, value] of Object.entries({ xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` })) {
    copy.setAttribute(key, String(value));
  }
  copy.style.background = getComputedStyle(/** @type {Element} */ (picture.closest(".nbm-view"))).backgroundColor;
  hand(`${fileName(name)}.svg`, new Blob([copy.outerHTML], { type: "image/svg+xml" }));
}
