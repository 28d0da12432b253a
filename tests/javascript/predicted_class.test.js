import assert from "node:assert/strict";
import test from "node:test";

import {
  answerText,
  classProbabilities,
  indexOfMax,
  predictedClass,
  predictedNumber,
  probabilityText,
} from "../../service/dashboard/row/predicted_class.js";

const certificate = { distribution: "probabilities", labels: ["a", "b", "c"], task: "classes", target: "", interval: null };
const output = (...data) => [{ name: "y", datatype: "FP32", shape: [1, data.length], data }];

test("the most probable class, and the first of several", () => {
  assert.deepEqual(predictedClass(certificate, output(0.2, 0.5, 0.3)), { label: "b", share: 0.5 });
  assert.deepEqual(predictedClass(certificate, output(0.25, 0.375, 0.375)), { label: "b", share: 0.375 });
  assert.deepEqual(predictedClass({ ...certificate, labels: [] }, output(0, 1)), { label: "class 1", share: 1 });
});

test("logits become probabilities, however large they are", () => {
  const logits = { ...certificate, distribution: "logits" };
  assert.deepEqual(predictedClass(logits, output(0, 0, 0)), { label: "a", share: 1 / 3 });
  assert.deepEqual(predictedClass(logits, output(1000, -1000, 0)), { label: "a", share: 1 });
  const shares = classProbabilities(logits, output(Math.log(1), Math.log(2), Math.log(5))).map(({ share }) => share);
  [1 / 8, 2 / 8, 5 / 8].forEach((share, place) => assert.ok(Math.abs(shares[place] - share) < 1e-12));
  // rounding to 100 % would hide that another class is possible
  assert.equal(answerText({ ...logits, labels: ["a", "b"] }, output(8, 0)), "a (> 99.9 %)");
  // -Infinity is a class that cannot be
  assert.equal(predictedClass(logits, output(-Infinity, 0, -Infinity)).share, 1);
});

test("NaN and infinity are no class", () => {
  for (const data of [[NaN, 1, 0], [Infinity, 0, 0]]) {
    assert.equal(predictedClass(certificate, output(...data)), null);
    assert.equal(classProbabilities(certificate, output(...data)), null);
  }
});

test("outputs of another shape have no classes", () => {
  assert.equal(predictedClass(certificate, output(1)), null);
  assert.equal(predictedClass(certificate, [{ shape: [1, 2, 2], data: [0, 1, 0, 0] }]), null);
  assert.equal(predictedClass({ ...certificate, distribution: null }, output(0, 1, 0)), null);
});

test("a predicted number has five digits, its name, and an interval", () => {
  const price = { ...certificate, distribution: null, task: "number", target: "price", interval: null };
  assert.equal(predictedNumber(price, output(1234.567)).text, "1,234.6");
  assert.equal(answerText(price, output(-12.5)), "price: −12.5");
  assert.equal(answerText({ ...price, target: "" }, output(0)), "0");
  assert.equal(predictedNumber(price, output(1e21)).text, "1,000,000,000T");
  assert.equal(predictedNumber(price, output(NaN)).text, "–");
  const { interval } = predictedNumber({ ...price, interval: { level: 0.9, half_width: 2 } }, output(10));
  assert.equal(interval, "8 to 12 in 90 % of such rows");
  // one number per row
  assert.equal(predictedNumber(price, output(1, 2)), null);
  assert.equal(predictedNumber(certificate, output(1)), null);
});

test("rounding turns no probability into 0 % or 100 %", () => {
  for (const [share, text] of [
    [0, "0.0 %"],
    [1e-9, "< 0.1 %"],
    [0.001, "0.1 %"],
    [0.9994, "99.9 %"],
    [0.9996, "> 99.9 %"],
    [1, "100.0 %"],
  ])
    assert.equal(probabilityText(share), text);
});

test("the answer of classes, and of outputs without", () => {
  assert.equal(answerText(certificate, output(0.1, 0.2, 0.7)), "c (70.0 %)");
  assert.equal(answerText({ ...certificate, distribution: null }, output(1, 2)), null);
});

test("the highest of very many values is found", () => {
  const values = new Float64Array(1_000_000);
  values[777_777] = 100;
  assert.equal(indexOfMax(values), 777_777);
  const logits = { ...certificate, distribution: "logits", labels: [] };
  assert.equal(predictedClass(logits, output(...values.subarray(777_000, 778_000))).label, "class 777");
  assert.ok(classProbabilities(logits, [{ shape: [1, 1_000_000], data: values }])[777_777].share > 0.999);
});
