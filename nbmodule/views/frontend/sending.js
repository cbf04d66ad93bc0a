// Copies that leave the page: a picture of some of its parts, and the address of a place in it. Imports nothing, since base.js stands on it.

const SCALE = 2;

/**
 * Hand a file to the reader.
 * @param {string} name
 * @param {Blob} blob
 */
export function hand(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** @param {string} text */
export const fileName = (text) => text.replace(/[^\w.-]+/g, "_").replace(/^_|_$/g, "") || "picture";

/**
 * Paint an SVG.
 * @param {string} text
 * @param {number} width
 * @param {number} height
 * @returns {Promise<Blob>} a PNG
 */
export async function pngOf(text, width, height) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`; // a blob with HTML inside may not be read back
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [SCALE * width, SCALE * height];
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done, fail) => canvas.toBlob((made) => (made ? done(made) : fail(new Error("the browser made no picture")))));
}

/**
 * Parts of a view as they look, below each other and without what only acts.
 * @param {HTMLElement} root the view
 * @param {HTMLElement[]} parts
 */
function pictureOf(root, parts) {
  const frame = /** @type {HTMLElement} */ (root.cloneNode());
  const width = Math.ceil(Math.max(...parts.map((part) => part.offsetWidth), 200)) + 16;
  frame.style.cssText = `position:absolute;left:0;top:0;visibility:hidden;max-width:none;width:${width}px;padding:8px`;
  for (const part of parts) {
    const copy = /** @type {HTMLElement} */ (part.cloneNode(true));
    const drawn = part.querySelectorAll("canvas");
    copy.querySelectorAll("canvas").forEach((canvas, k) => {
      const { width: w, height: h } = drawn[k].getBoundingClientRect();
      const image = document.createElement("img");
      Object.assign(image, { src: drawn[k].toDataURL(), width: w, height: h, className: canvas.className });
      canvas.replaceWith(image);
    });
    for (const node of copy.querySelectorAll("button:not(.nbm-bug), select, input, .nbm-saving")) node.remove();
    copy.style.maxHeight = "none";
    frame.append(copy);
  }
  const sheets = [...(root.parentNode?.querySelectorAll("style") ?? [])];
  frame.prepend(...sheets.map((sheet) => sheet.cloneNode(true)));
  root.append(frame);
  const height = Math.ceil(frame.getBoundingClientRect().height);
  frame.remove();
  frame.style.cssText = `width:${width}px;max-width:none;padding:8px`;
  const inside = new XMLSerializer().serializeToString(frame);
  const text = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}"><foreignObject width="100%" height="100%">${inside}</foreignObject></svg>`;
  return pngOf(text, width, height);
}

/**
 * Copy parts of a view as a picture; where the clipboard takes none, it becomes a file.
 * @param {HTMLElement} root the view
 * @param {HTMLElement[]} parts
 * @param {string} name of the file
 * @returns {Promise<string>} what was done
 */
export async function copyPicture(root, parts, name) {
  const made = pictureOf(root, parts);
  try {
    await navigator.clipboard.write([new ClipboardItem({ "image/png": made })]);
    return "copied a picture";
  } catch {
    hand(`${fileName(name)}.png`, await made);
    return "saved as a picture: the clipboard takes none here";
  }
}

/**
 * The address of a place of a view: it opens the page and leads there. None in a frame or an editor, whose address opens no page.
 * @param {string} name of the view
 * @param {string} place
 */
export function addressOf(name, place) {
  if (!name || parent !== window || !/^(https?|file):$/.test(location.protocol)) return "";
  const address = new URL(location.href);
  address.searchParams.delete("token"); // the key to the reader's own server
  address.hash = `nbm=${name}/${encodeURIComponent(place)}`;
  return address.href;
}

/**
 * The place within a view to which the address of this page leads; null for none.
 * @param {string} name of the view
 */
export function placeInAddress(name) {
  const start = `#nbm=${name}/`;
  return location.hash.startsWith(start) ? decodeURIComponent(location.hash.slice(start.length)) : null;
}

/**
 * Name a view by its content: the same in a page made again from the same notebook.
 * @param {string} text
 */
export function nameOf(text) {
  let sum = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) sum = Math.imul(sum ^ text.charCodeAt(i), 0x01000193);
  return (sum >>> 0).toString(36);
}
