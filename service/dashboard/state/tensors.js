// Tensors of the Open Inference Protocol: JSON, followed by the bytes of each tensor marked as binary.

/**
 * @typedef {Uint8Array|Int8Array|Int16Array|Int32Array|Uint16Array|Uint32Array|Float32Array|Float64Array
 *   |BigInt64Array|BigUint64Array} TypedArray
 */

const ARRAY_TYPES = {
  BOOL: Uint8Array,
  INT8: Int8Array,
  INT16: Int16Array,
  INT32: Int32Array,
  INT64: BigInt64Array,
  UINT8: Uint8Array,
  UINT16: Uint16Array,
  UINT32: Uint32Array,
  UINT64: BigUint64Array,
  FP32: Float32Array,
  FP64: Float64Array,
};

/**
 * The body of a request with these inputs and other fields, and its headers: JSON, followed by the bytes of tensors
 * with NaN, which JSON does not have.
 *
 * @param {import("./store.js").Tensor[]} inputs
 * @param {object} fields
 * @returns {{content: BodyInit, headers: Record<string, string>}}
 */
export function tensorRequest(inputs, fields) {
  const parts = [];
  const entries = inputs.map((tensor) => {
    if (!hasNaN(tensor)) return tensorAsJson(tensor);
    const { name, datatype, shape, data } = tensor;
    const bytes = toTypedArray(datatype, data);
    parts.push(bytes);
    return { name, datatype, shape, parameters: { binary_data_size: bytes.byteLength } };
  });
  const json = JSON.stringify({ inputs: entries, ...fields });
  if (parts.length === 0) return { content: json, headers: { "Content-Type": "application/json" } };
  const start = new TextEncoder().encode(json);
  return {
    content: new Blob([start, ...parts]),
    headers: {
      "Content-Type": "application/octet-stream",
      "Inference-Header-Content-Length": String(start.length),
    },
  };
}

/** Whether a tensor has NaN: a row of a table with a blank. */
export function hasNaN({ data }) {
  return data.some(Number.isNaN);
}

/** A tensor in the JSON form of the Open Inference Protocol. */
function tensorAsJson({ name, datatype, shape, data }) {
  const values = Array.from(data, (value) => (typeof value === "bigint" ? Number(value) : value));
  return { name, datatype, shape, data: values };
}

/** Parse a response; `size` is the header with the length of its JSON, null if it is JSON only. */
export function parseTensors(buffer, size) {
  const end = size === null ? buffer.byteLength : Number(size);
  const answer = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 0, end)));
  let start = end;
  for (const tensor of tensorsIn(answer)) {
    const bytes = tensor.parameters?.binary_data_size;
    if (bytes === undefined) {
      tensor.data = fromList(tensor);
    } else {
      tensor.data = fromBytes(buffer, start, bytes, tensor.datatype);
      start += bytes;
    }
  }
  return answer;
}

/** The number of values in a tensor of this shape. */
export function elementCount(shape) {
  return shape.reduce((product, dim) => product * dim, 1);
}

/** A typed array of these values. */
export function toTypedArray(datatype, values) {
  const ArrayType = ARRAY_TYPES[datatype] ?? Float32Array;
  return ArrayType.from(
    values,
    ArrayType === BigInt64Array || ArrayType === BigUint64Array ? BigInt : undefined,
  );
}

// tensors in the order of their bytes, which is that of the JSON
function tensorsIn(answer) {
  return Object.entries(answer).flatMap(([key, value]) => {
    if (key === "lesioned") return value.outputs;
    return key === "outputs" || key === "tensors" ? value : [];
  });
}

function fromList(tensor) {
  const flat = tensor.data.flat(Infinity);
  return tensor.datatype === "BYTES" ? flat : toTypedArray(tensor.datatype, flat);
}

function fromBytes(buffer, start, bytes, datatype) {
  // copied, because a typed array must start at a multiple of its element size
  const part = buffer.slice(start, start + bytes);
  if (datatype === "FP16") return Float32Array.from(new Uint16Array(part), decodeHalf);
  return new ARRAY_TYPES[datatype](part);
}

/** Decode half precision (FP16). */
export function decodeHalf(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
