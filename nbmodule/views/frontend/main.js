// All views that can ask a kernel for more, in one: what the widget brings that joins the views of a page to the kernel.
import { unpack } from "./base.js";
import { render as array } from "./array.js";
import { render as calls } from "./calls.js";
import { render as comparison } from "./comparison.js";
import { render as difference } from "./difference.js";
import { render as table } from "./table.js";
import { render as live } from "./live.js";
import { render as modules } from "./modules.js";
import { useLegendEnd } from "./picture.js";
import { render as profile } from "./profile.js";
import { render as recorded } from "./recorded.js";
import { render as returns } from "./returns.js";
import { saving } from "./save.js";
import { render as variables } from "./variables.js";

useLegendEnd(saving);

/**
 * The renderer of each kind of record, by `data.view`.
 * @type {Record<string, import("./base.js").Render>}
 */
export const VIEWS = { modules, variables, calls, recorded, returns, comparison, difference, array, table, live, profile };

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
