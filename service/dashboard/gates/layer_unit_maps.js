// Four maps of layers by units, after Figure 2 of "Training Very Deep Networks": gate biases, mean T, and T and
// outputs of the current row.

import { eraseChart } from "../charts/chart.js";
import { drawHeatmap } from "../charts/heatmap.js";
import { titledChart } from "../charts/titled_chart.js";
import { setChildren } from "../dom/element.js";
import { number } from "../dom/number_format.js";
import { unitMeans } from "../row/gate_values.js";
import { readingTitle } from "../state/levers.js";
import { gateEnds } from "./gate_ends.js";
import { groupGates, groupUnitMeans } from "./gate_groups.js";
import { placeByNumber } from "./unit_numbers.js";

// quantile of distances from the median at which the bias scale ends: outliers would leave no colours for
// the rest
const SCALE_QUANTILE = 0.995;
// relative difference up to which two means count as equal; the manifest rounds to six digits
const MEAN_TOLERANCE = 1e-4;

const TITLES = ["Gate biases", "Mean T", "T of this row", "Outputs of this row"];

/** Draw the four maps in `body`. Returns `showModel` for another model and `showReading` for another row. */
export function startLayerUnitMaps(body) {
  const maps = TITLES.map((title) => ({ title, ...titledChart(title) }));
  setChildren(
    body,
    maps.map(({ node }) => node),
  );
  const [biases, means, gates, outputs] = maps;
  let groups = [];

  function showMap(map, z, options, caption) {
    map.caption.textContent = caption;
    if (!z.some((row) => row.length)) {
      eraseChart(map.figure);
      return;
    }
    const widest = Math.max(...z.map((row) => row.length));
    drawHeatmap(map.figure, {
      label: `${map.title}: a map of ${z.length} layers and ${widest} units.`,
      z,
      rows: groups.map(({ name }) => name),
      rowTitle: "layer",
      columns: { title: "unit" },
      hover: { row: "layer", column: "unit", value: "T" },
      ...options,
    });
  }

  function showModel(model) {
    groups = groupGates(model.gates);
    const unitBiases = (gate) => placeByNumber(gate, biasOf(gate, model.profile.biases?.[gate.name]));
    const biasRows = groups.map((group) => groupUnitMeans(group, unitBiases));
    const [low, high] = scaleAround(biasRows);
    const someOnlyMean = model.gates.some(
      (gate) => gate.bias && !isWholeBias(gate, model.profile.biases?.[gate.name]),
    );
    showMap(
      biases,
      biasRows,
      { scale: "signed", range: [low, high], hover: { row: "layer", column: "unit", value: "bias" } },
      biasRows.some((row) => row.length)
        ? `Bias of each transform gate. The middle colour is the median, ${number((low + high) / 2)}.` +
            (someOnlyMean ? " For some layers only the mean is known." : "")
        : "No gate of this network has a bias.",
    );
    const { profile } = model.profile;
    const units = new Map(profile?.layers.map((layer) => [layer.gate, layer.units]));
    showMap(
      means,
      groups.map((group) => groupUnitMeans(group, (gate) => placeByNumber(gate, units.get(gate.name)))),
      { scale: "gate", ends: gateEnds(groups) },
      profile
        ? `Mean over ${number(profile.rows)} rows of the export.`
        : "Not known: this needs an export with rows of data.",
    );
    showReading(null);
  }

  function showReading(reading) {
    const units = (name, axis) => (reading && name ? unitMeans(reading, name, axis) : null);
    const gateUnits = (gate) => placeByNumber(gate, units(gate.name, gate.unit_axis));
    const T = groups.map((group) => groupUnitMeans(group, gateUnits));
    const y = groups.map((group) => groupUnitMeans(group, (gate) => units(gate.output, gate.unit_axis)));
    const title = reading ? readingTitle(reading) : "Choose or draw a row to see its values here.";
    const why = reading?.missing ?? "The response does not contain these values.";
    showMap(
      gates,
      T,
      { scale: "gate", ends: gateEnds(groups) },
      reading && !T.some((row) => row.length) ? why : title,
    );
    showMap(
      outputs,
      y,
      { scale: "signed", hover: { row: "layer", column: "unit", value: "output" } },
      reading && !y.some((row) => row.length) ? why : title,
    );
  }

  return { showModel, showReading };
}

/** The bias per unit: the mean for all units if the file has no more, null if the gate has no bias. */
function biasOf(gate, values) {
  if (!gate.bias || isWholeBias(gate, values)) return values;
  return new Float64Array(gate.units ?? values?.length ?? 1).fill(gate.bias.mean);
}

/** Whether these values are the whole bias. What a lesion moves may be only a part of it, or be added to it. */
function isWholeBias({ bias }, values) {
  if (!values?.length) return false;
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return Math.abs(mean - bias.mean) <= MEAN_TOLERANCE * Math.max(1, Math.abs(bias.mean));
}

/** Ends of a colour scale centred on the median, since biases stay near their initial value. */
function scaleAround(rows) {
  const biases = rows.flatMap((row) => Array.from(row)).filter(Number.isFinite);
  const sorted = Float64Array.from(biases).sort();
  if (!sorted.length) return [-1, 1];
  const median = sorted[sorted.length >> 1];
  const distances = sorted.map((value) => Math.abs(value - median)).sort();
  const bound = distances[Math.ceil(SCALE_QUANTILE * distances.length) - 1] || distances.at(-1) || 1;
  return [median - bound, median + bound];
}
