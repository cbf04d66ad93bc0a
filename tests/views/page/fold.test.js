import assert from "node:assert/strict";
import { test } from "node:test";
import { recordRows, filterRows, shapeOf, sortedLeaves, sums, visibleRows } from "../../../nbmodule/views/frontend/fold.js";

//  0 features, 1 v0, 2 b, 3 w, 4 v1, 5 mean, 6 head, 7 w
const depth = [0, 1, 2, 2, 1, 2, 0, 1];
const paths = ["features", "features/v0", "features/v0/b", "features/v0/w", "features/v1", "features/v1/mean", "head", "head/w"];
const shape = shapeOf(depth);

test("the shape knows parents, ends, places and sizes", () => {
  assert.deepEqual([...shape.parent], [-1, 0, 1, 1, 0, 4, -1, 6]);
  assert.deepEqual([...shape.end], [6, 4, 3, 4, 6, 6, 8, 8]);
  assert.deepEqual([...shape.place], [1, 1, 1, 2, 2, 1, 2, 1]);
  assert.deepEqual([...shape.size], [2, 2, 2, 2, 2, 1, 2, 1]);
});

test("folded rows hide what is below them", () => {
  assert.deepEqual(visibleRows(shape, new Set(), null), [0, 6]);
  assert.deepEqual(visibleRows(shape, new Set([0]), null), [0, 1, 4, 6]);
  assert.deepEqual(visibleRows(shape, new Set([1]), null), [0, 6], "an open row in a folded one stays hidden");
});

test("a filter shows matches and the rows around them, also in folded rows", () => {
  const found = filterRows(shape, (i) => paths[i], "MEAN");
  assert.equal(found.matches, 1);
  assert.deepEqual(visibleRows(shape, new Set(), found.keep), [0, 4, 5]);
});

test("all words of a query must occur, in any order", () => {
  const found = filterRows(shape, (i) => paths[i], "w v0");
  assert.deepEqual([...found.keep].map((k, i) => (k === 2 ? i : -1)).filter((i) => i >= 0), [3]);
});

test("an empty query filters nothing", () => assert.equal(filterRows(shape, (i) => paths[i], "  "), null));

test("sorting lists leaves only, largest first, unknown values last", () => {
  const value = [0, 0, 5, NaN, 0, 9, 0, 5];
  assert.deepEqual(sortedLeaves(shape, (i) => value[i], null), [5, 2, 7, 3]);
  assert.equal(sortedLeaves(shape, (i) => i, null, true).length, shape.depth.length, "calls that hold others have a time of their own");
});

test("sums add leaves up to their roots", () => {
  assert.deepEqual([...sums(shape, () => 1)], [3, 2, 1, 1, 1, 1, 1, 1]);
});

test("a hundred thousand rows are filtered and listed in under 250 ms", () => {
  const many = Array.from({ length: 100_000 }, (_, i) => (i % 8 ? 1 : 0));
  const large = shapeOf(many);
  const start = performance.now();
  const found = filterRows(large, (i) => `layer${i}`, "99");
  assert.ok(visibleRows(large, new Set(), found.keep).length > 1000);
  assert.ok(performance.now() - start < 250);
});

test("lines count the rows of the record unless a column says otherwise", () => {
  const isRow = (i) => [false, true, true, false, true][i];
  assert.deepEqual([0, 1, 2, 3, 4].map(recordRows(5, isRow, undefined)), [-1, 0, 1, -1, 2]);
  assert.deepEqual([0, 1, 2].map(recordRows(3, isRow, [2, -1, 0])), [2, -1, 0]);
});
