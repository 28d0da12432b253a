// Comparison of two rows: one that was kept, called A, and the current one, called B.

import { eraseChart } from "../charts/chart.js";
import { drawHeatmap } from "../charts/heatmap.js";
import { el, setChildren } from "../dom/element.js";
import { number, percent } from "../dom/number_format.js";
import { readingTitle } from "../state/levers.js";
import { current } from "../state/store.js";
import { drawGateMap, gateRows } from "./gate_map.js";
import { answerText } from "./predicted_class.js";
import { drawRoute } from "./route_chart.js";

/**
 * Create the comparison in `body`, hidden while no row is kept. Returns a function that draws it for the current
 * reading.
 */
export function startComparison(body) {
  const [mapA, mapB, difference, route] = [0, 1, 2, 3].map(() => el("figure"));
  const [titleA, titleB] = [el("h4"), el("h4")];
  const table = el("table");
  const hint = el(
    "p",
    { class: "quiet" },
    "Now choose or draw another row, or close a layer: the result becomes B and is shown beside A.",
  );
  const sides = el(
    "div",
    { class: "pair" },
    el("div", {}, titleA, mapA),
    el("div", {}, titleB, mapB),
    el("div", {}, el("h4", {}, "B − A"), difference),
    el("div", {}, el("h4", {}, "Route"), table, route),
  );
  setChildren(
    body,
    el("h3", {}, "Comparison of A and B"),
    hint,
    sides,
  );
  body.hidden = true;

  return (model, groups, reading) => {
    const readingA = current("kept reading") ?? null;
    body.hidden = !readingA;
    if (!readingA) return;
    const isOther = reading !== readingA;
    hint.hidden = isOther;
    sides.hidden = !isOther;
    if (!isOther) return;
    const readings = [readingA, reading];
    const descriptions = readings.map((side, n) => {
      const prediction = answerText(model.certificate, side.outputs);
      return `${"AB"[n]}: ${readingTitle(side)}${prediction ? `, ${prediction}` : ""}`;
    });
    [titleA, titleB].forEach((title, n) => setChildren(title, descriptions[n]));
    [mapA, mapB].forEach((figure, n) =>
      drawGateMap(figure, groups, readings[n], { title: `T of ${descriptions[n]}` }),
    );
    drawDifference(difference, groups, readingA, reading);
    setChildren(table, tableRows(model, readingA, reading));
    drawRoute(route, groups, [
      { name: "A", reading: readingA },
      { name: "B", reading },
    ]);
  };
}

function drawDifference(figure, groups, readingOfA, readingOfB) {
  const [before, after] = [gateRows(groups, readingOfA), gateRows(groups, readingOfB)];
  const z = after.map((units, n) => Float32Array.from(units, (value, unit) => value - before[n][unit]));
  if (!z.some((units) => units.length)) {
    eraseChart(figure);
    setChildren(figure, el("p", { class: "empty" }, readingOfB.missing));
    return;
  }
  drawHeatmap(figure, {
    label: `T of B minus T of A: ${groups.length} layers by units.`,
    z,
    rows: groups.map(({ name }) => name),
    rowTitle: "layer",
    columns: { title: "unit" },
    scale: "signed",
    hover: { row: "layer", column: "unit", value: "T of B − T of A" },
  });
}

function tableRows({ certificate }, readingOfA, readingOfB) {
  const lines = [
    ["", "A", "B"],
    [
      "prediction",
      ...[readingOfA, readingOfB].map(({ outputs }) => answerText(certificate, outputs) ?? "–"),
    ],
    ["carried through all layers", ...[readingOfA, readingOfB].map(({ route }) => percent(route.carried[0]))],
    ["effective depth", ...[readingOfA, readingOfB].map(({ route }) => number(route.effective_depth[0]))],
    [
      "longest run of closed layers",
      ...[readingOfA, readingOfB].map(({ route }) => String(route.longest_closed[0])),
    ],
  ];
  const [head, ...rest] = lines.map(([name, ...cells]) => ({ name, cells }));
  return [
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        el("td"),
        head.cells.map((name) => el("th", { scope: "col" }, name)),
      ),
    ),
    el(
      "tbody",
      {},
      rest.map(({ name, cells }) =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }, name),
          cells.map((cell) => el("td", {}, cell)),
        ),
      ),
    ),
  ];
}
