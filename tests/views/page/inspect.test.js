import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { window } from "./window.js";

const { render } = await import("../../../nbmodule/views/frontend/inspect.js");

const DATA = {
  view: "inspect",
  title: ["Net", "float32[2, 4] → float32[2, 4]"],
  root: "view",
  at: { a: 0, b: 0 },
  lines: [["model.py:3", 3, "def forward(self, x):\n    return x", 0]],
  parts: {
    modules: { view: "modules", title: ["Net"], root: "model", total: 8, depth: [0, 0], open: [], label: ["a", "b"], path: ["a", "b"], class_name: ["Linear", "Linear"], kind: ["module", "module"], parameters: [4, 4] },
    calls: {
      view: "calls", title: ["1 call of Net"], root: "view.calls", depth: [0, 1, 1, 1], open: [0], label: ["Net", "a", "b", "a (2nd)"],
      path: ["", "a", "b", "a"], order: [0, 1, 2, 3], inputs: ["x", "x", "x", "x"], outputs: ["x", "x", "x", "y"], error: null,
    },
    graph: { view: "note", title: ["graph"], text: "no graph: it cannot be traced", error: true },
  },
};

/** @type {HTMLElement} */
let host;
let end = () => {};
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
  end = render(host, { ...DATA, ...changes }, channel);
}

beforeEach(() => {
  end();
  globalThis.nbmMemory = undefined;
  sent = [];
  host = document.createElement("div");
  document.body.replaceChildren(host);
});

const pane = (name) => host.querySelector(`section[aria-label=${name}]`);
const row = (name, text) => [...pane(name).querySelectorAll(".nbm-row")].find((node) => node.querySelector(".nbm-cut").textContent === text);
const marked = (name) => [...pane(name).querySelectorAll(".nbm-selected .nbm-cut")].map((node) => node.textContent);

test("a selection in one pane is marked in the others and told to the kernel", () => {
  show();
  row("calls", "a (2nd)").click();
  assert.deepEqual(marked("modules"), ["a"]);
  assert.match(pane("selected").textContent, /call 2 of 2/);
  assert.match(pane("selected").textContent, /source model\.py:3/);
  assert.deepEqual(sent, [{ type: "joined", path: null }, { type: "select", path: "a", call: 1 }]);
});

test("a selection of the kernel is marked in all panes and not told back", () => {
  show();
  tell({ type: "mark", path: "b", call: 0 });
  assert.deepEqual([marked("modules"), marked("calls")], [["b"], ["b"]]);
  assert.equal(sent.length, 1);
});

test("what was selected before the kernel joined is told when it does", () => {
  show();
  row("modules", "b").click();
  end();
  sent = [];
  show();
  assert.deepEqual(sent, [{ type: "joined", path: "b", call: 0 }]);
});

test("buttons go from one call of a module to the next", () => {
  show();
  row("modules", "a").click();
  pane("selected").querySelector("[aria-label='Next call of this module']").click();
  assert.deepEqual(marked("calls"), ["a (2nd)"]);
  assert.match(pane("selected").textContent, /call 2 of 2/);
});

test("a part that could not be made says why in its place", () => {
  show();
  host.querySelector("[title='Show graph']").click();
  assert.match(pane("graph").textContent, /no graph: it cannot be traced/);
});

test("a failed run opens at the innermost call that raised", () => {
  const calls = { ...DATA.parts.calls, error: ["TypeError", null, null, "TypeError"] };
  show({ parts: { ...DATA.parts, calls } });
  assert.deepEqual(marked("calls"), ["a (2nd)"]);
});

test("code and names are text, never markup", () => {
  const lines = [["<b>", 1, "<img src=x onerror=alert(1)>", 0]];
  show({ lines });
  row("modules", "a").click();
  assert.equal(pane("selected").querySelector("img"), null);
  assert.match(pane("selected").textContent, /<img src=x/);
});
