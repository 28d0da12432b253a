// Layers by units, after Figure 2 of "Training Very Deep Networks": four maps over one axis of layers.

import { eraseChart } from "../charts/chart.js";
import { setChildren } from "../dom/element.js";
import { number } from "../dom/number_format.js";
import { groupGates, groupUnitMeans } from "./gate_groups.js";
import { drawHeatmap } from "../charts/heatmap.js";
import { titledChart } from "../charts/titled_chart.js";
import { unitMeans } from "../row/gate_values.js";

// a few biases far out would leave no colours for the rest
const WITHIN = 0.995;
// how far apart two means may be that are told with six digits
const NEAR = 1e-4;

const TITLES = ["Biases of the gates", "Mean T", "T of this row", "Outputs of this row"];

/** The four maps in `body`; the answer has `model` for another model, and `reading` for another row. */
export function startLayerUnitMaps(body) {
  const maps = TITLES.map((title) => ({ title, ...titledChart(title) }));
  setChildren(body, maps.map(({ node }) => node));
  const [biases, means, gates, outputs] = maps;
  let groups = [];

  function show(map, z, options, caption) {
    map.says.textContent = caption;
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

  function model(about) {
    groups = groupGates(about.gates);
    const known = (gate) => biasOf(gate, about.profile.biases?.[gate.name]);
    const own = groups.map((group) => groupUnitMeans(group, known));
    const [low, high] = around(own);
    const flat = about.gates.some((gate) => gate.bias && !isWhole(gate, about.profile.biases?.[gate.name]));
    show(
      biases,
      own,
      { scale: "signed", range: [low, high], hover: { row: "layer", column: "unit", value: "bias" } },
      own.some((row) => row.length)
        ? `What each gate leans to; the middle colour is their median, ${number((low + high) / 2)}.` +
            (flat ? " Of some layers only the mean is known." : "")
        : "No gate of this network has a bias of its own.",
    );
    const { profile } = about.profile;
    const units = new Map(profile?.layers.map((layer) => [layer.gate, layer.units]));
    show(
      means,
      groups.map((group) => groupUnitMeans(group, ({ name }) => units.get(name))),
      { scale: "gate" },
      profile
        ? `Over ${number(profile.rows)} rows of the export.`
        : "Unknown: an export with rows of data would tell it.",
    );
    reading(null);
  }

  function reading(of) {
    const units = (name, axis) => (of && name ? unitMeans(of, name, axis) : null);
    const T = groups.map((group) => groupUnitMeans(group, (gate) => units(gate.name, gate.unit_axis)));
    const y = groups.map((group) => groupUnitMeans(group, (gate) => units(gate.output, gate.unit_axis)));
    const title = of ? of.row.title : "Ask about a row, and it is shown here.";
    const why = of?.missing ?? "The answer has none of these.";
    show(gates, T, { scale: "gate" }, of && !T.some((row) => row.length) ? why : title);
    show(
      outputs,
      y,
      { scale: "signed", hover: { row: "layer", column: "unit", value: "output" } },
      of && !y.some((row) => row.length) ? why : title,
    );
  }

  return { model, reading };
}

/** The bias of each unit; its mean for all where the file has no more, null where it has none. */
function biasOf(gate, values) {
  if (!gate.bias || isWhole(gate, values)) return values;
  return new Float64Array(gate.units ?? values?.length ?? 1).fill(gate.bias.mean);
}

/** Whether these values are the whole bias: what moves a gate may be a part of it, or be added to it. */
function isWhole({ bias }, values) {
  if (!values?.length) return false;
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return Math.abs(mean - bias.mean) <= NEAR * Math.max(1, Math.abs(bias.mean));
}

/** Ends of a scale whose middle is the median: biases stay near where they began. */
function around(rows) {
  const known = Float64Array.from(rows.flatMap((row) => Array.from(row))).sort();
  if (!known.length) return [-1, 1];
  const middle = known[known.length >> 1];
  const apart = known.map((value) => Math.abs(value - middle)).sort();
  const bound = apart[Math.ceil(WITHIN * apart.length) - 1] || apart.at(-1) || 1;
  return [middle - bound, middle + bound];
}
