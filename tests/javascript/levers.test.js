import assert from "node:assert/strict";
import test from "node:test";

import {
  leverAt,
  leverFields,
  leverPosition,
  leversText,
  leverText,
  readingTitle,
  sameLevers,
} from "../../service/dashboard/state/levers.js";

test("the fields of a request have a shift only if a layer is moved", () => {
  assert.deepEqual(leverFields(new Map([[2, "open"], [0, "closed"]])), { close: [0], open: [2] });
  assert.deepEqual(leverFields(new Map([[1, -0.5]])), { close: [], open: [], shift: { 1: -0.5 } });
});

test("the ends of a slider close and open, its middle resets", () => {
  assert.deepEqual([-1, -0.97, -0.96, -0.039, 0, 0.04, 0.97, 1].map(leverAt), [
    "closed", "closed", -9.6, "as trained", "as trained", 0.4, "open", "open",
  ]);
});

test("a lever is where the slider is that gives it", () => {
  for (const position of [-1, -0.5, 0, 0.37, 1]) assert.equal(leverPosition(leverAt(position)), position);
  assert.equal(leverPosition(undefined), 0);
  // a link may say more than the slider can
  assert.equal(leverPosition(-25), -1);
});

test("layers with the same lever are named together, in order", () => {
  const levers = new Map([[10, "closed"], [2, "closed"], [5, -1.5], [7, "open"]]);
  assert.equal(leversText(levers), "layers 2, 10 closed and layer 5 moved by −1.5 and layer 7 open");
  assert.equal(leversText(new Map()), "");
  assert.equal(leverText(undefined), "as trained");
  assert.equal(readingTitle({ row: { title: "drawn" }, levers: new Map([[3, 2]]) }), "drawn, with layer 3 moved by +2");
  assert.equal(readingTitle({ row: { title: "drawn" }, levers: null }), "drawn");
});

test("levers are the same in any order", () => {
  assert.equal(sameLevers(new Map([[1, "open"], [2, 3]]), new Map([[2, 3], [1, "open"]])), true);
  assert.equal(sameLevers(new Map([[1, "open"]]), new Map([[1, "closed"]])), false);
  assert.equal(sameLevers(new Map(), new Map([[1, "open"]])), false);
});
