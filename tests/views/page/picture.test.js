import assert from "node:assert/strict";
import { test } from "node:test";
import { colorsOf, gridOf, meaning, placeOf, said } from "../../../nbmodule/views/page/picture.js";

const signed = { k: "heatmap", s: [1, 1, 1], d: "", sc: "signed", l: [-2, 2], of: "", about: "" };

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
  assert.equal(meaning({ ...signed, sc: "classes", c: ["False", "True"] }, 4), "True");
});

test("a cell of a block names the rows and columns of the array that it stands for", () => {
  const blocks = { ...signed, s: [1, 3, 2], w: [100, 0, 10, 2] };
  assert.deepEqual([0, 1, 2].map((r) => placeOf(blocks, r, 1)), ["100:103, 1", "103:106, 1", "106:110, 1"]);
  assert.equal(placeOf({ ...signed, s: [1, 3, 2] }, 2, 1), "2, 1");
  assert.equal(placeOf({ ...signed, s: [1, 2, 2], lb: ["the", "cat"] }, 1, 0), "cat, the");
});

test("an element that stands out is read as its value, and a clipped one as a bound", () => {
  const picture = { ...signed, s: [2, 1, 2], x: [[3, 40.5]], notes: ["1 clipped"] };
  const codes = Uint8Array.of(129, 255, 3, 255);
  assert.equal(said(picture, codes, 1, 0, 1), "1: [0, 1] 40.5 stands out");
  assert.equal(said(picture, codes, 0, 0, 1), "0: [0, 1] ≥ 2");
  assert.equal(said(picture, codes, 1, 0, 0), "1: [0, 0] ≤ -2");
  assert.equal(said(picture, codes, 0, 0, 0), "0: [0, 0] ≈ 0");
});

test("a grid fits into its room in whole pixels", () => {
  for (const shape of [[16, 8, 8], [3, 28, 28], [1, 160, 160], [64, 3, 3]]) {
    for (const room of [240, 420, 1000]) {
      const grid = gridOf(shape, room);
      assert.ok(Number.isInteger(grid.cell) && grid.cell >= 1);
      assert.ok(grid.across * grid.stepX <= room + 4 || grid.across === 1);
      assert.ok(grid.across * grid.down >= shape[0]);
    }
  }
});

test("a phase is read as size and angle, and its full color turns with it", () => {
  const phase = { ...signed, sc: "phase", l: [0, 2] };
  const code = (degrees, level) => 3 + 7 * ((degrees + 180) / 10) + level;
  assert.equal(meaning(phase, code(90, 3)), "≈ 1 ∠ 90°");
  const colors = colorsOf(phase, [255, 255, 255], false);
  const [red, green, blue] = colors[code(0, 6)];
  assert.ok(red > 200 && green < 60 && blue < 60);
  assert.ok(colors[code(120, 6)][1] > 200);
  assert.deepEqual(colors[code(120, 0)], [255, 255, 255]);
});

test("an exact value is said where it is known, and a tile by its place on all of its axes", () => {
  const picture = { ...signed, s: [6, 1, 2], ax: [[2, 3, 0, 1], [1, 2, 2, 3]] };
  const exact = new Float32Array(12).fill(0.25);
  assert.equal(said(picture, new Uint8Array(12).fill(129), 4, 0, 1, exact), "[1, 1]: [0, 1] 0.25");
});
