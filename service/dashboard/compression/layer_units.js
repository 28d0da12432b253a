// The units that each layer of a compressed model has left, and how many it had.

import { groupGates } from "../gates/gate_groups.js";

/**
 * @typedef {object} LayerUnits
 * @property {string} name
 * @property {number[]} kept  numbers of the units that are left; empty if the layer is gone
 * @property {number|null} units  units of the original layer, null if they are not known
 */

/**
 * The layers of the original network in the order of data flow.
 *
 * @param {object[]} gates  of the compressed model
 * @param {object[]|null} originalGates  null if the original is not served
 * @param {import("../state/store.js").Reading|null} reading  of the compressed model
 * @returns {LayerUnits[]}
 */
export function layerUnits(gates, originalGates, reading) {
  if (originalGates?.length) return comparedWith(originalGates, gates);
  const layers = groupGates(gates).map(({ name, layer, gates: [gate] }) => ({
    name,
    layer,
    kept: gate.kept ?? allUnits(gate.units),
    units: gate.kept ? outputUnits(gate, reading) : gate.units,
  }));
  return withGoneLayers(layers);
}

function comparedWith(originalGates, gates) {
  const left = new Map(gates.map((gate) => [gate.name, gate]));
  return groupGates(originalGates).map(({ name, gates: [{ name: gateName, units }] }) => {
    const gate = left.get(gateName);
    return { name, kept: gate ? (gate.kept ?? allUnits(units)) : [], units };
  });
}

/** Layers are numbered from 0 without gaps, so a missing number is that of a layer that is gone. */
function withGoneLayers(layers) {
  const last = Math.max(-1, ...layers.map(({ layer }) => layer));
  return Array.from({ length: last + 1 }, (_, number) => {
    const named = layers.filter(({ layer }) => layer === number);
    return named.length ? named : [{ name: String(number), kept: [], units: null }];
  }).flat();
}

/** A layer's output still has a value for each of its original units: those of removed units are its input. */
function outputUnits({ output, unit_axis: axis }, reading) {
  return reading?.tensors.get(output)?.shape.at(axis) ?? null;
}

function allUnits(count) {
  return Array.from({ length: count ?? 0 }, (_, n) => n);
}
