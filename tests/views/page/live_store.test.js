import assert from "node:assert/strict";
import { test } from "node:test";
import { addChanges, evenly, openRun, firstMeasured, measuredRange, pathsOf, reduced, statistic, stepRange, wrongWith, stepUnder } from "../../../nbmodule/views/frontend/live_store.js";
import { sampleAt } from "../../../nbmodule/views/frontend/scale.js";

const base64 = (array) => Buffer.from(array.buffer, array.byteOffset, array.byteLength).toString("base64");
const points = (steps, values) => ({ s: base64(Float64Array.from(steps)), v: base64(Float32Array.from(values)) });
const series = (name, steps, values, more = {}) => ({ name, group: name, role: "train", n: steps.length, last: values.at(-1), best: null, ...points(steps, values), ...more });
const record = (more = {}) => ({ view: "live", title: ["digits"], run: "r", progress: { state: "running", done: 2, total: 4, epoch: 1, epochs: 1, rate: "Infinity", remaining: null, elapsed: 1, reason: "", step: 2, ended: false }, series: [], ...more });
const FIELDS = ["mean", "std", "low", "high", "nonfinite", "zero"];
const sample = (step, paths, rows) => ({ paths, fields: rows[0].length > 1 ? FIELDS : ["ratio"], steps: base64(Float64Array.of(step)), values: base64(Float32Array.from(rows.flat())), left: 0 });

test("a record becomes a run, numbers that JSON cannot hold included", () => {
  const run = openRun(record({ series: [series("loss", [1, 2], [0.5, NaN], { last: "NaN", best: [1, "0.5"] })] }));
  const loss = run.series.get("loss");
  assert.deepEqual([...loss.steps], [1, 2]);
  assert.ok(Number.isNaN(loss.last) && Number.isNaN(loss.values[1]));
  assert.deepEqual(loss.best, [1, 0.5]);
  assert.equal(run.progress.rate, Infinity);
});

test("messages add points to known and to new series", () => {
  const run = openRun(record({ series: [series("loss", [1], [0.5])] }));
  addChanges(run, {
    strips: { update: sample(3, ["a", "b"], [[0.25], [0.75]]) },
    series: [series("loss", [2, 3], [0.2, 0.1], { n: 3 }), series("val_loss", [1e12], [7])],
    progress: { ...record().progress, done: 3 },
  });
  const loss = run.series.get("loss");
  assert.deepEqual([...loss.steps.subarray(0, loss.size)], [1, 2, 3]);
  assert.deepEqual([...loss.values.subarray(0, loss.size)].map((v) => Number(v.toFixed(3))), [0.5, 0.2, 0.1]);
  assert.equal(loss.n, 3);
  assert.equal(run.series.get("val_loss").steps[0], 1e12);
  assert.equal(run.progress.done, 3);
  assert.equal(statistic(run.strips.get("update"), 0, 1, "ratio"), 0.75);
  assert.deepEqual(stepRange(run), [1, 1e12]);
});

test("runs that a message draws pale are read as those of a record", () => {
  const run = openRun(record());
  addChanges(run, { earlier: [{ ended: "done", series: [{ name: "loss", ...points([1, 2], [3, 4]) }] }] });
  assert.deepEqual([...run.earlier[0].curves[0].values], [3, 4]);
});

test("a long run is kept small and keeps its extremes", () => {
  const run = openRun(record());
  for (let k = 0; k < 200; k++) {
    const values = Array.from({ length: 1000 }, (_, i) => (k === 77 && i === 7 ? 99 : Math.sin(i)));
    addChanges(run, { series: [series("a", Array.from({ length: 1000 }, (_, i) => k * 1000 + i), values)] });
  }
  const a = run.series.get("a");
  assert.ok(a.size <= 61_000);
  const values = [...a.values.subarray(0, a.size)];
  assert.equal(Math.max(...values), 99);
  const steps = a.steps.subarray(0, a.size);
  assert.ok(steps.every((s, i) => i === 0 || s > steps[i - 1]));
});

test("a reduced curve keeps both ends, extremes and what is not finite", () => {
  const steps = Float64Array.from({ length: 1000 }, (_, i) => i);
  const values = Float32Array.from(steps, (s) => (s === 500 ? NaN : s % 10));
  const out = reduced(steps, values, 10);
  assert.equal(out.steps[0], 0);
  assert.equal(out.steps.at(-1), 999);
  assert.ok(out.values.some(Number.isNaN));
  assert.ok(out.values.includes(0) && out.values.includes(9));
  assert.ok(out.steps.length <= 32);
  assert.deepEqual(reduced(steps.subarray(0, 5), values.subarray(0, 5), 10).values, values.subarray(0, 5));
});

test("samples stay few and lie evenly over the run", () => {
  const run = openRun(record());
  for (let step = 0; step < 3000; step++) addChanges(run, { strips: { update: sample(step, step ? undefined : ["a"], [[step]]) } });
  const { steps, values } = run.strips.get("update");
  assert.ok(steps.length <= 256 && steps.length > 64);
  assert.equal(steps[0], 0);
  assert.equal(steps.at(-1), 2999);
  assert.deepEqual(values.map((v) => v[0]), steps);
  const gaps = steps.slice(1).map((s, i) => s - steps[i]);
  assert.ok(Math.max(...gaps) <= 64);
});

