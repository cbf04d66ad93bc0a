import assert from "node:assert/strict";
import { test } from "node:test";
import { Kernel } from "../../../nbmodule/views/frontend/kernel.js";

test("a view is not drawn anew while it is pressed, since its click would be lost", async () => {
  const pressed = { now: true };
  const drawn = [];
  const host = { matches: (selector) => selector === ":active" && pressed.now, nbmMount: () => drawn.push(1) };
  const kernel = new Kernel(host, null, () => {}, { view: "k", changed: false, steps: [], left: 0 }, 0);
  kernel.draw(null);
  await new Promise((resolve) => setTimeout(resolve, 120));
  assert.equal(drawn.length, 0);
  pressed.now = false;
  while (!drawn.length) await new Promise((resolve) => setTimeout(resolve, 10));
  assert.equal(drawn.length, 1);
});
