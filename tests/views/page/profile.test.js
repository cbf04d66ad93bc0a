import assert from "node:assert/strict";
import { test } from "node:test";
import { placeFlame } from "../../../nbmodule/views/frontend/profile.js";

const depth = [0, 1, 1, 0, 1];
const time = (i) => [6, 4, 1, 2, 2][i];

test("each box is as wide as its time and lies below the row it is part of", () => {
  const boxes = placeFlame(depth, time, -1);
  assert.deepEqual(boxes.map((box) => box.level), depth);
  assert.deepEqual(boxes.map((box) => box.width), [0.75, 0.5, 0.125, 0.25, 0.25]);
  assert.deepEqual(boxes.map((box) => box.x), [0, 0, 0.5, 0.75, 0.75]);
});

test("an enlarged row fills the width, and nothing beside it is drawn", () => {
  const boxes = placeFlame(depth, time, 0);
  assert.deepEqual(boxes.map((box) => box.i), [0, 1, 2]);
  assert.deepEqual(boxes.map((box) => box.width), [1, 4 / 6, 1 / 6]);
  assert.deepEqual(placeFlame(depth, time, 3).map((box) => box.i), [3, 4]);
  assert.deepEqual(placeFlame(depth, time, 4).map((box) => box.width), [1]);
});

test("rows that took no time have no width", () => {
  assert.deepEqual(placeFlame([0], () => 0, -1).map((box) => box.width), [0]);
});
