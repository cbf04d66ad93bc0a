// How what was tried stands, on the colors of the view around it.
import { el } from "./base.js";

const RULES = [
  ".nbm-tried{display:flex;flex-direction:column;gap:6px;flex:1 1 auto;min-width:0;padding:4px 4px 8px}",
  ".nbm-tried .nbm-button{border-color:var(--line)}",
  ".nbm-asking{display:flex;flex-wrap:wrap;gap:4px 6px;align-items:center}",
  ".nbm-asking select,.nbm-asking input[type=number]{font:inherit;font-size:12px;height:24px;max-width:190px;color:inherit;background:transparent;border:1px solid var(--line);border-radius:3px}",
  ".nbm-asking select option{color:#1f2328;background:#fff}",
  ".nbm-asking input[type=number]{width:64px} .nbm-asking .nbm-given{width:104px}",
  ".nbm-found{display:flex;flex-wrap:wrap;gap:2px 28px} .nbm-found > *{flex:1 1 380px;min-width:0} .nbm-found > .nbm-shown,.nbm-found > pre{flex-basis:100%}",
  ".nbm-metric{font-size:15px}",
  ".nbm-setting{display:flex;gap:2px 8px;align-items:center;min-height:24px;flex-wrap:wrap}",
  ".nbm-setting input[type=range]{flex:0 1 150px;min-width:60px;width:auto}",
  ".nbm-tried .nbm-failed:empty{display:none}",
  ".nbm-off{color:var(--quiet)}",
  ".nbm-shown{display:flex;flex-wrap:wrap;gap:6px 20px}",
  ".nbm-shown h3,.nbm-tried h3{font-size:12px;font-weight:400;color:var(--quiet);margin:4px 0 2px}",
  ".nbm-bars{display:flex;flex-direction:column;max-height:300px;overflow:auto;flex:1 1 280px;min-width:0}",
  ".nbm-barrow{display:grid;grid-template-columns:minmax(90px,240px) minmax(60px,240px) 66px;gap:8px;align-items:center;border:0;background:none;color:inherit;font:inherit;text-align:left;min-height:22px;padding:0 4px;cursor:pointer}",
  ".nbm-barrow:hover{background:var(--soft)}",
  ".nbm-barrow .nbm-mono{overflow:hidden;text-overflow:ellipsis;white-space:nowrap;color:inherit}",
  ".nbm-track{height:9px;background:var(--soft)}",
  ".nbm-barrow .nbm-bar{display:block;height:9px;background:var(--accent)} .nbm-barrow .nbm-below{background:var(--blue)} .nbm-barrow .nbm-above{background:var(--orange)}",
  ".nbm-heatbox{overflow:auto;max-height:420px}",
  ".nbm-heat{border-collapse:collapse;margin:4px 0}",
  ".nbm-heat th{font-weight:400;font-size:11.5px;padding:0 6px 0 2px;text-align:right;white-space:nowrap}",
  ".nbm-heat td{padding:0}",
  ".nbm-heatcell{width:26px;height:24px;padding:0;border:1px solid var(--line);cursor:pointer;background:color-mix(in srgb,var(--hue) var(--share),transparent)}",
  ".nbm-heatcell:focus-visible,.nbm-barrow:focus-visible{outline:2px solid var(--accent);outline-offset:-2px}",
];

/**
 * Put the style sheet beside a view.
 * @param {import("./base.js").View} view
 */
export function useWhatIfStyles(view) {
  const sheet = el("style");
  sheet.textContent = RULES.join("\n");
  view.root.prepend(sheet);
}
