import assert from "node:assert/strict";
import test from "node:test";

import { TrafficHistory } from "../../service/dashboard/live/traffic_history.js";

const moment = (at, models = {}) => ({ at, workers: 1, total: { requests_per_s: at }, models });
const answer = (moments, fields = {}) => ({
  started: 100,
  moment_seconds: 2,
  history_seconds: 10,
  moments,
  refused: { full: 1 },
  failed: { "m/1": { late: 2 } },
  ...fields,
});

test("moments are added once, and leave after the length of the history", () => {
  const history = new TrafficHistory();
  assert.equal(history.latest, null);
  assert.equal(history.lastAt, 0);
  assert.equal(history.add(answer([moment(2), moment(4)])), true);
  history.add(answer([moment(4), moment(6)]));
  assert.deepEqual(history.moments.map(({ at }) => at), [2, 4, 6]);
  history.add(answer([moment(12)]));
  assert.deepEqual(history.moments.map(({ at }) => at), [4, 6, 12]);
});

test("another run of the server begins anew", () => {
  const history = new TrafficHistory();
  history.add(answer([moment(50)]));
  assert.equal(history.add(answer([moment(2)], { started: 200 })), false);
  assert.deepEqual(history.moments.map(({ at }) => at), [2]);
});

test("a model without traffic has none", () => {
  const history = new TrafficHistory();
  history.add(answer([moment(2, { "m/1": { requests_per_s: 7 } }), moment(4)]));
  assert.deepEqual(history.figures("m/1").map((figures) => figures.requests_per_s), [7, 0]);
  assert.deepEqual(history.figures(null).map((figures) => figures.requests_per_s), [2, 4]);
  assert.deepEqual(history.errors("m/1"), { late: 2 });
  assert.deepEqual(history.errors("other/1"), {});
  assert.deepEqual(history.errors(null), { full: 1 });
});
