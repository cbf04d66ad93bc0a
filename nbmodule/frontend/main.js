// All views in one: what a live widget loads, and what a page registers that shows more than one kind.
import { unpack } from "./base.js";
import { render as array } from "./array.js";
import { render as calls } from "./calls.js";
import { render as curve } from "./curve.js";
import { render as difference } from "./difference.js";
import { render as graph } from "./graph.js";
import { render as modules } from "./modules.js";
import { render as note } from "./note.js";
import { render as returns } from "./returns.js";
import { render as variables } from "./variables.js";

/**
 * How each kind of record is drawn, by `data.view`.
 * @type {Record<string, import("./base.js").Render>}
 */
export const VIEWS = { modules, variables, calls, returns, difference, curve, graph, array, note };

/**
 * Draw a record into an element or a shadow root.
 * @param {HTMLElement | ShadowRoot} root
 * @param {import("./base.js").Data} data
 * @param {import("./base.js").Channel | null} channel null where no kernel answers
 * @returns {() => void} cleanup
 */
export function mount(root, data, channel) {
  let end = () => {};
  let ended = false;
  const draw = async () => {
    const whole = data.z ? await unpack(data) : data;
    if (!ended) end = VIEWS[whole.view](root, whole, channel);
  };
  draw().catch((error) => root.append(`This view could not be drawn: ${error}`));
  return () => {
    ended = true;
    end();
  };
}
