// The numbers of a gate's units. In a compressed layer the units that are left keep those of the original layer.

/** The number of each unit: `count` numbers in the order of the gate's values. */
export function unitNumbers({ kept }, count) {
  return kept ?? Array.from({ length: count }, (_, n) => n);
}

/** The values of a gate's units at the places of their numbers; NaN for removed units, null without values. */
export function placeByNumber({ kept }, values) {
  if (!kept || !values) return values;
  const places = new Float64Array(kept.at(-1) + 1).fill(NaN);
  kept.forEach((number, n) => (places[number] = values[n]));
  return places;
}
