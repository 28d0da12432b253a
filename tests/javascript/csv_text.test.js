import assert from "node:assert/strict";
import test from "node:test";

import { csvText, delimiterOf, parseCsv } from "../../service/dashboard/inputs/csv_text.js";

const cellsOf = (text, delimiter) => parseCsv(text, delimiter).map(({ cells }) => cells);

test("quotes keep delimiters, line breaks and doubled quotes", () => {
  assert.deepEqual(cellsOf('a,"b, c","say ""hi"""\n"two\nlines",,"\r\n"\n'), [
    ["a", "b, c", 'say "hi"'],
    ["two\nlines", "", "\r\n"],
  ]);
});

test("lines may end in any way, and the last one in none", () => {
  for (const end of ["\n", "\r\n", "\r"]) {
    assert.deepEqual(cellsOf(["a,b", "1,2"].join(end)), [["a", "b"], ["1", "2"]]);
    assert.deepEqual(cellsOf(["a,b", "1,2", ""].join(end)), [["a", "b"], ["1", "2"]]);
  }
});

test("a byte order mark is no part of the first cell", () => {
  assert.deepEqual(cellsOf("\ufeffname\n"), [["name"]]);
  assert.deepEqual(cellsOf('\ufeff"name"\n'), [["name"]]);
});

test("numbers of lines count blank lines and those within quotes", () => {
  const records = parseCsv('a\n\n"1\r\n2\n3"\n , \nend');
  assert.deepEqual(records.map(({ line }) => line), [1, 3, 7]);
});

test("a cell at the end may be empty", () => {
  assert.deepEqual(cellsOf("a,"), [["a", ""]]);
  assert.deepEqual(cellsOf("a,\n,b"), [["a", ""], ["", "b"]]);
  assert.deepEqual(cellsOf(""), []);
  assert.deepEqual(cellsOf("\n\n"), []);
});

test("open quotes, and text behind quotes, are refused with their line", () => {
  const message = (line) => ({ message: `line ${line}: expected quotes around a whole cell, and doubled within` });
  assert.throws(() => parseCsv('a\n"b'), message(2));
  assert.throws(() => parseCsv('a\nb\n"c"d'), message(3));
  assert.throws(() => parseCsv('a "b"'), message(1));
});

test("every delimiter is found by the first line, outside quotes", () => {
  assert.equal(delimiterOf("a,b;c,d"), ",");
  assert.equal(delimiterOf("a;b;c\n1,5;2,5;3,5"), ";");
  assert.equal(delimiterOf("a\tb"), "\t");
  assert.equal(delimiterOf('"x,y,z"|b'), "|");
  assert.equal(delimiterOf("one"), ",");
  assert.equal(delimiterOf(""), ",");
});

test("a bar separates cells, and is no alternative of the pattern", () => {
  assert.deepEqual(cellsOf("a|b|\n1||3", "|"), [["a", "b", ""], ["1", "", "3"]]);
});

test("what is written is read again", () => {
  const rows = [["a,b", 'c"d"', "e\nf", "g\r", "", " h "], ["1", "-0", "ü", "\ufeff", ";", "\t"]];
  assert.deepEqual(cellsOf(csvText(rows)), rows);
  assert.equal(csvText([[1.5, true, null, -0]]), "1.5,true,null,0\n");
});

test("a long file is read", () => {
  const rows = Array.from({ length: 50_000 }, (_, n) => [String(n), `"${n}`, "x,y"]);
  assert.deepEqual(cellsOf(csvText(rows)), rows);
});
