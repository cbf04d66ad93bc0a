import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { window } from "./window.js";

const text = readFileSync(new URL("graph_fixture.json", import.meta.url), "utf-8");
const { render } = await import("../../../nbmodule/views/frontend/graphs.js");

const host = document.body.appendChild(document.createElement("div"));
const one = () => JSON.parse(text);
const end = render(host, { title: ["two"], changes: [["~", "sin → cos", "1/0/2", "1/0/2"], ["+", "tanh", null, "2"]], a: one(), b: one() }, null);
const sides = [...host.querySelectorAll(".nbm-twin")];
const selected = () => sides.map((side) => side.querySelector('.nbm-gbox[aria-selected="true"]')?.getAttribute("aria-label")?.split(",")[0]);
const rows = [...host.querySelectorAll(".nbm-changes button")];

test("a difference is opened and selected in both graphs", () => {
  rows[0].click();
  assert.deepEqual(selected(), ["encoder.layers.2", "encoder.layers.2"]);
  assert.deepEqual(rows.map((row) => row.getAttribute("aria-pressed")), ["true", "false"]);
});

test("what is in one graph alone leaves the other where it is", () => {
  rows[0].click();
  rows[1].click();
  assert.equal(selected()[0], "encoder.layers.2");
  assert.notEqual(selected()[1], "encoder.layers.2");
});

test("a submodule that is selected in one is selected in the other", () => {
  const node = [...sides[0].querySelectorAll(".nbm-gbox")].find((box) => box.getAttribute("data-key") === "/head#0");
  node.dispatchEvent(new window.MouseEvent("click", { bubbles: true, detail: 1 }));
  assert.deepEqual(selected(), ["head", "head"]);
});

test("both look at the same place", () => {
  const stages = sides.map((side) => side.querySelector(".nbm-gpicture > g"));
  sides[0].querySelector('[aria-label^="Zoom in"]').click();
  assert.match(stages[0].getAttribute("transform"), /scale\(([\d.]+)\)/);
  assert.equal(/scale\(([\d.]+)\)/.exec(stages[1].getAttribute("transform"))[1], /scale\(([\d.]+)\)/.exec(stages[0].getAttribute("transform"))[1]);
});

test("nothing is left behind at the end", () => {
  end();
  assert.equal(host.textContent, "");
});
