// The camera of a picture: zoom, pan, the height of the window onto it, and the small map of all of it.
import { svg } from "./base.js";

const [LEAST, MOST_ZOOM, MARGIN] = [0.08, 4, 12];
const OPEN_HEIGHT = 420;
const LEGIBLE = 0.9; // a zoom at which the words of a box can be read

/** A window onto a scene. The wheel alone belongs to the page; with Ctrl it zooms. */
export class Camera {
  /**
   * @param {HTMLElement} port
   * @param {SVGElement} stage
   * @param {AbortSignal} signal
   * @param {() => void} moved
   */
  constructor(port, stage, signal, moved) {
    this.port = port;
    this.stage = stage;
    this.moved = moved;
    this.tall = false;
    this.following = false;
    this.x = 0;
    this.y = 0;
    this.zoom = 1;
    this.width = 800;
    this.height = 0;
    this.size = { width: 1, height: 1 };
    /** @type {{ x: number, y: number, id: number, far: boolean } | null} */
    this.drag = null;
    this.dragged = false;
    /** @type {{ x: number, y: number, zoom: number } | null} */
    this.before = null;
    port.addEventListener("wheel", (event) => this.wheel(event), { signal, passive: false });
    port.addEventListener("pointerdown", (event) => this.down(event), { signal });
    port.addEventListener("pointermove", (event) => this.pull(event), { signal });
    for (const kind of ["pointerup", "pointercancel"]) port.addEventListener(kind, () => this.up(), { signal });
    globalThis.addEventListener("beforeprint", () => this.print(true), { signal });
    globalThis.addEventListener("afterprint", () => this.print(false), { signal });
    this.map = svg("svg", { class: "nbm-gmap", "aria-hidden": "true" });
    this.map.addEventListener("pointerdown", (event) => this.jump(/** @type {PointerEvent} */ (event)), { signal });
    this.map.addEventListener("pointermove", (event) => /** @type {PointerEvent} */ (event).buttons && this.jump(/** @type {PointerEvent} */ (event)), { signal });
  }

  /** Take the width of the window from the page; asked only when that changes, since the answer needs a layout. */
  measure() {
    this.width = this.port.clientWidth || 800;
  }

  /** True if the window is too low for the scene. */
  get isCut() {
    return this.size.height * this.zoom + 2 * MARGIN > OPEN_HEIGHT;
  }

  /** The visible part of the scene. */
  get area() {
    return { left: this.x, top: this.y, right: this.x + this.width / this.zoom, bottom: this.y + this.height / this.zoom };
  }

  /**
   * Take the size of another scene.
   * @param {{ width: number, height: number }} size
   */
  setScene(size) {
    this.size = size;
    this.fitHeight();
  }

  fitHeight() {
    const wanted = this.size.height * this.zoom + 2 * MARGIN;
    const most = this.tall ? Math.max(OPEN_HEIGHT, 0.92 * (globalThis.innerHeight || 800)) : OPEN_HEIGHT;
    this.setHeight(Math.round(Math.max(90, Math.min(wanted, most))));
    this.clamp();
  }

  /** @param {number} height */
  setHeight(height) {
    if (height !== this.height) this.port.style.height = `${height}px`;
    this.height = height;
  }

  /** Show all of it, at most at its own size. */
  fit() {
    const most = this.tall ? Math.max(OPEN_HEIGHT, 0.92 * (globalThis.innerHeight || 800)) : OPEN_HEIGHT;
    const across = (this.width - 2 * MARGIN) / this.size.width;
    this.zoom = Math.max(LEAST, Math.min(1, across, (most - 2 * MARGIN) / this.size.height));
    this.x = this.y = 0;
    this.fitHeight();
  }

  /**
   * On paper there is no window: all of it is shown, as wide as the page.
   * @param {boolean} on
   */
  print(on) {
    if (on) {
      this.before = { x: this.x, y: this.y, zoom: this.zoom };
      this.zoom = Math.max(LEAST, Math.min(1, (this.width - 2 * MARGIN) / this.size.width));
      this.setHeight(Math.round(this.size.height * this.zoom + 2 * MARGIN));
      this.clamp();
    } else if (this.before) {
      Object.assign(this, this.before);
      this.fitHeight();
    }
  }

  /** Begin at the top, at a size that can be read. */
  home() {
    this.zoom = Math.max(0.7, Math.min(1, (this.width - 2 * MARGIN) / this.size.width));
    this.x = (this.size.width - this.width / this.zoom) / 2;
    this.y = -MARGIN / this.zoom;
    this.fitHeight();
  }

  /** Keep the scene in the window: in the middle if it is smaller, else without a gap beyond its margin. */
  clamp() {
    const [wide, high] = [this.width / this.zoom, this.height / this.zoom];
    const space = MARGIN / this.zoom;
    const { width, height } = this.size;
    this.x = width + 2 * space <= wide ? (width - wide) / 2 : Math.min(Math.max(this.x, -space), width + space - wide);
    this.y = height + 2 * space <= high ? -space : Math.min(Math.max(this.y, -space), height + space - high);
    this.apply();
  }

  apply() {
    const k = this.zoom;
    this.stage.setAttribute("transform", `translate(${-this.x * k} ${-this.y * k}) scale(${k})`);
    this.frameMap();
    this.moved();
  }

