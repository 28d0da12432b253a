// Words for the ends of a colour scale from 0 to 1 for gates.

/**
 * What a gate does at 0 and at 1. If carry gates are computed on their own, a closed transform gate does not
 * mean that the value is carried, so these gates are only closed or open.
 *
 * @param {import("./gate_groups.js").Group[]} groups
 * @param {"T"|"C"} letter  transform or carry gates
 * @returns {[string, string]}
 */
export function gateEnds(groups, letter = "T") {
  const independent = groups.some(({ gates }) => gates.some(({ kind }) => kind === "independent"));
  if (independent) return ["closed", "open"];
  return letter === "C" ? ["transformed", "carried"] : ["carried", "transformed"];
}
