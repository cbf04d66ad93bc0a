import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { bytes, changed, code, count, number, seconds, tsv } from "../../../nbmodule/views/frontend/format.js";

const cases = JSON.parse(readFileSync(new URL("../format_cases.json", import.meta.url), "utf-8"));
const functions = { count, bytes, number, seconds };

for (const [name, rows] of Object.entries(cases)) {
  test(`${name} is spelled as Python spells it`, () => {
    for (const [value, text] of rows) assert.equal(functions[name](value), text);
  });
}

test("numbers that JSON cannot hold have words", () => {
  assert.deepEqual([NaN, Infinity, -Infinity].map((x) => number(x)), ["NaN", "∞", "-∞"]);
});

test("a path is copied as Python that works", () => {
  assert.equal(code("model", ["layers", "0", "weight"]), "model.layers[0].weight");
  assert.equal(code("model", ['a"b', "größe"]), 'model["a\\"b"].größe');
});

test("steps of a PyTree are copied as its container spells them", () => {
  assert.equal(code("state", ["a", "0"], { a: "['a']" }), "state['a'][0]");
  assert.equal(code("state", ["toString"], {}), "state.toString");
});

test("a cell with a tab does not add a column", () => {
  assert.equal(tsv([["a\tb", "c"], ["d", "e\nf"]]), "a b\tc\nd\te f");
});

test("a change of the mean that six digits cannot tell is no figure", () => {
  assert.equal(changed({ m: 1.23456, s: 2 }, { m: 1.23456, s: 1 }), "+0, ×2");
  assert.equal(changed({ m: 1.23456, s: 1 }, { m: 1.23457, s: 1 }), "≈0, ×1");
  assert.equal(changed({ m: 1.2346, s: 1 }, { m: 1.23446, s: 1 }), "+0.0001, ×1");
  assert.equal(changed({ m: 0, s: 1 }, { m: 0, s: 1 }), "+0, ×1");
  assert.equal(changed({ m: 3, s: 1 }, { m: 1, s: 4 }), "+2, ×0.25");
});
