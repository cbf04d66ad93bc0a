import assert from "node:assert/strict";
import { test } from "node:test";
import { window } from "./window.js";
const { histogram, numbers, unionOf } = await import("../../../nbmodule/views/frontend/marks.js");

test("the numbers of several arrays are those of all their elements", () => {
  const all = unionOf([
    { n: 2, m: 0, s: 1, lo: -1, hi: 1, b: [1, 1] },
    { n: 2, m: 4, s: 0, lo: 4, hi: 4, nan: 1, b: [1] },
  ]);
  assert.deepEqual([all.n, all.nan, all.lo, all.hi, all.b], [4, 1, -1, 4, [2, 1]]);
  assert.ok(Math.abs(all.m - 4 / 3) < 1e-12);
  assert.ok(Math.abs(all.s - Math.sqrt(((-1 - 4 / 3) ** 2 + (1 - 4 / 3) ** 2 + (4 - 4 / 3) ** 2) / 3)) < 1e-12);
});

test("no element is lost where bins overlap, and what is not finite has no bins", () => {
  const bins = [3, 5, 2, 7];
  const all = unionOf([{ n: 17, m: 0, s: 1, lo: 0, hi: 3, b: bins }, { n: 17, m: 0, s: 1, lo: 1.1, hi: 7.7, b: bins }]);
  assert.equal(all.b.reduce((a, b) => a + b), 34);
  assert.deepEqual(unionOf([{ n: 3, m: NaN, s: NaN, lo: NaN, hi: NaN, nan: 3, b: [] }]).b, []);
});

test("deviations whose squares are no numbers are joined", () => {
  const all = unionOf([{ n: 1, m: -1e200, s: 0, lo: -1e200, hi: -1e200, b: [1] }, { n: 1, m: 1e200, s: 0, lo: 1e200, hi: 1e200, b: [1] }]);
  assert.ok(Math.abs(all.s / 1e200 - 1) < 1e-12);
});

const hover = (stats) => [...histogram(stats, 240, 56, 32).querySelectorAll("title")].map((title) => title.textContent);

test("a bin is counted where all elements were, and is a share where only some were", () => {
  assert.deepEqual(hover({ n: 4, m: 0, s: 1, lo: 0, hi: 2, b: [1, 3] }), ["0 … 1: 1", "1 … 2: 3"]);
  assert.deepEqual(hover({ n: 5, m: 0, s: 1, lo: 0, hi: 2, nan: 1, b: [1, 3] }), ["0 … 1: 1", "1 … 2: 3"]);
  assert.deepEqual(hover({ n: 9000, m: 0, s: 1, lo: 0, hi: 2, b: [1, 3] }), ["0 … 1: 25 %", "1 … 2: 75 %"]);
});

test("zeros of a sample are told as a share and not as a count", () => {
  const pane = window.document.createElement("div");
  numbers(pane, { n: 9000, m: 0, s: 1, lo: 0, hi: 2, z: 4500, b: [2, 2], of: 4 });
  numbers(pane, { n: 4, m: 0, s: 1, lo: 0, hi: 2, z: 2, b: [2, 2] });
  const told = [...pane.querySelectorAll("dd")].map((node) => node.textContent).filter((text) => text.includes("%"));
  assert.deepEqual(told, ["50 % of these", "2 (50 %)"]);
});
