// What the road shows of each layer: the shares of a row that are carried and transformed.

import { groupGates, groupMean } from "../gates/gate_groups.js";

/**
 * @typedef {object} RoadStretch  a layer, or one depth of a recurrent layer
 * @property {string} name  "3", or "3.1" for depth 1 of layer 3
 * @property {import("../gates/gate_groups.js").Group} group
 *
 * @typedef {object} RoadLayer  what one button closes
 * @property {number} layer
 * @property {RoadStretch[]} stretches
 * @property {boolean} movable  whether all of its gates have a bias to change
 *
 * @typedef {{carried: number, transformed: number}} Shares
 */

/** @returns {RoadLayer[]} the layers of a model with these gates, in the order of the data flow */
export function roadLayers(gates) {
  const layers = new Map();
  for (const group of groupGates(gates)) {
    const { layer, name } = group;
    if (!layers.has(layer)) layers.set(layer, { layer, stretches: [], movable: true });
    const entry = layers.get(layer);
    entry.stretches.push({ name, group });
    entry.movable &&= group.gates.every(({ levers }) => levers.length > 0);
  }
  return [...layers.values()];
}

/**
 * The shares of a reading in each stretch: the means of C and T over units, and over steps or pixels.
 * @returns {(Shares|null)[]} null for a stretch without numbers
 */
export function sharesOf(stretches, reading) {
  const gates = new Map(reading?.gates.map((gate) => [gate.name, gate]));
  return stretches.map(({ group }) => {
    const mean = (figure) => groupMean(group, ({ name }) => gates.get(name)?.[figure]);
    const [carried, transformed] = [mean("carried"), mean("mean")];
    return carried === null || transformed === null ? null : { carried, transformed };
  });
}
