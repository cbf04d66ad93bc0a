import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Forms, itemAt, itemsIn, rootItem } from "../../../nbmodule/views/frontend/graph_forms.js";
import { Placer, noise } from "../../../nbmodule/views/frontend/graph_place.js";
import { curve, nearest, reach, sceneOf } from "../../../nbmodule/views/frontend/graph_scene.js";
import { numberOf, returnOf, wordsOf } from "../../../nbmodule/views/frontend/graph_words.js";

const data = JSON.parse(readFileSync(new URL("graph_fixture.json", import.meta.url), "utf-8"));
const forms = new Forms(data);
const root = rootItem(forms);
const at = (place) => itemAt(forms, root, place);
const scene = (...places) => sceneOf(new Placer(forms, true, 0), root, new Set(places.map((place) => at(place).key)));
const box = (drawn, place) => drawn.byKey.get(at(place).key);
const ends = (drawn) => drawn.lines.map((line) => `${line.source.item.child.name} > ${line.target.item.child.name}`);

test("a folded scene has one box for each child, from above to below", () => {
  const drawn = scene();
  assert.equal(drawn.boxes.length, 6);
  assert.deepEqual(ends(drawn).sort(), ["encoder > scan", "head > output.0", "head > output.1", "scan > head", "x > encoder"]);
  assert.ok(box(drawn, "0").y < box(drawn, "1").y && box(drawn, "1").y < box(drawn, "2").y);
});

test("an open group frames what is inside", () => {
  const drawn = scene("2");
  const [frame, inner] = [box(drawn, "2"), box(drawn, "2/1")];
  assert.ok(frame.open && !inner.open);
  assert.ok(frame.x <= inner.x && inner.x + inner.width <= frame.x + frame.width);
  assert.ok(ends(drawn).includes("encoder > carry in") && ends(drawn).includes("carry out > head"));
});

test("lines that leave a box are found from it, and those that reach it too", () => {
  const drawn = scene();
  assert.equal(drawn.from.get(box(drawn, "3")).length, 2);
  assert.equal(drawn.into.get(box(drawn, "3")).length, 1);
});

test("two steps around a box are lit, and all of its inputs on demand", () => {
  const drawn = scene();
  const up = reach(drawn, box(drawn, "3"), "into", 2);
  assert.deepEqual([...up.boxes].map(([b, step]) => [b.item.child.name, step]), [["scan", 1], ["encoder", 2]]);
  assert.equal(reach(drawn, box(drawn, "3"), "into").boxes.size, 3);
  assert.equal(reach(drawn, box(drawn, "0"), "from").boxes.size, 5);
});

test("what an open group depends on is what its inside depends on", () => {
  const drawn = scene("2");
  assert.deepEqual([...reach(drawn, box(drawn, "2"), "into", 1).boxes.keys()].map((b) => b.item.child.name).includes("encoder"), true);
});

test("the arrow keys find the nearest box in a direction", () => {
  const drawn = scene();
  assert.equal(nearest(drawn, box(drawn, "0"), "down"), box(drawn, "1"));
  assert.equal(nearest(drawn, box(drawn, "1"), "up"), box(drawn, "0"));
  assert.equal(nearest(drawn, box(drawn, "4"), "right"), box(drawn, "5"));
  assert.equal(nearest(drawn, box(drawn, "0"), "up"), null);
});

test("lines lead out of a group that fills the picture", () => {
  const drawn = sceneOf(new Placer(forms, true, 0), at("2"), new Set());
  assert.equal(drawn.ends.length, 2);
});

test("a line is straight along its posts and curved between them", () => {
  assert.equal(curve([[0, 0, 10], [20, 30, 40]]), "M0 0V10C0 20 20 20 20 30V40");
  assert.equal(curve([[5, 0, 10], [5, 30, 40]]), "M5 0V40");
});

test("noise is between -1 and 1 and always the same", () => {
  for (let i = 0; i < 1000; i++) assert.ok(Math.abs(noise(i, 3 * i)) <= 1);
  assert.equal(noise(7, 11), noise(7, 11));
});

test("equal forms that are open alike share one frame", () => {
  const placer = new Placer(forms, true, 0);
  const members = itemsIn(forms, at("1/0")).map((item) => item.key);
  sceneOf(placer, root, new Set([at("1").key, at("1/0").key, ...members]));
  assert.equal(placer.frames.size, 4);
});

test("boxes are colored by cost, by time, and a run by its largest member", () => {
  assert.equal(numberOf(forms, at("1"), "flops"), 72);
  assert.equal(numberOf(forms, at("0"), "flops"), null);
  assert.equal(numberOf(forms, at("3"), "time"), 0.002);
  const own = new Forms({ ...data, numbers: { "encoder.layers.1": 5, "encoder.layers.3": 7 } });
  assert.equal(numberOf(own, itemAt(own, rootItem(own), "1/0"), "value"), 7);
});

test("returns belong to submodules by path and call", () => {
  const { text, bad, bars } = /** @type {NonNullable<ReturnType<typeof returnOf>>} */ (returnOf(forms, at("3")));
  assert.deepEqual([text, bad, bars[0], bars[15]], ["0.25 ± 1.5", 3, 1, 1]);
  assert.equal(returnOf(forms, at("1")), null);
});

test("the hover text says what goes in and out only where it was asked for", () => {
  const about = { ins: ["[2, 3] from x"], outs: ["float32[2, 3]"] };
  assert.ok(wordsOf(forms, at("1"), about).includes("in: [2, 3] from x"));
  const quiet = new Forms({ ...data, ins: 0, outs: 0 });
  assert.ok(!wordsOf(quiet, itemAt(quiet, rootItem(quiet), "1"), about).includes("[2, 3]"));
});
