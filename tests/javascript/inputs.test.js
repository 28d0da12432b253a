import assert from "node:assert/strict";
import test from "node:test";

import { cellWarnings } from "../../service/dashboard/inputs/cell_warnings.js";
import { meanFeatures, randomFeatures, readFeatureTable, roundedWithin } from "../../service/dashboard/inputs/feature_rows.js";
import { randomRow } from "../../service/dashboard/inputs/random_row.js";
import { predictionColumns } from "../../service/dashboard/inputs/scored_table.js";
import { inKnownCase, randomText, readPart, textFormatOf, unreadParts } from "../../service/dashboard/inputs/text_tensor.js";

const plain = (name, fields = {}) => ({
  name,
  unit: "",
  low: 0,
  high: 10,
  mean: 5,
  sd: 1,
  kind: "number",
  categories: [],
  date_format: "iso",
  decimal_comma: false,
  affix: "",
  blanks: false,
  ...fields,
});
const valuesOf = (text, features) => readFeatureTable(text, features).rows.map(({ values }) => values);

test("columns are found by name, in any order and among others", () => {
  assert.deepEqual(valuesOf("b,other,a\n1,x,2\n", [plain("a"), plain("b")]), [[2, 1]]);
  assert.deepEqual(valuesOf("1,2\n3,4\n", [plain("a"), plain("b")]), [[1, 2], [3, 4]]);
});

test("errors of a table name line and column", () => {
  const features = [plain("a"), plain("b")];
  const refused = (text, message) => assert.throws(() => readFeatureTable(text, features), { message });
  refused("", "expected rows, got an empty file");
  refused("a,b\n", "expected rows after the names, got none");
  refused('a,b\n"1\n",2\n3\n', "line 4: expected 2 columns, got 1");
  refused("a,b\n1,x\n", 'line 2, column "b": expected a number, got "x"');
  refused("a,b\n1,1e999\n", 'line 2, column "b": expected a number, got "1e999"');
  refused("a,c\n1,2\n", 'expected a column "b", which is missing; other columns are "c"');
});

test("a column of blanks may be missing", () => {
  const rows = valuesOf("a\n1\n", [plain("a"), plain("b", { blanks: true })]);
  assert.deepEqual(rows, [[1, NaN]]);
});

test("a column of blanks with another name is refused", () => {
  const features = [plain("age"), plain("creatinine", { blanks: true }), plain("bp", { blanks: true })];
  const header = (names) => () => valuesOf(`${names}\n1,2\n`, features);
  assert.throws(header("age,creatinin"), { message: 'expected a column "creatinine", got "creatinin": rename it, or leave it out' });
  assert.throws(header("age,Creatinine"), /got "Creatinine"/);
  assert.throws(header("age,B P"), /expected a column "bp", got "B P"/);
  // names that have nothing to do with it, and short ones that are alike by chance
  assert.deepEqual(header("age,other")(), [[1, NaN, NaN]]);
  assert.deepEqual(header("age,b2")(), [[1, NaN, NaN]]);
});

test("cells that training did not have are named", () => {
  const features = [
    plain("age", { low: 50, high: 101 }),
    plain("sex", { kind: "category", categories: ["F", "M"], high: 1 }),
    plain("died", { kind: "boolean", high: 1 }),
    plain("day", { kind: "date", low: 0, high: 10 }),
  ];
  assert.deepEqual(cellWarnings(features, [50, 1, 1, 10]), []);
  assert.deepEqual(cellWarnings(features, [101.00001, NaN, NaN, NaN]), []);
  assert.deepEqual(cellWarnings(features, [600, 2, 0, 366]), [
    "age: 600 is above 101, the highest of training",
    "sex: a word that training has not seen",
    "day: 1971-01-02 is above 1970-01-11, the highest of training",
  ]);
  const many = Array.from({ length: 5 }, (_, n) => plain(`c${n}`, { low: 0, high: 1 }));
  assert.deepEqual(cellWarnings(many, [-1, -1, -1, -1, -1]).slice(2), ["c2: −1 is below 0, the lowest of training", "2 more"]);
  // words that the file does not have
  assert.deepEqual(cellWarnings([plain("word", { kind: "category", high: 1 })], [9]), []);
});

