// Parses .npy files as written by numpy.save, versions 1 to 3, with numbers of any width and byte order.

import { decodeHalf } from "../state/tensors.js";

const MAGIC = "\x93NUMPY";
// bytes; the same limit as numpy's
const MAX_HEADER_LENGTH = 10_000;
const READERS = {
  f2: (view, at, littleEndian) => decodeHalf(view.getUint16(at, littleEndian)),
  f4: (view, at, littleEndian) => view.getFloat32(at, littleEndian),
  f8: (view, at, littleEndian) => view.getFloat64(at, littleEndian),
  i1: (view, at) => view.getInt8(at),
  i2: (view, at, littleEndian) => view.getInt16(at, littleEndian),
  i4: (view, at, littleEndian) => view.getInt32(at, littleEndian),
  i8: (view, at, littleEndian) => toNumber(view.getBigInt64(at, littleEndian)),
  u1: (view, at) => view.getUint8(at),
  u2: (view, at, littleEndian) => view.getUint16(at, littleEndian),
  u4: (view, at, littleEndian) => view.getUint32(at, littleEndian),
  u8: (view, at, littleEndian) => toNumber(view.getBigUint64(at, littleEndian)),
  b1: (view, at) => view.getUint8(at) !== 0,
};

/**
 * Parse a file. Returns its shape, its `kind` ("f", "i", "u" or "b"), and `values(start, count)`, which
 * returns values in C order whatever the order in the file. Throws an Error that says what is wrong.
 *
 * @param {ArrayBuffer} buffer
 * @returns {{shape: number[], kind: string, values: (start: number, count: number) => (number|boolean)[]}}
 */
export function parseNpy(buffer) {
  const bytes = new Uint8Array(buffer);
  if (decodeLatin1(bytes.subarray(0, 6)) !== MAGIC || bytes.length < 12) {
    throw new Error("expected the header of a .npy file, got other bytes");
  }
  const view = new DataView(buffer);
  const version = bytes[6];
  if (version < 1 || version > 3) throw new Error(`expected version 1 to 3 of .npy, got ${version}`);
  // a damaged header may claim any length
  const [size, headerStart] = version === 1 ? [view.getUint16(8, true), 10] : [view.getUint32(8, true), 12];
  if (size > MAX_HEADER_LENGTH) {
    throw new Error(`expected a header of at most ${MAX_HEADER_LENGTH} bytes, got one of ${size}`);
  }
  const { order, type, width, fortran, shape } = parseHeader(
    decodeLatin1(bytes.subarray(headerStart, headerStart + size)),
  );
  const start = headerStart + size;
  const count = shape.reduce((product, dim) => product * dim, 1);
  if (bytes.length - start !== count * width) {
    throw new Error(
      `expected ${count * width} bytes for shape [${shape.join(", ")}], got ${bytes.length - start}`,
    );
  }
  const readValue = READERS[type];
  const indexInFile = fortran ? fortranIndex(shape) : (index) => index;
  const values = (first, length) =>
    Array.from({ length }, (_, i) => readValue(view, start + indexInFile(first + i) * width, order !== ">"));
  return { shape, kind: type[0], values };
}

function parseHeader(text) {
  const descr = /'descr':\s*('[^']*'|[^,}]*)/.exec(text)?.[1] ?? "nothing";
  const fortran = /'fortran_order':\s*(True|False)/.exec(text)?.[1];
  const shape = /'shape':\s*\(([\d\s,L]*)\)/.exec(text)?.[1];
  if (fortran === undefined || shape === undefined) {
    throw new Error("expected a header with fortran_order and shape, got one without");
  }
  const [, order, type] = /^'([<>|=]?)(\w\d+)'$/.exec(descr) ?? [];
  if (!Object.hasOwn(READERS, type ?? "")) {
    throw new Error(`expected values of type f2 to f8, i1 to i8, u1 to u8 or b1, got ${descr}`);
  }
  return {
    order,
    type,
    width: Number(type.slice(1)),
    fortran: fortran === "True",
    shape: (shape.match(/\d+/g) ?? []).map(Number),
  };
}

/** Maps an index in C order to the index in a file in Fortran order. */
function fortranIndex(shape) {
  return (index) => {
    let indexInFile = 0;
    let remaining = index;
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      const step = shape.slice(0, axis).reduce((product, dim) => product * dim, 1);
      indexInFile += (remaining % shape[axis]) * step;
      remaining = Math.floor(remaining / shape[axis]);
    }
    return indexInFile;
  };
}

function decodeLatin1(bytes) {
  return String.fromCharCode(...bytes);
}

function toNumber(value) {
  const number = Number(value);
  if (!Number.isSafeInteger(number)) throw new Error(`expected whole numbers within 2^53, got ${value}`);
  return number;
}
