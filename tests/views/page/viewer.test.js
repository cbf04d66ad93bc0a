import assert from "node:assert/strict";
import { test } from "node:test";
import { cut, rescaled, scalesOf } from "../../../nbmodule/views/frontend/cut.js";
import { codesOf, decoded, placeOf, valuesOf } from "../../../nbmodule/views/frontend/picture.js";
import { moved, scaled, shapeOf, unravel } from "../../../nbmodule/views/frontend/viewer.js";
import { producer } from "../../../nbmodule/views/frontend/calls.js";

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

const bytes = (codes) => btoa(String.fromCharCode(...codes));
const blocks = { kind: "channels", shape: [2, 3, 4], data: bytes([...Array(24).keys()].map((k) => 10 * k + 3)), scale: "signed", limits: [-1, 1], window: [0, 0, 10, 4], extremes: [[17, 7]], axes: [0, 1, 2], lengths: [10, 4, 2], of: "float32[10, 4, 2]", about: "" };

test("a part of a picture keeps its bytes, its marks and the rows of the array that its cells stand for", () => {
  const part = cut(blocks, 1, [3, 10, 1, 3]);
  assert.deepEqual(part.shape, [1, 2, 2]);
  assert.deepEqual([...codesOf(part)], [17, 18, 21, 22].map((k) => 10 * k + 3));
  assert.deepEqual(part.extremes, [[0, 7]]);
  assert.deepEqual([placeOf(part, 0, 0), placeOf(part, 1, 1)], ["3:6, 1", "6:10, 2"]);
  const again = cut(part, null, [6, 10, 1, 2]);
  assert.deepEqual([[...codesOf(again)], placeOf(again, 0, 0)], [[213], "6:10, 1"]);
  assert.deepEqual(cut(blocks, null).shape, [2, 3, 4]);
});

test("the page gives a picture with values the scale that is asked for", () => {
  const numbers = Float32Array.of(-3, 0, 1, 2, 0.01, 100);
  const picture = { ...blocks, shape: [2, 1, 3], data: bytes([3, 129, 130, 140, 130, 255]), limits: [-100, 100], window: undefined, extremes: undefined, exact: bytes(new Uint8Array(numbers.buffer)) };
  assert.deepEqual(scalesOf(picture), ["", "range", "log", "tiles"]);
  const range = rescaled(picture, "range");
  assert.deepEqual([range.scale, range.limits, codesOf(range)[0], codesOf(range)[5]], ["range", [-3, 100], 3, 255]);
  const log = rescaled(picture, "log");
  numbers.forEach((v, k) => assert.ok(Math.abs(decoded(log, codesOf(log)[k]) - v) <= 0.05 * Math.abs(v), `${v}`));
  const tiles = rescaled(picture, "tiles");
  assert.deepEqual([tiles.ends, codesOf(tiles)[0], codesOf(tiles)[5]], [[3, 100], 3, 255]);
  assert.equal(decoded(tiles, 255, 0), 3);
  assert.equal(rescaled(picture, ""), picture);
  assert.equal(valuesOf(range).numbers[5], 100);
});

test("a picture of blocks has no logarithmic scale without the kernel, since its bytes do not tell small values apart", () => {
  assert.deepEqual(scalesOf(blocks), ["", "range", "tiles"]);
});

test("the number of a tile is its index on each axis", () => {
  assert.deepEqual([0, 5, 23].map((t) => unravel(t, [2, 3, 4])), [[0, 0, 0], [0, 1, 1], [1, 2, 3]]);
  assert.deepEqual([shapeOf("float32[2, 3]"), shapeOf("float32[]"), shapeOf("<U5[7]")], [[2, 3], [], [7]]);
});