test("more rows than the page scores are refused, as many are read", () => {
  const text = (count) => `a\n${"1\n".repeat(count)}`;
  assert.equal(valuesOf(text(100_000), [plain("a")]).length, 100_000);
  assert.throws(() => readFeatureTable(text(100_001), [plain("a")]), { message: "expected at most 100000 rows, got 100001" });
});

test("values are rounded as their range needs, and stay in it", () => {
  assert.equal(roundedWithin({ low: 0, high: 1000 }, 123.456), 123);
  assert.equal(roundedWithin({ low: 0, high: 1 }, 0.123456), 0.12);
  assert.equal(roundedWithin({ low: 0, high: 1e-6 }, 1.23456e-7), 1.2e-7);
  assert.equal(roundedWithin({ low: 0.005, high: 0.996 }, 0.9999), 0.996);
  // a column with one value
  assert.equal(roundedWithin({ low: 3, high: 3 }, 3), 3);
});

test("random rows are within the range, whatever is drawn", () => {
  const features = [plain("a", { sd: 1000 }), plain("b", { kind: "boolean", mean: 0.5 }), plain("c", { kind: "category", categories: ["x", "y"] })];
  for (const draw of [0, 0.25, 0.5, 1 - 2 ** -53]) {
    const [number, flag, word] = randomFeatures(features, () => draw);
    assert.ok(number >= 0 && number <= 10, `${draw}: ${number}`);
    assert.ok([0, 1].includes(flag) && [0, 1].includes(word), `${draw}: ${flag}, ${word}`);
  }
  assert.deepEqual(meanFeatures([plain("a"), plain("c", { kind: "category", mean: 1.6 })]), [5, 2]);
});

test("a random row of whole numbers has both ends", () => {
  const input = { name: "x", datatype: "INT8", shape: [-1, -1, 2] };
  const options = { low: -1.5, high: 2, lengths: [3] };
  assert.deepEqual(randomRow(input, options, () => 0), { dims: [3, 2], values: new Array(6).fill(-1) });
  assert.deepEqual(randomRow(input, options, () => 1 - 2 ** -53).values, new Array(6).fill(2));
});

test("the columns of a prediction", () => {
  const certificate = { task: "classes", target: "", interval: null };
  const labelled = { label: "a", probability: 0.5, probabilities: { a: 0.5, b: 0.5 }, outputs: { y: [0.5, 0.5], z: [[1], [2]] } };
  assert.deepEqual(predictionColumns(labelled, certificate), { label: "a", probability: 0.5, p_a: 0.5, p_b: 0.5, z_0_0: 1, z_1_0: 2 });
  const number = { task: "number", target: "price", interval: null };
  assert.deepEqual(predictionColumns({ value: 3, low: 0, high: 6, outputs: { y: [3] } }, number), { "predicted price": 3, low: 0, high: 6 });
  // the values alone, as earlier versions sent them
  assert.deepEqual(predictionColumns([3], number), { "predicted price": 3 });
  assert.deepEqual(predictionColumns([1, 2], certificate), { output_0: 1, output_1: 2 });
});

test("a column between whole numbers far apart has whole numbers", () => {
  assert.equal(roundedWithin({ low: 1, high: 10, mean: 5, sd: 3 }, 5.45), 5);
  assert.equal(roundedWithin({ low: 1995, high: 2003, mean: 1997, sd: 2 }, 1996.78), 1997);
  // zeros and ones
  assert.equal(roundedWithin({ low: 0, high: 1, mean: 0.01, sd: Math.sqrt(0.01 * 0.99) }, 0.01), 0);
  // numbers that were scaled
  assert.equal(roundedWithin({ low: 0, high: 1, mean: 0.4, sd: 0.2 }, 0.4), 0.4);
  assert.equal(roundedWithin({ low: -1, high: 1, mean: 0, sd: 0.5 }, 0.25), 0.25);
  assert.equal(roundedWithin({ low: 0.4, high: 10.8, mean: 1, sd: 0.5 }, 1.09), 1.1);
});

