import assert from "node:assert/strict";
import test from "node:test";

import { decodeHalf, parseTensors, tensorRequest, toTypedArray } from "../../service/dashboard/state/tensors.js";

const encode = (answer, ...parts) => {
  const json = new TextEncoder().encode(JSON.stringify(answer));
  const bytes = parts.flatMap((part) => [...new Uint8Array(part.buffer)]);
  return [Uint8Array.from([...json, ...bytes]).buffer, json.length];
};

test("half precision: subnormal, largest, infinite and NaN", () => {
  for (const [bits, value] of [
    [0x0001, 2 ** -24],
    [0x03ff, (1023 / 1024) * 2 ** -14],
    [0x0400, 2 ** -14],
    [0x3c00, 1],
    [0xc500, -5],
    [0x7bff, 65_504],
    [0x7c00, Infinity],
    [0xfc00, -Infinity],
    [0x7e00, NaN],
    [0x8000, -0],
  ])
    assert.ok(Object.is(decodeHalf(bits), value), bits.toString(16));
});

test("bytes follow the JSON in the order of its tensors, at any offset", () => {
  const tensor = (name, datatype, part) => ({ name, datatype, shape: [1], parameters: { binary_data_size: part.byteLength } });
  const [flags, halves, wide, doubles] = [Uint8Array.of(1, 0, 1), Uint16Array.of(0x3c00), BigInt64Array.of(-5n), Float64Array.of(1e21, -0)];
  const [buffer, size] = encode(
    {
      outputs: [tensor("flags", "BOOL", flags), { name: "words", datatype: "BYTES", shape: [2], data: [["a"], ["b"]] }],
      tensors: [tensor("halves", "FP16", halves), tensor("wide", "INT64", wide)],
      lesioned: { outputs: [tensor("doubles", "FP64", doubles)] },
    },
    flags, halves, wide, doubles,
  );
  const { outputs, tensors, lesioned } = parseTensors(buffer, String(size));
  assert.deepEqual(outputs[0].data, flags);
  assert.deepEqual(outputs[1].data, ["a", "b"]);
  assert.deepEqual(tensors[0].data, Float32Array.of(1));
  assert.deepEqual(tensors[1].data, wide);
  assert.deepEqual(lesioned.outputs[0].data, doubles);
});

test("JSON alone has no header with its length", () => {
  const [buffer] = encode({ outputs: [{ name: "y", datatype: "INT64", shape: [1, 2], data: [[1, 2]] }] });
  assert.deepEqual(parseTensors(buffer, null).outputs[0].data, BigInt64Array.of(1n, 2n));
});

test("a row without blanks is JSON, one with blanks has bytes behind it", async () => {
  const row = (data) => [{ name: "x", datatype: "FP32", shape: [1, data.length], data }];
  const plain = tensorRequest(row([1, 2]), { id: "7" });
  assert.deepEqual(JSON.parse(plain.content), { inputs: row([1, 2]), id: "7" });
  const wide = [{ name: "x", datatype: "INT64", shape: [1], data: BigInt64Array.of(3n) }];
  assert.deepEqual(JSON.parse(tensorRequest(wide, {}).content).inputs[0].data, [3]);
  const { content, headers } = tensorRequest(row([1, NaN]), { id: "7" });
  const bytes = await content.arrayBuffer();
  const size = Number(headers["Inference-Header-Content-Length"]);
  const { inputs, id } = JSON.parse(new TextDecoder().decode(bytes.slice(0, size)));
  assert.deepEqual(inputs, [{ name: "x", datatype: "FP32", shape: [1, 2], parameters: { binary_data_size: 8 } }]);
  assert.equal(id, "7");
  assert.deepEqual(new Float32Array(bytes.slice(size)), Float32Array.of(1, NaN));
});

test("typed arrays of whole numbers, and of types without one", () => {
  assert.deepEqual(toTypedArray("UINT64", [1, 2]), BigUint64Array.of(1n, 2n));
  assert.deepEqual(toTypedArray("BOOL", [true, false]), Uint8Array.of(1, 0));
  assert.deepEqual(toTypedArray("FP16", [0.5]), Float32Array.of(0.5));
});
