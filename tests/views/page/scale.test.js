import assert from "node:assert/strict";
import { test } from "node:test";
import { byUnit, linePath, nearest, quantile, smooth, ticks, valueRange } from "../../../nbmodule/views/frontend/scale.js";

test("quantiles interpolate between neighbors", () => {
  assert.equal(quantile([0, 10], 0.25), 2.5);
  assert.ok(Number.isNaN(quantile([], 0.5)));
});

test("one outlier among many does not flatten the curve", () => {
  const values = Array.from({ length: 100 }, (_, i) => i / 100);
  const [low, high] = valueRange([[...values, 1e6]], false);
  assert.ok(high < 2 && low < 0.05);
});

test("the range of a constant series is not empty", () => {
  const [low, high] = valueRange([[3, 3, 3]], false);
  assert.ok(low < 3 && high > 3);
});

test("a logarithmic range leaves out what has no logarithm", () => {
  const [low, high] = valueRange([[0, -1, 1, 100]], true);
  assert.ok(low < 0 && low > -1 && high > 2 && high < 3);
});

test("ticks are round and lie within the range", () => {
  assert.deepEqual(ticks(0, 1, 4), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  for (const t of ticks(-3.3, 17, 4)) assert.ok(t >= -3.3 && t <= 17);
  assert.deepEqual(ticks(2, 2, 4), [2]);
});

test("smoothing begins at the first value and passes over what is not finite", () => {
  assert.deepEqual(smooth([1, NaN, 3], 0.5), [1, NaN, 2]);
  assert.deepEqual(smooth([5, 7], 0), [5, 7]);
});

test("a line has a gap where a value is not finite", () => {
  assert.equal(linePath([0, 1, 2, 3], [1, NaN, 2, 3]), "M0.0 1.0M2.0 2.0L3.0 3.0");
});

test("the nearest step is found", () => {
  assert.equal(nearest([0, 10, 20], 14), 1);
  assert.equal(nearest([0, 10, 20], 16), 2);
  assert.equal(nearest([0, 10, 20], -5), 0);
});

test("loss and val_loss share a plot, accuracy has its own", () => {
  const groups = byUnit([{ name: "loss" }, { name: "val_loss" }, { name: "accuracy" }]);
  assert.deepEqual([...groups.keys()], ["loss", "accuracy"]);
  assert.equal(groups.get("loss").length, 2);
});
