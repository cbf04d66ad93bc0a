import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { bytes, code, count, number, seconds, tsv } from "../../../nbmodule/views/page/format.js";

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
