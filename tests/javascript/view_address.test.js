import assert from "node:assert/strict";
import test from "node:test";

import { fitsAddress, parseView, viewToText } from "../../service/dashboard/share/view_address.js";
import { modelHash, modelIn, tabIn, withTab } from "../../service/dashboard/state/page_address.js";

const model = (...inputs) => ({
  name: "m",
  version: "1",
  inputs: inputs.map(([datatype, ...dims], n) => ({ name: `x${n}`, datatype, shape: [-1, ...dims] })),
  certificate: { text: null },
});
const rowOf = (datatype, data) => ({
  title: "drawn",
  inputs: [{ name: "x0", datatype, shape: [1, data.length], data }],
});
const shownText = (row, levers = new Map()) => viewToText({ shown: { row, levers }, kept: null });
const parsedRow = (text, ...inputs) => parseView(`#model=m/1&row=${text}`, model(...inputs)).shown.row;

test("equal neighbors are counted, and -0 is not 0", () => {
  assert.equal(shownText(rowOf("FP32", [0, 0, 0, 5, -0, -0, 0.1])), "&row=7:0*3,5,-0*2,0.1&title=drawn");
});

test("float32 numbers are as short as they can be", () => {
  assert.match(shownText(rowOf("FP32", [Math.fround(0.1), 1 / 3, 1e21, 3.4028234663852886e38])), /row=4:0\.1,0\.33333334,1e\+21,3\.4028235e\+38&/);
});

test("special numbers and wide integers are read as they were written", () => {
  const cases = [
    ["FP32", Float32Array.from([NaN, Infinity, -Infinity, -0, 1e-45])],
    ["FP64", Float64Array.from([0.1 + 0.2, 5e-324, 1e21])],
    ["INT64", BigInt64Array.from([2n ** 63n - 1n, -(2n ** 63n), 0n])],
    ["UINT64", BigUint64Array.from([2n ** 64n - 1n, 0n])],
    ["BOOL", Uint8Array.from([1, 1, 0])],
  ];
  for (const [datatype, data] of cases) {
    const text = shownText(rowOf(datatype, data));
    const { shown } = parseView(`#model=m/1${text}`, model([datatype, data.length]));
    const read = shown.row.inputs[0].data;
    assert.ok(data.every((value, place) => Object.is(value, read[place])), `${datatype}: ${text}`);
  }
});

test("titles may have any characters", () => {
  const row = { ...rowOf("FP32", [1]), title: "a&b=c#%, ü" };
  assert.equal(parseView(`#model=m/1${shownText(row)}`, model(["FP32", 1])).shown.row.title, row.title);
  assert.equal(parsedRow("1:1", ["FP32", 1]).title, "shared row");
});

test("levers, and the row that is kept beside the one that is shown", () => {
  const levers = new Map([[3, "closed"], [5, -2.5], [7, "open"]]);
  const text = viewToText({ shown: { row: rowOf("FP32", [1]), levers }, kept: { row: rowOf("FP32", [2]), levers: new Map() } });
  const { shown, kept } = parseView(`#model=m/1${text}`, model(["FP32", 1]));
  assert.deepEqual(shown.levers, levers);
  assert.deepEqual([...kept.row.inputs[0].data], [2]);
  assert.equal(viewToText({ shown: null, kept: null }), "");
  assert.deepEqual(parseView("#model=m/1", model(["FP32", 1])), { shown: null, kept: null });
});

test("axes of any length come from the address", () => {
  const { inputs } = parsedRow("2x1:1,2;3:0*3", ["FP32", -1, 1], ["INT32", 3]);
  assert.deepEqual(inputs.map(({ shape }) => shape), [[1, 2, 1], [1, 3]]);
});

test("rows that do not fit the model are refused in words", () => {
  const refused = (text, message, ...inputs) => assert.throws(() => parsedRow(text, ...inputs), { message });
  refused("2:1,2", "expected shape 3 for x0, got 2", ["FP32", 3]);
  refused("3:1,2", "expected 3 values for x0, got 2", ["FP32", 3]);
  refused("3:1,2,3,4", "expected 3 values for x0, got more", ["FP32", 3]);
  refused("3:1*999999999", "expected 3 values for x0, got more", ["FP32", 3]);
  refused("3:1*0,1,1,1", "expected numbers for x0, got 1*0", ["FP32", 3]);
  refused("3:1,0x10,1", "expected numbers for x0, got 0x10", ["FP32", 3]);
  refused("1:1;1:1", "expected 1 inputs, got 2", ["FP32", 1]);
  refused("99999999:0", "expected a shape such as 2x3 for x0, got 99999999", ["FP32", -1]);
  refused("-1:", "expected a shape such as 2x3 for x0, got -1", ["FP32", -1]);
  refused("2:1,256", "expected UINT8 numbers for x0", ["UINT8", 2]);
  refused("1:1.5", "expected INT32 numbers for x0", ["INT32", 1]);
  refused("1:1e3", "expected whole numbers, got 1e3", ["INT64", 1]);
  refused("%E0%A4%A", "expected an address without broken % escapes", ["FP32", 1]);
  refused('"text"', "expected numbers, since the model takes no text, got a text", ["FP32", 1]);
});

test("broken levers are refused", () => {
  for (const levers of ["x:open", "1:", "1:wide", "-1:open", "1"])
    assert.throws(() => parseView(`#model=m/1&row=1:1&levers=${levers}`, model(["FP32", 1])), /expected levers such as 3:closed/, levers);
});

test("a long row of equal numbers fits, one of random numbers does not", () => {
  assert.equal(fitsAddress(rowOf("FP32", new Float32Array(1_000_000))), true);
  const row = rowOf("FP64", Float64Array.from({ length: 1000 }, (_, n) => Math.sin(n)));
  assert.equal(fitsAddress(row), false);
  assert.equal(shownText(row), "");
});

test("model and tab have their places in the address", () => {
  const hash = modelHash({ name: "a/b & c%", version: "2" });
  assert.deepEqual(modelIn(hash), { name: "a/b & c%", version: "2" });
  assert.deepEqual(modelIn(`${hash}&tab=live&row=1:1`), { name: "a/b & c%", version: "2" });
  for (const broken of ["", "#", "#model=m", "#model=m/x", "#model=%E0%A4%A/1", "#row=1&model=m/1"]) assert.equal(modelIn(broken), null, broken);
  assert.equal(tabIn(withTab(hash, "live")), "live");
  assert.equal(withTab(withTab(hash, "live"), "gates"), `${hash}&tab=gates`);
  assert.equal(withTab(`${hash}&tab=live`, null), hash);
  assert.equal(tabIn("#tab=Live"), null);
});

test("the layer that is looked at is kept", () => {
  const row = rowOf("FP32", [1]);
  const text = viewToText({ shown: { row, levers: new Map([[3, "closed"]]), layer: 9 }, kept: null });
  assert.equal(text, "&row=1:1&title=drawn&levers=3:closed&layer=9");
  assert.equal(parseView(`#model=m/1${text}`, model(["FP32", 1])).shown.layer, 9);
  for (const wrong of ["", "&layer=", "&layer=x", "&layer=-1"])
    assert.equal(parseView(`#model=m/1&row=1:1${wrong}`, model(["FP32", 1])).shown.layer, null);
});
