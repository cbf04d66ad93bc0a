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
  for (const host of document.querySelectorAll("nbm-view")) {
    const element = /** @type {any} */ (host);
    if (element.dataset.nbm === key && element.nbmBegin) element.nbmBegin();
  }
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
      this.nbmEnd = starts.get(this.dataset.nbm ?? "")?.(this);
    }

    disconnectedCallback() {
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
  const source = host.querySelector('script[type="application/json"]')?.textContent ?? "{}";
  const draw = async () => {
    const data = await unpack(JSON.parse(source));
    if (!ended) end = views[data.view](host.shadowRoot ?? host.attachShadow({ mode: "open" }), data, null);
  };
  draw().catch((error) => {
    console.warn("nbmodule: the view stays in its plain form:", error);
  });
  return () => {
    ended = true;
    end();
  };
}
