// The element that a saved output holds. It shows what is inside it until a renderer is there to replace it.
import { unpack } from "./base.js";

/**
 * One page may hold outputs of several versions. Each bundle registers under its own key how it draws; the element asks
 * for the key that its output names, so the class that the first bundle defines serves them all.
 * @param {string} key
 * @param {Record<string, import("./base.js").Render>} views
 */
export function define(key, views) {
  const page = /** @type {any} */ (globalThis);
  const starts = (page.nbmStarts ??= new Map());
  starts.set(key, (/** @type {HTMLElement} */ host) => start(host, views));
  if (!customElements.get("nbm-view")) customElements.define("nbm-view", viewElement(starts));
  for (const host of waiting()) /** @type {any} */ (host).nbmBegin(); // also those in shadow trees, which no query finds
  for (const host of document.querySelectorAll("nbm-view")) {
    const element = /** @type {any} */ (host);
    if (element.dataset.nbm === key && element.nbmBegin) element.nbmBegin();
  }
}

/** Elements of the page whose renderer is still to come. @returns {Set<HTMLElement>} */
function waiting() {
  const page = /** @type {any} */ (globalThis);
  return (page.nbmWaiting ??= new Set());
}

/** @param {Map<string, (host: HTMLElement) => () => void>} starts */
function viewElement(starts) {
  return class extends HTMLElement {
    connectedCallback() {
      this.nbmBegin();
    }

    nbmBegin() {
      // A page that is still being read has the element before its data; the script in the output comes back here.
      if (this.nbmEnd || !this.querySelector('script[type="application/json"]')) return;
      const begin = starts.get(this.dataset.nbm ?? "");
      if (!begin) waiting().add(this);
      else {
        waiting().delete(this);
        this.nbmEnd = begin(this);
      }
    }

    disconnectedCallback() {
      waiting().delete(this);
      this.nbmEnd?.();
      this.nbmEnd = undefined;
    }

    /** @type {(() => void) | undefined} */
    nbmEnd;
  };
}

/**
 * @param {HTMLElement} host
 * @param {Record<string, import("./base.js").Render>} views
 */
function start(host, views) {
  let end = () => {};
  let ended = false;
  const element = /** @type {any} */ (host);
  const source = host.querySelector('script[type="application/json"]')?.textContent ?? "{}";
  const draw = async () => {
    let data = await unpack(JSON.parse(source));
    if (ended) return;
    const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
    end = views[data.view](root, data, null);
    if (!host.dataset.view) return;
    // A widget that knows the kernel of this view draws it again, with a channel and perhaps with other data.
    element.nbmKind = data.view;
    element.nbmMount = (/** @type {import("./base.js").Render | null} */ render, /** @type {any} */ fresh, /** @type {import("./base.js").Channel} */ channel) => {
      end();
      data = fresh ?? data;
      end = (render ?? views[data.view])(root, data, channel);
    };
    document.dispatchEvent(new CustomEvent("nbm-ready", { detail: host }));
  };
  draw().catch((error) => {
    console.warn("nbmodule: the view stays in its plain form:", error);
  });
  return () => {
    ended = true;
    element.nbmMount = undefined;
    end();
  };
}
