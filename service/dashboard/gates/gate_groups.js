// Groups gates by layer and depth, and averages over the steps of recurrent layers.

/**
 * @typedef {import("../state/api_types.js").GateInfo} GateInfo
 *
 * @typedef {{name: string, layer: number, gates: GateInfo[]}} Group
 */

/**
 * @param {GateInfo[]} gates
 * @returns {Group[]} in the order of data flow; `name` is "3", or "3.1" for depth 1 of layer 3
 */
export function groupGates(gates) {
  const groups = new Map();
  for (const gate of gates) {
    const name = gate.depth === null ? `${gate.layer}` : `${gate.layer}.${gate.depth}`;
    if (!groups.has(name)) groups.set(name, { name, layer: gate.layer, gates: [] });
    groups.get(name).gates.push(gate);
  }
  return [...groups.values()];
}

/**
 * The mean of a number over a group's gates; null if no gate has one.
 *
 * @param {Group} group
 * @param {(gate: GateInfo) => number|null|undefined} valueOf
 */
export function groupMean(group, valueOf) {
  const values = group.gates.map(valueOf).filter((value) => typeof value === "number");
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
}

/**
 * The same for lists with a number per unit; an empty list if no gate has one.
 *
 * @param {Group} group
 * @param {(gate: GateInfo) => ArrayLike<number>|null|undefined} valueOf
 */
export function groupUnitMeans(group, valueOf) {
  const values = group.gates.map(valueOf).filter((unitValues) => unitValues !== null && unitValues !== undefined);
  if (values.length < 2) return values[0] ?? [];
  const mean = (n) => values.reduce((sum, unitValues) => sum + unitValues[n], 0) / values.length;
  return Float64Array.from(values[0], (_, n) => mean(n));
}
