import assert from "node:assert/strict";
import test from "node:test";

import { ANOTHER_WORD, canBeWritten, cellOf, hasCells, numberOf } from "../../service/dashboard/inputs/table_cells.js";

const FEATURE = {
  name: "x",
  unit: "",
  low: 0,
  high: 1,
  mean: 0,
  sd: 1,
  kind: "number",
  categories: [],
  date_format: "iso",
  decimal_comma: false,
  affix: "",
  blanks: false,
};
const feature = (fields) => ({ ...FEATURE, ...fields });

test("numbers with a point or a comma, and groups of three digits", () => {
  const point = feature({});
  for (const [text, value] of [["1,234.5", 1234.5], [" 12 345 ", 12_345], ["1e21", 1e21], ["+.5", 0.5], ["7.", 7], ["-0", -0]])
    assert.ok(Object.is(numberOf(point, text), value), text);
  const comma = feature({ decimal_comma: true });
  for (const [text, value] of [["1.234,5", 1234.5], ["1\u202f234,5", 1234.5], [",5", 0.5], ["1.234", 1234]])
    assert.equal(numberOf(comma, text), value, text);
});

test("what is no number is refused in the words of the column", () => {
  for (const text of ["1,23", "12,3456", "1.2.3", "0x10", "Infinity", "1e", "--1", "1 2"])
    assert.throws(() => numberOf(feature({}), text), { message: `expected a number, got "${text}"` });
  assert.throws(() => numberOf(feature({ decimal_comma: true }), "1.5"), /a number with a decimal comma, got "1\.5"/);
});

test("an affix stands once on either side", () => {
  const share = feature({ affix: "%" });
  for (const text of ["5%", "5 %", "%5", "5"]) assert.equal(numberOf(share, text), 5, text);
  assert.throws(() => numberOf(share, "5%%"));
  assert.throws(() => numberOf(share, "%"));
});

test("a blank is NaN, unless the column has none", () => {
  for (const text of ["", " ", "NA", "n/a", "None", "-"]) {
    assert.ok(Number.isNaN(numberOf(feature({ blanks: true }), text)), text);
    assert.throws(() => numberOf(feature({}), text), /since this column has no blanks/);
  }
  // a word may well be "none"
  const words = feature({ kind: "category", categories: ["none", "some"], blanks: true });
  assert.equal(numberOf(words, "none"), 0);
  assert.ok(Number.isNaN(numberOf(words, "NULL")));
});

test("booleans in words and numbers", () => {
  const flag = feature({ kind: "boolean" });
  for (const text of ["true", "YES", "t", "y", "1", "1.0"]) assert.equal(numberOf(flag, text), 1, text);
  for (const text of ["false", "No", "f", "n", "0", "-0"]) assert.equal(numberOf(flag, text) === 0, true, text);
  for (const text of ["2", "maybe"]) assert.throws(() => numberOf(flag, text), /expected true or false/);
});

test("the index after the last is any other word, also beside words that are called so", () => {
  const words = feature({ kind: "category", categories: ["red", ANOTHER_WORD] });
  assert.equal(numberOf(words, "blue"), 2);
  assert.equal(cellOf(words, 2), `yet ${ANOTHER_WORD}`);
  assert.equal(cellOf(words, 7), `yet ${ANOTHER_WORD}`);
  assert.equal(numberOf(words, cellOf(words, 2)), 2);
});

test("categories without words are indices, which nobody can write", () => {
  const secret = feature({ kind: "category" });
  assert.equal(cellOf(secret, 3), 3);
  assert.throws(() => numberOf(secret, "3"), /does not publish the words/);
  assert.equal(canBeWritten([feature({}), secret]), false);
});

test("a table of plain numbers has no cells", () => {
  assert.equal(hasCells([FEATURE, FEATURE]), false);
  for (const fields of [{ kind: "date" }, { blanks: true }, { decimal_comma: true }, { affix: "€" }])
    assert.equal(Boolean(hasCells([FEATURE, feature(fields)])), true);
});
