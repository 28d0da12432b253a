// The gates of each layer, and of each depth within it; what is told of the steps of one is their mean.

/**
 * @typedef {{name: string, layer: number, gates: object[]}} Group
 *
 * @returns {Group[]} in the order data flows; `name` is "3", or "3.1" for a depth of layer 3
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

/** The mean over a group's gates of a number that `of` gives for each; null where it gives none. */
export function groupMean(group, of) {
  const known = group.gates.map(of).filter((value) => value !== null && value !== undefined);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

/** The same for lists of numbers, one for each unit; an empty list where there is none. */
export function groupUnitMeans(group, of) {
  const known = group.gates.map(of).filter(Boolean);
  if (known.length < 2) return known[0] ?? [];
  const mean = (n) => known.reduce((sum, values) => sum + values[n], 0) / known.length;
  return Float64Array.from(known[0], (_, n) => mean(n));
}
