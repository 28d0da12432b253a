import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { openingSample } from "../../service/dashboard/inputs/opening_sample.js";
import { findFlips } from "../../service/dashboard/road/flip_search.js";

const { fetch } = globalThis;
afterEach(() => (globalThis.fetch = fetch));

/** Answer each request with what `answer` returns for its path and body; returns the list of the requests. */
function answerWith(answer) {
  const requests = [];
  globalThis.fetch = async (path, { body }) => {
    requests.push({ path, body: JSON.parse(body) });
    return new Response(JSON.stringify(answer(path, JSON.parse(body))));
  };
  return requests;
}

const MODEL = {
  name: "m",
  version: "1",
  path: "v2/models/m/versions/1",
  gates: [{ name: "T" }],
  certificate: { features: [], distribution: "probabilities", labels: ["no", "yes"], task: "classes" },
};
const row = (...data) => ({ title: "row", inputs: [{ name: "x", datatype: "FP32", shape: [1, data.length], data }] });
const effect = (layer, flipped, change) => ({ layer, flipped, change });

async function flipsOf(...layers) {
  const requests = answerWith(() => ({ curve: { layers } }));
  const flips = await findFlips(MODEL, row(1), undefined);
  assert.deepEqual(requests.map(({ path, body }) => [path, body.curve]), [["v2/models/m/versions/1/lesion", true]]);
  return flips;
}

test("of the layers that flip the answer, the one that takes most from it comes first", async () => {
  const flips = await flipsOf(effect(0, 0, -0.9), effect(1, 1, -0.5), effect(2, 1, -0.7), effect(3, 1, -0.7));
  assert.deepEqual(flips, { flipping: [1, 2, 3], strongest: 2, change: -0.7 });
});

test("if none flips it, the layer with the largest change is named", async () => {
  assert.deepEqual(await flipsOf(effect(0, 0, 0.1), effect(1, 0, -0.2)), { flipping: [], strongest: 1, change: -0.2 });
  assert.deepEqual(await flipsOf(effect(0, 0, 0)), { flipping: [], strongest: 0, change: 0 });
});

test("layers that cannot be closed are left out", async () => {
  assert.deepEqual(await flipsOf(effect(0, 0, null), effect(1, 1, -0.1)), { flipping: [1], strongest: 1, change: -0.1 });
  assert.deepEqual(await flipsOf(effect(0, 0, null)), { flipping: [], strongest: null, change: 0 });
});

test("the page begins with the sample and the layer whose closing takes most", async () => {
  const requests = answerWith((_, { close, curve }) => {
    if (curve) return { curve: { layers: [effect(0, 1, -0.1), effect(1, 0, -0.9), effect(2, 2, -0.3)] } };
    const change = close[0] === 2 ? [-0.2, -0.6] : [-0.9, -0.5];
    return { lesion: { by_row: { flipped: close[0] === 2 ? [true, true] : [false, true], change, label: { after: ["no", "yes"] } } } };
  });
  const opening = await openingSample(MODEL, [row(1), row(2)], new AbortController().signal);
  // layer 0 takes 0.9 from row 0, but does not flip it
  assert.deepEqual(opening, { index: 1, layer: 2, after: "yes" });
  assert.deepEqual(requests.map(({ body }) => body.close), [undefined, [2], [0]]);
  assert.deepEqual(requests[0].body.inputs[0], { name: "x", datatype: "FP32", shape: [2, 1], data: [1, 2] });
});

test("a table begins with the least certain sample", async () => {
  answerWith((path) =>
    path.endsWith("infer")
      ? { outputs: [{ name: "y", datatype: "FP32", shape: [3, 2], data: [0.9, 0.1, 0.45, 0.55, 0.3, 0.7] }] }
      : { curve: { layers: [] } },
  );
  const table = { ...MODEL, certificate: { ...MODEL.certificate, features: [{}] } };
  const opening = await openingSample(table, [row(1), row(2), row(3)], new AbortController().signal);
  assert.deepEqual(opening, { index: 1, layer: null, after: "" });
});

test("samples of different sizes are not joined, so the first is shown", async () => {
  const requests = answerWith(() => assert.fail("expected no request"));
  const opening = await openingSample(MODEL, [row(1), row(1, 2)], new AbortController().signal);
  assert.deepEqual(opening, { index: 0, layer: null, after: "" });
  assert.equal(requests.length, 0);
});
