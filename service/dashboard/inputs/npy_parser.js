// The files that numpy.save writes, versions 1 to 3: numbers of any width and either byte order.

import { decodeHalf } from "../state/tensors.js";

const MAGIC = "\x93NUMPY";
// as numpy itself reads
const LONGEST_HEADER = 10_000;
const KINDS = {
  f2: (view, at, little) => decodeHalf(view.getUint16(at, little)),
  f4: (view, at, little) => view.getFloat32(at, little),
  f8: (view, at, little) => view.getFloat64(at, little),
  i1: (view, at) => view.getInt8(at),
  i2: (view, at, little) => view.getInt16(at, little),
  i4: (view, at, little) => view.getInt32(at, little),
  i8: (view, at, little) => whole(view.getBigInt64(at, little)),
  u1: (view, at) => view.getUint8(at),
  u2: (view, at, little) => view.getUint16(at, little),
  u4: (view, at, little) => view.getUint32(at, little),
  u8: (view, at, little) => whole(view.getBigUint64(at, little)),
  b1: (view, at) => view.getUint8(at) !== 0,
};

/**
 * The array of a file: its shape, `kind` ("f", "i", "u" or "b"), and `values(start, count)`, so many of its
 * values from a place on, in C order whatever the file's. An Error says what is wrong with the file.
 *
 * @param {ArrayBuffer} buffer
 * @returns {{shape: number[], kind: string, values: (start: number, count: number) => (number|boolean)[]}}
 */
export function parseNpy(buffer) {
  const bytes = new Uint8Array(buffer);
  if (latin(bytes.subarray(0, 6)) !== MAGIC || bytes.length < 12) {
    throw new Error("expected the header of a .npy file, got other bytes");
  }
  const view = new DataView(buffer);
  const version = bytes[6];
  if (version < 1 || version > 3) throw new Error(`expected version 1 to 3 of .npy, got ${version}`);
  // the length of a lying header may be anything
  const [size, begins] = version === 1 ? [view.getUint16(8, true), 10] : [view.getUint32(8, true), 12];
  if (size > LONGEST_HEADER) {
    throw new Error(`expected a header of at most ${LONGEST_HEADER} bytes, got one of ${size}`);
  }
  const { order, type, width, fortran, shape } = header(latin(bytes.subarray(begins, begins + size)));
  const start = begins + size;
  const count = shape.reduce((product, dim) => product * dim, 1);
  if (bytes.length - start !== count * width) {
    throw new Error(
      `expected ${count * width} bytes for shape [${shape.join(", ")}], got ${bytes.length - start}`,
    );
  }
  const read = KINDS[type];
  const place = fortran ? inFortranOrder(shape) : (index) => index;
  const values = (from, many) =>
    Array.from({ length: many }, (_, i) => read(view, start + place(from + i) * width, order !== ">"));
  return { shape, kind: type[0], values };
}

function header(text) {
  const descr = /'descr':\s*('[^']*'|[^,}]*)/.exec(text)?.[1] ?? "nothing";
  const fortran = /'fortran_order':\s*(True|False)/.exec(text)?.[1];
  const shape = /'shape':\s*\(([\d\s,L]*)\)/.exec(text)?.[1];
  if (fortran === undefined || shape === undefined) {
    throw new Error("expected a header with fortran_order and shape, got one without");
  }
  const [, order, type] = /^'([<>|=]?)(\w\d+)'$/.exec(descr) ?? [];
  if (!Object.hasOwn(KINDS, type ?? "")) {
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

/** Where a value lies in the file by its place in C order. */
function inFortranOrder(shape) {
  return (index) => {
    let place = 0;
    let rest = index;
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      const step = shape.slice(0, axis).reduce((product, dim) => product * dim, 1);
      place += (rest % shape[axis]) * step;
      rest = Math.floor(rest / shape[axis]);
    }
    return place;
  };
}

function latin(bytes) {
  return String.fromCharCode(...bytes);
}

function whole(value) {
  const number = Number(value);
  if (!Number.isSafeInteger(number)) throw new Error(`expected whole numbers within 2^53, got ${value}`);
  return number;
}
