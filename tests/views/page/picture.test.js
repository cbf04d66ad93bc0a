import assert from "node:assert/strict";
import { test } from "node:test";
import { colorsOf, exactText, gridOf, meaning, placeOf, said, valuesOf } from "../../../nbmodule/views/frontend/picture.js";

const signed = { kind: "heatmap", shape: [1, 1, 1], data: "", scale: "signed", limits: [-2, 2], of: "", about: "" };

test("zero of a signed picture has the color of the page, in both themes", () => {
  for (const [ground, dark] of [[[255, 255, 255], false], [[20, 24, 28], true]]) {
    assert.deepEqual(colorsOf(signed, ground, dark)[129], ground);
  }
});

test("negative values are blue and positive ones orange", () => {
  const colors = colorsOf(signed, [255, 255, 255], false);
  assert.ok(colors[3][2] > colors[3][0]);
  assert.ok(colors[255][0] > colors[255][2]);
});

test("a byte is read back as the value or the mark that it stands for", () => {
  assert.equal(meaning(signed, 129), "≈ 0");
  assert.equal(meaning(signed, 255), "≈ 2");
  assert.deepEqual([0, 1, 2].map((c) => meaning(signed, c)), ["NaN", "∞", "-∞"]);
  assert.equal(meaning({ ...signed, scale: "classes", classes: ["False", "True"] }, 4), "True");
});

test("a cell of a block names the rows and columns of the array that it stands for", () => {
  const blocks = { ...signed, shape: [1, 3, 2], window: [100, 0, 10, 2] };
  assert.deepEqual([0, 1, 2].map((r) => placeOf(blocks, r, 1)), ["100:103, 1", "103:106, 1", "106:110, 1"]);
  assert.equal(placeOf({ ...signed, shape: [1, 3, 2] }, 2, 1), "2, 1");
  assert.equal(placeOf({ ...signed, shape: [1, 2, 2], labels: ["the", "cat"] }, 1, 0), "cat, the");
});

test("an element that stands out is read as its value, and a clipped one as a bound", () => {
  const picture = { ...signed, shape: [2, 1, 2], extremes: [[3, 40.5]], notes: ["1 clipped"] };
  const codes = Uint8Array.of(129, 255, 3, 255);
  assert.equal(said(picture, codes, 1, 0, 1), "1: [0, 1] 40.5 stands out");
  assert.equal(said(picture, codes, 0, 0, 1), "0: [0, 1] ≥ 2");
  assert.equal(said(picture, codes, 1, 0, 0), "1: [0, 0] ≤ -2");
  assert.equal(said(picture, codes, 0, 0, 0), "0: [0, 0] ≈ 0");
});

test("a grid fits into its room in whole pixels", () => {
  for (const shape of [[16, 8, 8], [3, 28, 28], [1, 160, 160], [64, 3, 3]]) {
    for (const room of [240, 420, 1000]) {
      for (const tall of [0, 480]) {
        const grid = gridOf(shape, room, [], tall);
        const [n, h, w] = shape;
        assert.ok(Number.isInteger(grid.cell) && grid.cell >= 1);
        assert.ok(grid.width <= room);
        for (let t = 0; t < n; t++) {
          const [x, y] = grid.place(t);
          assert.ok(x + w * grid.cell <= grid.width && y + h * grid.cell <= grid.height);
        }
      }
    }
  }
});

test("a phase is read as size and angle, and its full color turns with it", () => {
  const phase = { ...signed, scale: "phase", limits: [0, 2] };
  const code = (degrees, level) => 3 + 7 * ((degrees + 180) / 10) + level;
  assert.equal(meaning(phase, code(90, 3)), "≈ 1 ∠ 90°");
  const colors = colorsOf(phase, [255, 255, 255], false);
  const [red, green, blue] = colors[code(0, 6)];
  assert.ok(red > 200 && green < 60 && blue < 60);
  assert.ok(colors[code(120, 6)][1] > 200);
  assert.deepEqual(colors[code(120, 0)], [255, 255, 255]);
});

test("an exact value is said where it is known, and a tile by its place on all of its axes", () => {
  const picture = { ...signed, shape: [6, 1, 2], axes: [2, 3, 0, 1], lengths: [1, 2, 2, 3] };
  const exact = { type: "f4", numbers: new Float32Array(12).fill(0.25) };
  assert.equal(said(picture, new Uint8Array(12).fill(129), 4, 0, 1, exact), "[1, 1]: [0, 1] 0.25");
});

test("three axes of tiles are blocks of rows of tiles, apart from each other", () => {
  const { place } = gridOf([2 * 3 * 4, 5, 5], 1000, [2, 3, 4]);
  const [step, down] = [place(1)[0] - place(0)[0], place(4)[1] - place(0)[1]];
  const top = place(0)[1]; // room for the number of each tile
  assert.deepEqual(place(3), [3 * step, top]);
  assert.deepEqual(place(11), [3 * step, top + 2 * down]);
  assert.equal(place(12)[1], top);
  assert.ok(place(12)[0] > 4 * step + 8);
  assert.deepEqual(gridOf([8, 5, 5], 1000, [8, 1]).place(3)[1], top, "an axis of one makes no column");
});

test("tiles fill their last row where there is room for a divisor of their number", () => {
  const across = (n, room) => new Set(Array.from({ length: n }, (_, t) => gridOf([n, 9, 9], room, [], 480).place(t)[0])).size;
  for (const n of [4, 6, 8, 9, 12, 16]) assert.equal(n % across(n, 600), 0, `${n} tiles`);
});

test("a value is written with the digits that tell it from its neighbors, and no more", () => {
  const text = (type, numbers, k = 0) => exactText({ type, numbers }, k);
  assert.equal(text("f4", Float32Array.of(0.1)), "0.1");
  assert.equal(text("f4", Float32Array.of(1 / 3)), "0.33333334");
  assert.equal(text("f8", Float64Array.of(16777217)), "16777217");
  assert.equal(text("f8", Float64Array.of(0.1)), "0.1");
  assert.equal(text("i8", BigInt64Array.of(-(2n ** 60n))), "-1152921504606846976");
  assert.equal(text("c8", Float32Array.of(9, 9, 3, -4), 1), "3-4j (|x| 5 ∠ -53.1°)");
  assert.equal(valuesOf({ exact: btoa(String.fromCharCode(...new Uint8Array(Float64Array.of(2.5).buffer))), exact_type: "f8" }).numbers[0], 2.5);
});

test("bytes of a logarithmic scale are equal factors, with zero apart", () => {
  const log = { ...signed, scale: "log", limits: [0.01, 100] };
  assert.deepEqual([3, 4, 255].map((code) => meaning(log, code)), ["≈ 0", "size ≤ 0.01", "≈ 100"]);
  const both = { ...signed, scale: "logsigned", limits: [0.01, 100] };
  assert.deepEqual([3, 128, 129, 130, 255].map((code) => meaning(both, code)), ["≈ -100", "size ≤ 0.01", "≈ 0", "size ≤ 0.01", "≈ 100"]);
});

test("a long vector that is folded into rows names the index, not a row and a column", () => {
  const folded = { ...signed, shape: [1, 20, 30], axes: [0], lengths: [600] };
  assert.equal(placeOf(folded, 2, 5), "65");
});