const FORMAT = {
  name: "ids",
  reads: "letters of words",
  known: ["A", "b", " "],
  words: 2,
  characters: 3,
  bytes: false,
  lower: false,
  unknown: "",
};

test("letters take the case that has an id", () => {
  assert.equal(inKnownCase(FORMAT, "aB c"), "Ab c");
  assert.equal(inKnownCase({ ...FORMAT, known: [] }, "aB"), "aB");
});

test("what is not read is said", () => {
  assert.deepEqual(unreadParts(FORMAT, "AbA Ab"), []);
  assert.deepEqual(unreadParts(FORMAT, "AxA \n b Ab"), ["Left out: x.", "Only the first 2 words are read."]);
  assert.deepEqual(unreadParts(FORMAT, "AbbA"), ["Only the first 3 characters of a word are read."]);
  // four bytes in UTF-8
  const bytes = { ...FORMAT, known: [], bytes: true };
  assert.deepEqual(unreadParts(bytes, "😀"), ["Only the first 3 bytes of a word are read."]);
});

test("marks take room of a text", () => {
  const text = { input: "ids", scheme: "characterbert", words: 5, characters: 12 };
  const { words, characters, bytes } = textFormatOf({ inputs: [{ name: "ids" }], certificate: { text, alphabet: "" } });
  assert.deepEqual([words, characters, bytes], [3, 10, true]);
  assert.equal(textFormatOf({ inputs: [{ name: "ids" }, { name: "mask" }], certificate: { text, alphabet: "" } }), null);
});

test("a random text fits", () => {
  for (const draw of [0, 0.5, 1 - 2 ** -53]) assert.deepEqual(unreadParts(FORMAT, randomText(FORMAT, () => draw)), []);
});

const VOCABULARY = { tokens: ["<pad>", "<unk>", "good", "film", "[MASK]"], padding: 0, unknown: 1, start: null, end: null, lower: true };
const formatOf = (fields, rules = {}) =>
  textFormatOf({
    inputs: [{ name: "ids" }],
    certificate: { text: { input: "ids", words: 3, characters: 1, vocabulary: { ...VOCABULARY, ...rules }, ...fields }, alphabet: "" },
  });

test("a vocabulary of words", () => {
  const format = formatOf({ scheme: "words" });
  assert.deepEqual(format.known, ["good", "film"]);
  assert.equal(readPart(format), "the first 3 words are read");
  assert.deepEqual(unreadParts(format, "Good FILM"), []);
  assert.deepEqual(unreadParts(format, "a good <unk> film"), ["Read as <unk>: a <unk>.", "Only the first 3 words are read."]);
  const leavesOut = formatOf({ scheme: "words" }, { unknown: null, lower: false });
  // what is left out takes no room
  assert.deepEqual(unreadParts(leavesOut, "a good b film c film"), ["Left out: a b c."]);
  assert.deepEqual(unreadParts(leavesOut, "Good"), ["Left out: Good."]);
  assert.equal(inKnownCase(leavesOut, "Good"), "Good");
  for (const draw of [0, 0.5, 1 - 2 ** -53]) assert.deepEqual(unreadParts(format, randomText(format, () => draw)), []);
  assert.equal(formatOf({ scheme: "words" }, { start: 0, end: 1 }).words, 1);
});

test("an alphabet for whole texts", () => {
  const rules = { tokens: ["_", "~", "a", "b", " "], end: 1, unknown: null, lower: false };
  const format = formatOf({ scheme: "characters", words: 1, characters: 5 }, rules);
  assert.deepEqual([format.known, format.characters], [["a", "b", " "], 4]);
  assert.equal(readPart(format), "the first 4 characters are read");
  assert.deepEqual(unreadParts(format, "a ba"), []);
  assert.deepEqual(unreadParts(format, "ab\tabx"), ['Left out: "\\t" x.']);
  assert.deepEqual(unreadParts(format, "ab ab"), ["Only the first 4 characters are read."]);
  assert.equal(inKnownCase(format, "AB"), "ab");
  for (const draw of [0, 0.5, 1 - 2 ** -53]) assert.deepEqual(unreadParts(format, randomText(format, () => draw)), []);
});
