/** A page without a browser: importing this puts the names of a jsdom window where a browser has them. Import what draws after it. */
import { JSDOM } from "jsdom";

export const { window } = new JSDOM("<!doctype html><body></body>", { pretendToBeVisual: true });

const NAMES = [
  "document", "MutationObserver", "Event", "CustomEvent", "getComputedStyle", "ShadowRoot", "Option", "Node", "HTMLElement", "HTMLInputElement",
  "HTMLSelectElement", "AbortController", "requestAnimationFrame", "cancelAnimationFrame",
];
for (const name of NAMES) globalThis[name] = window[name];
globalThis.addEventListener = window.addEventListener.bind(window);
globalThis.ResizeObserver = class {
  observe() {}
  disconnect() {}
};
