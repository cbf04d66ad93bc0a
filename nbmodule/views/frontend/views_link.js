// The script of the widget that is never shown: it joins the static views of a page to the kernel that made them.
//
// A page may hold views of several kernels, and the same bytes twice: a kernel answers a greeting only for views that it
// has made, and the one that made a view last has it.
import { VIEWS, mount } from "./main.js";
import { Kernel } from "./kernel.js";

const GONE = "the kernel was restarted or ended: run the cell again";

/**
 * @typedef {import("./messages.js").ViewHost} ViewHost
 * @typedef {import("./messages.js").Heard} Heard
 */

/** @param {{ model: import("./messages.js").WidgetModel }} widget */
export function initialize({ model }) {
  const page = Math.random().toString(36).slice(2, 12);
  /** @type {Map<ViewHost, Kernel>} */
  const joined = new Map();
  const send = (/** @type {import("./messages.js").Message} */ message) => model.send({ ...message, page });

  const greet = (/** @type {ViewHost} */ host) => {
    if (host.nbmMount && !joined.has(host)) send({ kind: "hello", view: host.dataset.view });
  };
  const join = (/** @type {ViewHost} */ host, /** @type {import("./messages.js").Welcome} */ message) => {
    if (joined.has(host) || !host.nbmMount) return;
    const since = performance.now() - message.age * 1000;
    if (host.nbmKernel && host.nbmKernel.isThere && host.nbmKernel.since >= since) return;
    host.nbmKernel?.leave();
    const kernel = (host.nbmKernel = new Kernel(host, VIEWS[host.nbmKind ?? ""] ? mount : null, send, message, since));
    kernel.leave = () => void joined.delete(host);
    joined.set(host, kernel);
    kernel.draw(null);
  };
  const hear = (/** @type {Heard} */ message) => {
    if (message.kind === "welcome") for (const host of viewsOf(message.view)) join(host, /** @type {import("./messages.js").Welcome} */ (/** @type {unknown} */ (message)));
    for (const [host, kernel] of joined) {
      if (!host.isConnected) joined.delete(host);
      else if (message.kind === "answer" && message.page === page) kernel.take(message);
      else if (message.view === kernel.key) kernel.told(message);
    }
  };
  const ready = (/** @type {Event} */ event) => {
    const host = /** @type {CustomEvent} */ (event).detail;
    joined.delete(host);
    greet(host);
  };
  // The widget manager says that the kernel was restarted, but not whether it is gone or back.
  const lost = () => {
    for (const kernel of joined.values()) kernel.lose(GONE);
    joined.clear();
  };
  model.on("msg:custom", hear);
  model.on("comm_live_update", lost);
  document.addEventListener("nbm-ready", ready);
  for (const host of viewsOf()) greet(host);
  return () => {
    model.off("msg:custom", hear);
    model.off("comm_live_update", lost);
    document.removeEventListener("nbm-ready", ready);
    lost();
  };
}

/** @param {string} [key] */
function viewsOf(key) {
  const all = /** @type {ViewHost[]} */ ([...document.querySelectorAll("nbm-view[data-view]")]);
  return key === undefined ? all : all.filter((host) => host.dataset.view === key);
}
