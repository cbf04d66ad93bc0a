import assert from "node:assert/strict";
import { test } from "node:test";
import { moved, scaled } from "../../../nbmodule/views/page/explore.js";
import { producer } from "../../../nbmodule/views/page/calls.js";

test("a window closes in on a place that stays where it is", () => {
  assert.deepEqual(scaled(0, 100, 100, 0.5, 0.5), [25, 75]);
  assert.deepEqual(scaled(0, 100, 100, 0.5, 0), [0, 50]);
  assert.deepEqual(scaled(25, 75, 100, 2, 0.5), [0, 100]);
});

test("a window has at least one element and never leaves the array", () => {
  for (const n of [1, 3, 100]) {
    for (const by of [0.01, 0.5, 2, 100]) {
      for (const at of [0, 0.3, 1]) {
        const [first, last] = scaled(0, n, n, by, at);
        assert.ok(first >= 0 && last <= n && last > first);
      }
    }
  }
});

test("a window moves as far as there is room and keeps its size", () => {
  assert.deepEqual(moved(0, 10, 100, 0.5), [5, 15]);
  assert.deepEqual(moved(85, 95, 100, 3), [90, 100]);
  assert.deepEqual(moved(5, 15, 100, -2), [0, 10]);
});

test("the producer of what is not finite is the innermost call, not the one around it", () => {
  const bad = new Set([0, 1, 3, 4, 5]);
  assert.equal(producer([0, 1, 2, 2, 1, 2], (i) => bad.has(i)), 3);
  assert.equal(producer([0, 1, 1], (i) => i === 2), 2);
  assert.equal(producer([0, 1], () => false), -1);
});
