import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Forms, itemAt, itemsIn, rootItem, search } from "../../../nbmodule/views/frontend/graph_forms.js";

const data = JSON.parse(readFileSync(new URL("graph_fixture.json", import.meta.url), "utf-8"));
const forms = new Forms(data);
const root = rootItem(forms);
const names = (item) => itemsIn(forms, item).map((below) => below.child.name);

test("the root holds the inputs, the groups and the outputs in the order of the program", () => {
  assert.deepEqual(names(root), ["x", "encoder", "scan", "head", "output.0", "output.1"]);
});

test("a run of equal neighbors holds its members, all of one form", () => {
  const [run] = itemsIn(forms, itemAt(forms, root, "1"));
  assert.equal(run.child.kind, "run");
  assert.deepEqual(names(run), ["layers.0", "layers.1", "layers.2", "layers.3"]);
  assert.equal(new Set(itemsIn(forms, run).map((item) => item.child.form)).size, 1);
});

test("a path grows with submodules only", () => {
  assert.equal(itemAt(forms, root, "1/0").path, "encoder");
  assert.equal(itemAt(forms, root, "1/0/2").path, "encoder.layers.2");
  assert.equal(itemAt(forms, root, "2").path, "");
});

test("a shared submodule has its one path, whoever calls it, and so has all below it", () => {
  const shared = new Forms({ ...data, aliases: { "encoder.layers.1": "encoder.layers.0" } });
  assert.equal(itemAt(shared, rootItem(shared), "1/0/1").path, "encoder.layers.0");
  assert.equal(itemAt(shared, rootItem(shared), "1/0/2").path, "encoder.layers.2");
});

test("keys are made of names, so that they outlive a change of the data", () => {
  assert.equal(itemAt(forms, root, "1/0/2").key, "/encoder#0/layers 0…3#0/layers.2#0");
  const keys = itemsIn(forms, itemAt(forms, root, "3")).map((item) => item.key);
  assert.equal(new Set(keys).size, keys.length);
});

test("an operation knows its values and its cost", () => {
  const [sin] = itemsIn(forms, itemAt(forms, root, "1/0/0"));
  assert.deepEqual(forms.value(sin.child, 0), { text: "float32[2, 3]", bytes: 24 });
  const record = forms.record(sin.child.record);
  assert.deepEqual([record.operation, record.flops, record.dead], ["sin", 6, false]);
});

test("a search finds every place of a repeated operation", () => {
  assert.equal(search(forms, root, "sin").length, 4);
  assert.deepEqual(search(forms, root, "layers.2").map((item) => item.path), ["encoder.layers.2"]);
});

test("all words of a search must occur", () => {
  assert.equal(search(forms, root, "reduce axes").length, 2);
  assert.equal(search(forms, root, "reduce nothing").length, 0);
  assert.equal(search(forms, root, "  ").length, 0);
});

test("a search stops where enough is found", () => {
  assert.equal(search(forms, root, "a", 3).length, 3);
});
