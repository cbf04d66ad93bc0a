import assert from "node:assert/strict";
import { test } from "node:test";
import { pathOf, ranks, written } from "../../../nbmodule/views/frontend/table_columns.js";

const column = (kind) => ({ title: "x", kind, values: [] });

test("values are written by the kind of their column, and a text among numbers stands as it is", () => {
  assert.equal(written(column("count"), 12345), "12,345");
  assert.equal(written(column("bytes"), 2048), "2.00 KiB");
  assert.equal(written(column("number"), "NaN"), "NaN");
  assert.equal(written(column("count"), "12 × 344"), "12 × 344");
  assert.equal(written(column("count"), 0), "0");
  assert.equal(written(column("count"), null), "");
});

test("a column of numbers is sorted by them, one of texts by the alphabet, and what is not there comes last", () => {
  assert.deepEqual(ranks(column("count"), [3, null, "2 × 4"]), [3, NaN, NaN]);
  assert.deepEqual(ranks(column("text"), ["b", "a10", null, "a2"]), [-2, -1, NaN, -0]);
});

test("a sorted line is named from the top, without the range of a folded level", () => {
  const labels = ["blocks 0…1", "0", "norm", "1", "head"];
  const depth = [0, 1, 2, 1, 0];
  assert.deepEqual(labels.map((_, i) => pathOf(depth, (k) => labels[k], i)), ["blocks 0…1", "blocks.0", "blocks.0.norm", "blocks.1", "head"]);
});