  /**
   * @param {number} dx in pixels of the screen
   * @param {number} dy
   */
  pan(dx, dy) {
    this.x += dx / this.zoom;
    this.y += dy / this.zoom;
    this.clamp();
  }

  /**
   * @param {number} factor
   * @param {number} [px] the point of the window that stays where it is
   * @param {number} [py]
   */
  zoomBy(factor, px = this.width / 2, py = this.height / 2) {
    const next = Math.min(MOST_ZOOM, Math.max(LEAST, this.zoom * factor));
    this.x += px / this.zoom - px / next;
    this.y += py / this.zoom - py / next;
    this.zoom = next;
    this.fitHeight();
  }

  /**
   * Move as little as is needed to have a box in the window.
   * @param {{ x: number, y: number, width: number, height: number }} box
   * @param {number} above what the headings of the frames around it cover
   */
  show(box, above) {
    const { left, top, right, bottom } = this.area;
    const space = 24 / this.zoom;
    if (box.x < left + space) this.x = box.x - space;
    else if (box.x + box.width > right - space) this.x = Math.min(box.x - space, box.x + box.width + space - (right - left));
    if (box.y < top + space + above) this.y = box.y - space - above;
    else if (box.y + box.height > bottom - space) this.y = Math.min(box.y - space, box.y + box.height + space - (bottom - top));
    this.clamp();
  }

  /**
   * Bring a box to the middle, at a size that can be read.
   * @param {{ x: number, y: number, width: number, height: number }} box
   */
  lookAt(box) {
    this.zoom = Math.min(Math.max(this.zoom, LEGIBLE), MOST_ZOOM);
    this.fitHeight();
    this.x = box.x + box.width / 2 - this.width / this.zoom / 2;
    this.y = box.y + Math.min(box.height, 60) / 2 - this.height / this.zoom / 2;
    this.clamp();
  }

  /** The position as the share of the way down, and the zoom. */
  get where() {
    return { zoom: this.zoom, x: this.x - (this.size.width - this.width / this.zoom) / 2, y: this.y / Math.max(1, this.size.height) };
  }

  /**
   * Look where another camera looks, at a scene that may have another size.
   * @param {{ zoom: number, x: number, y: number }} where
   */
  follow({ zoom, x, y }) {
    this.following = true;
    this.zoom = zoom;
    this.fitHeight();
    this.x = x + (this.size.width - this.width / zoom) / 2;
    this.y = y * this.size.height;
    this.clamp();
    this.following = false;
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const { left, top } = this.port.getBoundingClientRect();
    this.zoomBy(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002)), event.clientX - left, event.clientY - top);
  }

  /** @param {PointerEvent} event */
  down(event) {
    if (event.button === 0 && !this.map.contains(/** @type {Node} */ (event.target))) {
      this.drag = { x: event.clientX, y: event.clientY, id: event.pointerId, far: false };
    }
  }

  /** @param {PointerEvent} event */
  pull(event) {
    const { drag } = this;
    if (!drag || drag.id !== event.pointerId) return;
    const [dx, dy] = [drag.x - event.clientX, drag.y - event.clientY];
    if (!drag.far && Math.hypot(dx, dy) < 5) return;
    if (!drag.far) this.port.setPointerCapture(event.pointerId);
    this.drag = { x: event.clientX, y: event.clientY, id: drag.id, far: true };
    this.pan(dx, dy);
  }

  up() {
    this.dragged = Boolean(this.drag?.far);
    this.drag = null;
  }

  /**
   * Draw the small map where the window shows only a part of much.
   * @param {{ x: number, y: number, width: number, height: number, open: boolean }[]} boxes
   */
  drawMap(boxes) {
    const { width, height } = this.size;
    const scale = Math.min(96 / width, 130 / height);
    const path = boxes.filter((b) => !b.open).map((b) => `M${b.x} ${b.y}h${b.width}v${b.height}h${-b.width}z`).join("");
    this.map.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.map.setAttribute("width", String(Math.max(24, width * scale)));
    this.map.setAttribute("height", String(Math.max(24, height * scale)));
    this.map.replaceChildren(svg("path", { d: path }), svg("rect"));
    this.frameMap();
  }

  frameMap() {
    const { left, top, right, bottom } = this.area;
    const { width, height } = this.size;
    const seen = ((Math.min(right, width) - Math.max(left, 0)) * (Math.min(bottom, height) - Math.max(top, 0))) / (width * height);
    this.map.style.display = seen < 0.4 ? "" : "none";
    const frame = this.map.lastElementChild;
    for (const [name, value] of Object.entries({ x: left, y: top, width: right - left, height: bottom - top })) frame?.setAttribute(name, String(value));
  }

  /** @param {PointerEvent} event */
  jump(event) {
    event.preventDefault();
    event.stopPropagation();
    const { left, top, width, height } = this.map.getBoundingClientRect();
    const area = this.area;
    this.x = ((event.clientX - left) / width) * this.size.width - (area.right - area.left) / 2;
    this.y = ((event.clientY - top) / height) * this.size.height - (area.bottom - area.top) / 2;
    this.clamp();
  }
}
