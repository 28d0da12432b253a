import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { current, expectCurrent, publish, subscribe } from "../../service/dashboard/state/store.js";

const { reportError } = globalThis;
afterEach(() => (globalThis.reportError = reportError));

test("a listener gets the current value at once, and every later one until it leaves", () => {
  const heard = [];
  publish("hovered layer", 1);
  const leave = subscribe("hovered layer", (layer) => heard.push(layer));
  publish("hovered layer", null);
  leave();
  publish("hovered layer", 2);
  assert.deepEqual(heard, [1, null]);
  assert.equal(current("hovered layer"), 2);
});

test("a topic without a value calls nobody", () => {
  const heard = [];
  subscribe("theme", (theme) => heard.push(theme));
  assert.deepEqual(heard, []);
  assert.equal(current("theme"), undefined);
  assert.throws(() => expectCurrent("theme"), { message: 'expected a value of "theme", got none' });
  publish("theme", "dark");
  assert.deepEqual(heard, ["dark"]);
  assert.equal(expectCurrent("theme"), "dark");
});

test("a listener that throws does not keep the value from others", () => {
  const reported = [];
  globalThis.reportError = (error) => reported.push(error.message);
  const heard = [];
  subscribe("key", () => {
    throw new Error("broken");
  });
  subscribe("key", (key) => heard.push(key));
  publish("key", true);
  assert.deepEqual([heard, reported], [[true], ["broken"]]);
});
