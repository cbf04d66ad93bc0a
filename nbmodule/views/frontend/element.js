// The element that a saved output holds. It shows what is inside it until a renderer is there to replace it.
import { unpack } from "./base.js";
import { nameOf, placeInAddress } from "./sending.js";

/**
 * @typedef {import("./messages.js").ViewHost} ViewHost
 * @typedef {import("./messages.js").Page} Page
 */

/**
 * One page may hold outputs of several versions. Each bundle registers under its own key how it draws; the element asks
 * for the key that its output names, so the class that the first bundle defines serves them all.
 * @param {string} key
 * @param {Record<string, import("./base.js").Render>} views
 */
export function define(key, views) {
  const page = /** @type {Page} */ (globalThis);
  const starts = (page.nbmStarts ??= new Map());
  starts.set(key, (/** @type {ViewHost} */ host) => start(host, views));
  if (!customElements.get("nbm-view")) customElements.define("nbm-view", viewElement(starts));
  for (const host of waiting()) host.nbmBegin?.(); // also those in shadow trees, which no query finds
  for (const host of /** @type {NodeListOf<ViewHost>} */ (document.querySelectorAll("nbm-view"))) if (host.dataset.nbm === key) host.nbmBegin?.();
}

/** Elements of the page whose renderer is still to come. @returns {Set<ViewHost>} */
function waiting() {
  const page = /** @type {Page} */ (globalThis);
  return (page.nbmWaiting ??= new Set());
}

/** @param {Map<string, (host: ViewHost) => () => void>} starts */
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
 * Go to the place in this view that the address of the page names: once for each address, since an output may be hidden and shown.
 * @param {ViewHost} host
 */
function arrive(host) {
  const page = /** @type {Page} */ (globalThis);
  const place = placeInAddress(host.nbmName ?? "");
  if (place === null || page.nbmArrived === location.hash) return;
  page.nbmArrived = location.hash;
  host.scrollIntoView({ block: "center" });
  if (place) host.nbmView?.arrive?.(place);
}

/**
 * Keep the actions of a reader for as long as the tab lives, where the browser lets a page keep anything. A filter is not: a page that
 * opens with most of its rows hidden would be misread.
 * @param {string} name
 * @param {import("./messages.js").Kept | undefined} look
 */
function remember(name, look) {
  try {
    if (look) sessionStorage.setItem(`nbm ${name}`, JSON.stringify({ ...look, query: undefined }));
  } catch {
    // then a page that is loaded again opens as it did
  }
}

/** @param {string} name */
function recall(name) {
  try {
    return JSON.parse(sessionStorage.getItem(`nbm ${name}`) ?? "null") ?? undefined;
  } catch {
    return undefined;
  }
}

/**
 * @param {ViewHost} host
 * @param {Record<string, import("./base.js").Render>} views
 */
function start(host, views) {
  let end = () => {};
  let ended = false;
  const source = host.querySelector('script[type="application/json"]')?.textContent ?? "{}";
  const name = (host.nbmName = nameOf(source));
  const hidden = new AbortController();
  host.nbmLook ??= recall(name);
  globalThis.addEventListener("pagehide", () => remember(name, host.nbmView?.look?.take()), { signal: hidden.signal });
  globalThis.addEventListener("hashchange", () => arrive(host), { signal: hidden.signal });
  const draw = async () => {
    let data = await unpack(JSON.parse(source));
    if (ended) return;
    const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
    end = views[data.view](root, data, null);
    arrive(host);
    if (!host.dataset.view) return;
    // A widget that knows the kernel of this view draws it again, with a channel and perhaps with other data.
    host.nbmKind = data.view;
    host.nbmMount = (render, fresh, channel) => {
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
    hidden.abort();
    host.nbmMount = undefined;
    end();
  };
}
