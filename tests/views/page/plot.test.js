import assert from "node:assert/strict";
import { test } from "node:test";
import "./window.js";
const { EDGE, beyond, emptyPlot, frameOf } = await import("../../../nbmodule/views/frontend/plot.js");

test("what a plot cannot show is marked at its step, with its value", () => {
  const frame = frameOf(400, 160, [0, 5], [0, 1], false);
  const marks = beyond([0, 1, 2, 3, 4, 5], [0.5, 40, 0.5, NaN, 0.2, 2.85], frame);
  assert.deepEqual(marks.map((node) => node.textContent.replace(/at step.*/, "")), ["▲40 ", "NaNNaN ", "▲2.85 "]);
  assert.deepEqual(marks.map((node) => Number(node.getAttribute("x"))), [1, 3, 5].map(frame.x));
  assert.equal(beyond([0, 1], [0.9, 1], frame).length, 0);
});

test("the last step of an axis is written within the drawing", () => {
  const frame = frameOf(400, 160, [0, 4000], [0, 1], false);
  const { drawing } = emptyPlot(frame, "loss");
  const last = [...drawing.querySelectorAll("text")].find((node) => node.textContent === "4,000");
  assert.equal(last.getAttribute("text-anchor"), "end");
  assert.equal(Number(last.getAttribute("x")), frame.width + EDGE.left + EDGE.right);
});
