// Tensors of the Open Inference Protocol: JSON first, then the bytes of each that is said to be binary.

const ARRAYS = {
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

/** The answer in these bytes; `size` is the header that says where its JSON ends, null where all is JSON. */
export function parseTensors(buffer, size) {
  const end = size === null ? buffer.byteLength : Number(size);
  const answer = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 0, end)));
  let start = end;
  for (const tensor of tensorsIn(answer)) {
    const bytes = tensor.parameters?.binary_data_size;
    if (bytes === undefined) {
      tensor.data = listed(tensor);
    } else {
      tensor.data = read(buffer, start, bytes, tensor.datatype);
      start += bytes;
    }
  }
  return answer;
}

/** How many values a shape has. */
export function elementCount(shape) {
  return shape.reduce((product, dim) => product * dim, 1);
}

/** An array for values of a datatype. */
export function toTypedArray(datatype, values) {
  const Kind = ARRAYS[datatype] ?? Float32Array;
  return Kind.from(values, Kind === BigInt64Array || Kind === BigUint64Array ? BigInt : undefined);
}

// the bytes come in the order in which the tensors stand in the JSON
function tensorsIn(answer) {
  return Object.entries(answer).flatMap(([key, value]) => {
    if (key === "lesioned") return value.outputs;
    return key === "outputs" || key === "tensors" ? value : [];
  });
}

function listed(tensor) {
  const flat = tensor.data.flat(Infinity);
  return tensor.datatype === "BYTES" ? flat : toTypedArray(tensor.datatype, flat);
}

function read(buffer, start, bytes, datatype) {
  // a view has to begin at a multiple of its width, and a part of an answer need not
  const part = buffer.slice(start, start + bytes);
  if (datatype === "FP16") return Float32Array.from(new Uint16Array(part), decodeHalf);
  return new ARRAYS[datatype](part);
}

/** The number whose half precision has these bits. */
export function decodeHalf(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
