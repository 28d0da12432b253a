import assert from "node:assert/strict";
import test from "node:test";

import { parseNpy } from "../../service/dashboard/inputs/npy_parser.js";

/** A file with this header, whose length has two bytes in version 1 and four in the others. */
function npy({ version = 1, descr = "<f4", fortran = "False", shape = "(2,)", bytes = [], header }) {
  const text = header ?? `{'descr': '${descr}', 'fortran_order': ${fortran}, 'shape': ${shape}, }\n`;
  const length = version === 1 ? [text.length & 255, text.length >> 8] : [text.length & 255, text.length >> 8, 0, 0];
  const codes = [...text].map((letter) => letter.charCodeAt(0));
  return Uint8Array.from([0x93, ..."NUMPY".split("").map((letter) => letter.charCodeAt(0)), version, 0, ...length, ...codes, ...bytes]).buffer;
}

const ONE_TWO = [0, 0, 128, 63, 0, 0, 0, 64];

test("each version of the header is read", () => {
  for (const version of [1, 2, 3])
    assert.deepEqual(parseNpy(npy({ version, bytes: ONE_TWO })).values(0, 2), [1, 2]);
  assert.throws(() => parseNpy(npy({ version: 4, bytes: ONE_TWO })), /expected version 1 to 3 of \.npy, got 4/);
});

test("bytes may be in either order", () => {
  assert.deepEqual(parseNpy(npy({ descr: ">f4", bytes: [63, 128, 0, 0, 64, 0, 0, 0] })).values(0, 2), [1, 2]);
  assert.deepEqual(parseNpy(npy({ descr: ">i2", bytes: [1, 0, 255, 255] })).values(0, 2), [256, -1]);
  assert.deepEqual(parseNpy(npy({ descr: "<i2", bytes: [1, 0, 255, 255] })).values(0, 2), [1, -1]);
});

test("Fortran's order is turned into that of C", () => {
  const file = { descr: "|u1", fortran: "True", shape: "(2, 3)", bytes: [1, 4, 2, 5, 3, 6] };
  assert.deepEqual(parseNpy(npy(file)).values(0, 6), [1, 2, 3, 4, 5, 6]);
  assert.deepEqual(parseNpy(npy(file)).values(3, 2), [4, 5]);
});

test("a scalar, an empty array, and Python 2's long numbers", () => {
  assert.deepEqual(parseNpy(npy({ descr: "|u1", shape: "()", bytes: [9] })).values(0, 1), [9]);
  assert.deepEqual(parseNpy(npy({ shape: "(0, 3)" })).shape, [0, 3]);
  assert.deepEqual(parseNpy(npy({ shape: "(2L,)", bytes: ONE_TWO })).shape, [2]);
});

test("special numbers", () => {
  const halves = parseNpy(npy({ descr: "<f2", shape: "(5,)", bytes: [0, 0x7c, 0, 0xfc, 1, 0x7e, 0, 0x80, 1, 0] }));
  assert.deepEqual(halves.values(0, 5), [Infinity, -Infinity, NaN, -0, 2 ** -24]);
  const wide = [255, 255, 255, 255, 255, 255, 31, 0];
  assert.deepEqual(parseNpy(npy({ descr: "<u8", shape: "(1,)", bytes: wide })).values(0, 1), [2 ** 53 - 1]);
  wide[6] = 32;
  assert.throws(() => parseNpy(npy({ descr: "<u8", shape: "(1,)", bytes: wide })).values(0, 1), /within 2\^53/);
});

test("too few and too many bytes are refused", () => {
  for (const bytes of [ONE_TWO.slice(1), [...ONE_TWO, 0], []])
    assert.throws(() => parseNpy(npy({ bytes })), { message: `expected 8 bytes for shape [2], got ${bytes.length}` });
  assert.throws(() => parseNpy(npy({ shape: "(99999999999, 99999999999)", bytes: ONE_TWO })), /got 8$/);
});

test("objects, texts, records and complex numbers are refused", () => {
  for (const descr of ["|O", "<U3", "<c8", "|V4", "<f16"])
    assert.throws(() => parseNpy(npy({ descr, bytes: ONE_TWO })), { message: `expected values of type f2 to f8, i1 to i8, u1 to u8 or b1, got '${descr}'` });
});

test("damaged headers are refused", () => {
  const without = (message) => ({ message });
  assert.throws(() => parseNpy(new ArrayBuffer(0)), without("expected the header of a .npy file, got other bytes"));
  assert.throws(() => parseNpy(npy({ header: "{'descr': '<f4', 'shape': (2,)}", bytes: ONE_TWO })), /with fortran_order and shape/);
  assert.throws(() => parseNpy(npy({ shape: "(-1,)", bytes: ONE_TWO })), /with fortran_order and shape/);
  assert.throws(() => parseNpy(npy({ header: " ".repeat(10_001) })), /a header of at most 10000 bytes, got one of 10001/);
});
