import assert from "node:assert/strict";
import test from "node:test";

import { groupGates, groupMean, groupUnitMeans } from "../../service/dashboard/gates/gate_groups.js";
import { placeByNumber, unitNumbers } from "../../service/dashboard/gates/unit_numbers.js";
import { carriedLane, laneWidths, roadTop } from "../../service/dashboard/road/lane_shapes.js";
import { roadLayers, sharesOf } from "../../service/dashboard/road/road_layers.js";

const gate = (name, layer, fields = {}) => ({ name, layer, depth: null, time: null, levers: [{}], ...fields });
const RECURRENT = [
  gate("a", 0, { depth: 0, time: 0 }),
  gate("b", 0, { depth: 1, time: 0 }),
  gate("c", 0, { depth: 0, time: 1 }),
  gate("d", 1, { levers: [] }),
];

test("the steps of a layer are a group, its depths are not", () => {
  const groups = groupGates(RECURRENT);
  assert.deepEqual(
    groups.map(({ name, layer, gates }) => [name, layer, gates.map((each) => each.name)]),
    [["0.0", 0, ["a", "c"]], ["0.1", 0, ["b"]], ["1", 1, ["d"]]],
  );
});

test("means leave out gates without a number", () => {
  const [group] = groupGates(RECURRENT);
  assert.equal(groupMean(group, ({ name }) => ({ a: 0.25, c: 0.75 })[name]), 0.5);
  assert.equal(groupMean(group, ({ name }) => ({ a: 0 })[name]), 0);
  assert.equal(groupMean(group, () => null), null);
  assert.deepEqual(groupUnitMeans(group, ({ name }) => ({ a: [0, 1], c: [1, 1] })[name]), Float64Array.of(0.5, 1));
  assert.deepEqual(groupUnitMeans(group, ({ name }) => ({ c: [1, 2] })[name]), [1, 2]);
  assert.deepEqual(groupUnitMeans(group, () => null), []);
});

test("units of a compressed layer keep their places", () => {
  assert.deepEqual(placeByNumber({ kept: [1, 3] }, [0.5, 0.25]), Float64Array.of(NaN, 0.5, NaN, 0.25));
  assert.deepEqual(placeByNumber({ kept: null }, [1]), [1]);
  assert.equal(placeByNumber({ kept: [1] }, null), null);
  assert.deepEqual(unitNumbers({ kept: null }, 3), [0, 1, 2]);
});

test("a layer of the road can be closed if all of its gates can", () => {
  const gates = [...RECURRENT, gate("e", 2), gate("f", 2, { levers: [] })];
  assert.deepEqual(
    roadLayers(gates).map(({ layer, movable, stretches }) => [layer, movable, stretches.map(({ name }) => name)]),
    [[0, true, ["0.0", "0.1"]], [1, false, ["1"]], [2, false, ["2"]]],
  );
});

test("a stretch has the shares of its steps, and null without numbers", () => {
  const stretches = roadLayers(RECURRENT).flatMap((layer) => layer.stretches);
  const numbers = [{ name: "a", carried: 0.5, mean: 0.5 }, { name: "c", carried: 1, mean: 0 }, { name: "b", carried: 0, mean: null }];
  assert.deepEqual(sharesOf(stretches, { gates: numbers }), [{ carried: 0.75, transformed: 0.25 }, null, null]);
  assert.deepEqual(sharesOf(stretches, null), [null, null, null]);
});

test("lanes share the road, and none is invisible", () => {
  const size = { stretch: 40, width: 100, gap: 10, margin: 4 };
  assert.deepEqual(laneWidths({ carried: 0.75, transformed: 0.25 }, size), { carried: 75, transformed: 25 });
  assert.deepEqual(laneWidths({ carried: 1, transformed: 1 }, size), { carried: 50, transformed: 50 });
  assert.deepEqual(laneWidths({ carried: 1e-6, transformed: 0 }, size), { carried: 1, transformed: 0 });
  const lane = carriedLane(80, 75, size);
  assert.equal(lane.y + lane.height, roadTop(size) + size.width);
});
