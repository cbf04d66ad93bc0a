import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { beforeEach, test } from "node:test";
import { window } from "./window.js";

const text = readFileSync(new URL("graph_fixture.json", import.meta.url), "utf-8");
const { render } = await import("../../../nbmodule/views/frontend/graph.js");

/** @type {HTMLElement} */
let host;
/** @type {() => void} */
let end;
let sent = [];
let tell = () => {};

function show(changes = {}) {
  const channel = {
    send: (message) => void sent.push(message),
    onMessage: (fn) => {
      tell = fn;
      return () => (tell = () => {});
    },
  };
  end = render(host, { ...JSON.parse(text), ...changes }, channel);
}

beforeEach(() => {
  end?.();
  globalThis.nbmMemory = undefined;
  document.body.replaceChildren();
  host = document.body.appendChild(document.createElement("div"));
  sent = [];
  show();
});

const port = () => host.querySelector(".nbm-gport");
const boxes = () => [...host.querySelectorAll(".nbm-gbox")];
const named = (name) => boxes().find((node) => node.getAttribute("data-key").split("/").pop() === `${name}#0`);
const press = (key, node = port()) => node.dispatchEvent(new window.KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const click = (node, detail = 1) => node.dispatchEvent(new window.MouseEvent("click", { bubbles: true, detail }));
const selected = () => host.querySelector('[aria-selected="true"]')?.getAttribute("aria-label")?.split(",")[0];

test("boxes are items of a tree with level, place and state", () => {
  const encoder = named("encoder");
  assert.equal(port().getAttribute("role"), "tree");
  assert.equal(encoder.getAttribute("role"), "treeitem");
  assert.deepEqual(["aria-level", "aria-posinset", "aria-setsize", "aria-expanded"].map((a) => encoder.getAttribute(a)), ["1", "2", "6", "false"]);
  assert.equal(named("x").getAttribute("aria-expanded"), null);
});

test("a click unfolds a group, another folds it", () => {
  click(named("scan"));
  assert.ok(named("tanh"));
  assert.equal(named("scan").getAttribute("aria-expanded"), "true");
  click(named("scan"));
  assert.equal(named("tanh"), undefined);
});

test("what was opened stays open when the data arrive again", () => {
  click(named("scan"));
  end();
  show();
  assert.ok(named("tanh"));
});

test("a double click lets a group fill the picture, and the way back leads out", () => {
  click(named("scan"), 1);
  click(named("scan"), 2);
  assert.equal(named("head"), undefined);
  assert.ok(named("tanh"));
  const way = [...host.querySelectorAll(".nbm-gway button")];
  assert.deepEqual(way.map((node) => node.textContent), ["model", "scan"]);
  way[0].click();
  assert.ok(named("head"));
  assert.equal(named("scan").getAttribute("aria-expanded"), "false");
});

test("keys do all that the mouse does", () => {
  press("ArrowDown");
  assert.equal(selected(), "x");
  press("ArrowDown");
  assert.equal(selected(), "encoder");
  press(" ");
  assert.equal(named("encoder").getAttribute("aria-expanded"), "true");
  press(" ");
  press("ArrowDown");
  press("Enter");
  assert.ok(host.querySelector(".nbm-gway button"));
  press("Escape");
  assert.equal(host.querySelector(".nbm-gway button"), null);
  press("End");
  assert.equal(selected(), "output.1");
  press("Home");
  assert.equal(selected(), "x");
});

test("the focus stays on the picture when it is drawn again", () => {
  port().focus();
  press("End");
  press("Home");
  press("ArrowDown");
  press(" ");
  assert.equal(document.activeElement, port());
  assert.equal(port().getAttribute("aria-activedescendant"), named("encoder").id);
});

test("no key that is used here reaches the notebook", () => {
  let reached = 0;
  document.body.addEventListener("keydown", () => reached++);
  for (const key of ["d", "b", "x", "ArrowDown", "Enter", " ", "Escape", "/"]) press(key);
  press("b", host.querySelector(".nbm-filter"));
  assert.equal(reached, 0);
  assert.equal(host.dataset.lmSuppressShortcuts, "true");
});

test("there is one tab stop", () => {
  const stops = [...host.querySelectorAll("*")].filter((node) => node.tabIndex === 0);
  assert.deepEqual(stops, [port()]);
});

test("the arrows reach the tools and come back", () => {
  press("Home");
  press("ArrowUp");
  assert.equal(document.activeElement, host.querySelector(".nbm-filter"));
  for (let i = 0; i < 3; i++) press("ArrowRight", document.activeElement);
  assert.equal(document.activeElement.tagName, "SELECT");
  press("ArrowDown", document.activeElement);
  assert.equal(document.activeElement, port());
});

/**
 * @param {string} text
 * @param {HTMLInputElement} field
 */
function type(text, field) {
  field.value = text;
  field.dispatchEvent(new window.Event("input"));
}

test("a search marks what is visible and opens the way to what is not", () => {
  const field = host.querySelector(".nbm-filter");
  type("tanh", field);
  assert.equal(host.querySelector(".nbm-gcount").textContent, "1 of 1");
  assert.ok(named("tanh").classList.contains("nbm-gfound"));
  assert.equal(named("tanh").getAttribute("aria-selected"), "true");
  press("Escape", field);
  assert.equal(field.value, "");
});

test("a hidden repeat is found one after another", () => {
  const field = host.querySelector(".nbm-filter");
  type("sin", field);
  const place = () => [sent.at(-1).path, host.querySelector(".nbm-gcount").textContent];
  const places = [place()];
  for (let i = 0; i < 4; i++) {
    press("Enter", field);
    places.push(place());
  }
  assert.deepEqual(places.map(([, said]) => said), ["1 of 4", "2 of 4", "3 of 4", "4 of 4", "1 of 4"]);
  assert.deepEqual(places.map(([path]) => path), ["encoder.layers.0", "encoder.layers.1", "encoder.layers.2", "encoder.layers.3", "encoder.layers.0"]);
});

test("what a search has unfolded for one hit is folded again for the next, and nothing found is said", () => {
  const field = host.querySelector(".nbm-filter");
  type("", field);
  const open = () => [...host.querySelectorAll(".nbm-ghead")].map((node) => node.getAttribute("data-key"));
  const before = open();
  type("sin", field);
  press("Enter", field);
  const inner = open().filter((key) => !before.includes(key));
  assert.ok(inner.every((key) => !key.includes("layers.0")), inner.join());
  type("nowhere", field);
  assert.equal(host.querySelector(".nbm-gcount").textContent, "nothing found");
  type("", field);
  assert.equal(host.querySelector(".nbm-gcount").textContent, "");
});

test("pointing at a box lights its inputs and outputs two steps far", () => {
  named("head").dispatchEvent(new window.MouseEvent("pointerover", { bubbles: true }));
  assert.ok(named("scan").classList.contains("nbm-glit1"));
  assert.ok(named("encoder").classList.contains("nbm-glit2"));
  assert.ok(!named("x").classList.contains("nbm-glit2"));
  port().dispatchEvent(new window.MouseEvent("pointerleave"));
  assert.ok(!named("scan").classList.contains("nbm-glit1"));
});

test("all inputs of a box are lit on demand, until Escape", () => {
  press("End");
  press("i");
  assert.ok(named("x").classList.contains("nbm-glit1"));
  press("Escape");
  assert.ok(!named("x").classList.contains("nbm-glit1"));
});

test("a box is explained beside the picture", () => {
  press("Home");
  for (let i = 0; i < 3; i++) press("ArrowDown");
  press("d");
  const detail = host.querySelector(".nbm-detail").textContent;
  assert.ok(detail.includes("submodule") && detail.includes("8 ops · 37 FLOP") && detail.includes("2 ms"));
  assert.ok(detail.includes("returned 0.25 ± 1.5") && detail.includes("NaN 3"));
  assert.equal(host.querySelectorAll(".nbm-gbars i").length, 16);
  press("Escape");
  assert.equal(host.querySelector(".nbm-detail"), null);
});

test("an operation shows its source line", () => {
  click(named("scan"));
  click(named("tanh"));
  assert.ok(host.querySelector(".nbm-detail").textContent.includes("model.py:1"));
});

test("returns stand at the edges, those that are not finite in words", () => {
  const labels = [...host.querySelectorAll(".nbm-glabel")].map((node) => node.textContent);
  assert.ok(labels.includes("0.25 ± 1.5") && labels.includes("NaN 3"));
});

test("a picture of what was returned stands at the edge and, larger, in the detail", () => {
  end();
  const { returns } = JSON.parse(text);
  show({ returns: { head: [{ ...returns.head[0], picture: "data:image/png;base64,AAAA", size: [24, 8] }] } });
  const image = host.querySelector("image.nbm-gthumb");
  assert.deepEqual(["href", "width", "height"].map((name) => image.getAttribute(name)), ["data:image/png;base64,AAAA", "24", "8"]);
  press("Home");
  for (let i = 0; i < 3; i++) press("ArrowDown");
  press("d");
  assert.equal(host.querySelector(".nbm-detail img").alt, "what head returned");
});

test("boxes are colored by what is not finite", () => {
  end();
  show({ color: "non-finite" });
  assert.equal(host.querySelector(".nbm-legend").textContent, "non-finite 03");
});

test("edge labels can be left out", () => {
  end();
  show({ edges: 0, returns: {} });
  assert.equal(host.querySelectorAll(".nbm-glabel").length, 0);
});

test("boxes are colored on demand, with a legend", () => {
  const choice = host.querySelector("select");
  assert.deepEqual([...choice.options].map((option) => option.value), ["", "flops", "bytes", "time", "non-finite"]);
  choice.value = "flops";
  choice.dispatchEvent(new window.Event("change"));
  assert.ok(host.querySelector(".nbm-legend").textContent.startsWith("flops 0 FLOP"));
});

test("what is highlighted is framed in red and its way is open", () => {
  end();
  show({ highlight: ["1/0/2"] });
  assert.equal(host.querySelectorAll(".nbm-gmarked").length, 1);
  assert.ok(named("layers.2"));
});

test("the wheel belongs to the page, with Ctrl it zooms", () => {
  const scale = () => Number(/scale\(([\d.]+)\)/.exec(port().querySelector("g").getAttribute("transform"))[1]);
  const wheel = (ctrlKey) => {
    const event = new window.WheelEvent("wheel", { deltaY: -100, ctrlKey, bubbles: true, cancelable: true });
    port().dispatchEvent(event);
    return event.defaultPrevented;
  };
  const before = scale();
  assert.equal(wheel(false), false);
  assert.equal(scale(), before);
  assert.equal(wheel(true), true);
  assert.ok(scale() > before);
});

test("on paper all of the picture is shown", () => {
  click(named("encoder"));
  click(named("scan"));
  const before = port().style.height;
  window.dispatchEvent(new window.Event("beforeprint"));
  assert.ok(parseInt(port().style.height) > 500);
  window.dispatchEvent(new window.Event("afterprint"));
  assert.equal(port().style.height, before);
});

test("a selection is told to other views and to the kernel", () => {
  let told = null;
  host.addEventListener("nbm-select", (event) => (told = event.detail));
  press("Home");
  for (let i = 0; i < 3; i++) press("ArrowDown");
  assert.deepEqual([told.path, told.call], ["head", 0]);
  assert.deepEqual(sent.at(-1), { type: "select", key: "head", path: "head", call: 0, place: "3" });
});

test("what another view selects is opened and selected here", () => {
  tell({ type: "mark", path: "encoder.layers.3" });
  assert.equal(named("layers.3").getAttribute("aria-selected"), "true");
});

test("a group whose inside was left out says so", () => {
  const plans = JSON.parse(text).plans;
  plans[0].i[2] = -2;
  end();
  show({ plans });
  click(named("scan"));
  assert.equal(named("tanh"), undefined);
  assert.ok(host.querySelector(".nbm-live").textContent.includes("left out here") && named("scan").getAttribute("aria-expanded") === null);
});

test("an empty graph says so and answers no key", () => {
  const data = JSON.parse(text);
  Object.assign(data.plans[0], { r: [], t: [], i: [] });
  Object.assign(data.forms[0], { c: [], m: [], t: [], l: [], s: [], w: [] });
  end();
  show({ plans: data.plans, forms: data.forms, open: [], highlight: [] });
  for (const key of ["Home", "End", "ArrowDown", " ", "Enter", "i", "0"]) press(key);
  assert.equal(host.querySelector(".nbm-empty").textContent, "no output depends on any operation");
});

test("nothing is left behind at the end", () => {
  end();
  assert.equal(host.childNodes.length, 0);
});