test("half of the places are chosen evenly", () => {
  assert.deepEqual(evenly([0, 1, 2, 3, 4, 5, 6, 7]).length, 5);
  assert.deepEqual(evenly([5]), [0]);
});

test("the sample at a step is the newest that is not later", () => {
  assert.equal(sampleAt([10, 20, 30], 25), 1);
  assert.equal(sampleAt([10, 20, 30], 5), -1);
  assert.equal(sampleAt([10, 20, 30], NaN), 2);
});

test("rows that come later have no value in earlier samples", () => {
  const run = openRun(record());
  addChanges(run, { strips: { update: sample(1, ["a"], [[0.5]]) } });
  addChanges(run, { strips: { update: sample(2, ["a", "b"], [[0.25], [0.125]]) } });
  const strips = run.strips.get("update");
  assert.equal(statistic(strips, 0, 1, "ratio"), null);
  assert.equal(statistic(strips, 1, 1, "ratio"), 0.125);
  assert.equal(statistic(strips, -1, 0, "ratio"), null);
  assert.equal(firstMeasured(strips, 1), 2);
  assert.deepEqual(pathsOf(run), ["a", "b"]);
});

test("NaN means NaN: a row without one finite element has it, a row that was not measured has null", () => {
  const run = openRun(record());
  const none = [NaN, NaN, NaN, NaN, NaN, NaN];
  addChanges(run, { strips: { return: sample(7, ["a", "b"], [[NaN, NaN, NaN, NaN, 12, 0], none]) } });
  const strips = run.strips.get("return");
  assert.ok(Number.isNaN(statistic(strips, 0, 0, "mean")));
  assert.equal(statistic(strips, 0, 0, "nonfinite"), 12);
  for (const field of strips.fields) assert.equal(statistic(strips, 0, 1, field), null);
  assert.equal(firstMeasured(strips, 0), 7);
  assert.equal(firstMeasured(strips, 1), null);
  assert.equal(wrongWith(run, "b", NaN), "");
});

test("small curves share the axis from the first to the last step at which anything was measured", () => {
  const run = openRun(record());
  addChanges(run, { strips: { update: sample(3, ["a"], [[1]]), weight: sample(9, ["a"], [[2]]) } });
  assert.deepEqual(measuredRange(run), [3, 9]);
});

test("what is not finite is named", () => {
  const run = openRun(record());
  addChanges(run, { strips: { weight: sample(1, ["a", "b"], [[0, 1, -1, 1, 0, 0], [0, 1, -1, 1, 12, 0]]) } });
  assert.equal(wrongWith(run, "a", NaN), "");
  assert.equal(wrongWith(run, "b", NaN), "weight non-finite 12");
});

test("messages that repeat are counted in place, and logged things are joined by step", () => {
  const run = openRun(record({ messages: [{ step: 1, kind: "error", text: "x", detail: "", times: 1, number: 1 }], media: [{ name: "text", n: 1, entries: [{ step: 1, html: "a" }] }] }));
  addChanges(run, { messages: [{ step: 2, kind: "error", text: "x", detail: "", times: 2, number: 1 }, { step: 2, kind: "note", text: "y", detail: "", times: 1, number: 2 }] });
  assert.deepEqual(run.messages.map((m) => [m.text, m.times]), [["x", 2], ["y", 1]]);
  addChanges(run, { media: [{ name: "text", n: 2, entries: [{ step: 1, html: "a2" }, { step: 5, html: "b" }] }] });
  assert.deepEqual(run.media[0].entries.map((e) => e.html), ["a2", "b"]);
});

test("a control that is moved on is one message, whose words change", () => {
  const moved = (to, more = []) => ({ messages: [{ step: 3, kind: "note", text: `rate: 1 → ${to}`, detail: "", times: 1, number: 1 }, ...more] });
  const run = openRun(record({ messages: [] }));
  for (const to of [2, 3, 4]) addChanges(run, moved(to));
  addChanges(run, moved(4, [{ step: 4, kind: "note", text: "paused", detail: "", times: 1, number: 2 }]));
  assert.deepEqual(run.messages.map((m) => m.text), ["rate: 1 → 4", "paused"]);
});

test("a pointer means the extreme within a few pixels, else the nearest point", () => {
  const steps = Float64Array.from({ length: 4000 }, (_, k) => k + 1);
  const values = Float32Array.from(steps, (s) => (s === 701 ? 5 : 1 + (s % 7) / 100));
  const frame = { x: (s) => ((s - 1) / 3999) * 772, step: (x) => 1 + (x / 772) * 3999, y: (v) => 130 - 20 * v };
  assert.equal(stepUnder([{ steps, values }], frame, frame.x(701) + 3), 701);
  assert.notEqual(stepUnder([{ steps, values }], frame, frame.x(701) + 40), 701);
  const few = { steps: Float64Array.of(1, 11, 21), values: Float32Array.of(1, 1.1, NaN) };
  const wide = { x: (s) => s * 20, step: (x) => x / 20, y: (v) => 130 - 20 * v };
  assert.equal(stepUnder([few], wide, 130), 11);
  assert.equal(stepUnder([few], wide, 110), 1);
  assert.equal(stepUnder([few], wide, 418), 21);
  assert.equal(stepUnder([], wide, 100), 5);
});
