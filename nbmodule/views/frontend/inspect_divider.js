// A line between two panes that moves, by pointer and by keys.
import { el } from "./base.js";

const LEAST = 12;
const MOST = 60;

/** One divider; `share` is the width, in percent, of the pane that it belongs to. */
export class Divider {
  /**
   * @param {import("./base.js").View} view
   * @param {"width" | "detail"} name under which its place is remembered
   * @param {number} share
   * @param {1 | -1} side whether its pane lies at its left (1) or right
   */
  constructor(view, name, share, side) {
    this.view = view;
    this.name = name;
    this.side = side;
    this.share = view.memory.get(name) ?? share;
    this.moved = () => {};
    this.node = el("div", "divider");
    this.node.tabIndex = 0;
    this.node.setAttribute("role", "separator");
    this.node.setAttribute("aria-orientation", "vertical");
    this.node.setAttribute("aria-label", side > 0 ? "width of the modules" : "width of the detail");
    this.set(this.share);
    this.listen();
  }

  listen() {
    const options = { signal: this.view.signal };
    this.node.addEventListener("keydown", (event) => this.key(event), options);
    this.node.addEventListener("pointerdown", (event) => this.node.setPointerCapture?.(event.pointerId), options);
    this.node.addEventListener("pointermove", (event) => this.drag(event), options);
  }

  /** @param {PointerEvent} event */
  drag(event) {
    const room = this.node.parentElement?.getBoundingClientRect();
    if (!room?.width || !this.node.hasPointerCapture?.(event.pointerId)) return;
    const at = (100 * (event.clientX - room.left)) / room.width;
    this.set(this.side > 0 ? at : 100 - at);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const step = { ArrowLeft: -2, ArrowRight: 2 }[event.key];
    if (!step) return;
    this.set(this.share + step * this.side);
    event.preventDefault();
  }

  /** @param {number} share */
  set(share) {
    this.share = Math.min(MOST, Math.max(LEAST, share));
    this.view.memory.set(this.name, this.share);
    this.node.setAttribute("aria-valuenow", this.share.toFixed(0));
    this.moved();
  }
}
