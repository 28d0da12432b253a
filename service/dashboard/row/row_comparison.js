// Two rows side by side: one that was kept, called A, and the present one, B.

import { eraseChart } from "../charts/chart.js";
import { el, setChildren } from "../dom/element.js";
import { number, percent } from "../dom/number_format.js";
import { drawHeatmap } from "../charts/heatmap.js";
import { drawGateMap, gateRows } from "./gate_map.js";
import { predictedClassText } from "./predicted_class.js";
import { drawRoute } from "./route_chart.js";

/**
 * The part in `body`, empty until a row is kept. The answer has `keep(reading)`, `forget()`, and
 * `draw(about, groups, reading)` for what is the present row.
 */
export function startComparison(body) {
  const [mapA, mapB, difference, route] = [0, 1, 2, 3].map(() => el("figure"));
  const [titleA, titleB] = [el("h4"), el("h4")];
  const table = el("table");
  const wait = el("p", { class: "quiet" }, "Now ask about another row: it is B, and is shown beside A.");
  const sides = el(
    "div",
    { class: "pair" },
    el("div", {}, titleA, mapA),
    el("div", {}, titleB, mapB),
    el("div", {}, el("h4", {}, "B − A"), difference),
    el("div", {}, el("h4", {}, "Route"), table, route),
  );
  const end = el("button", { type: "button", on: { click: forget } }, "Forget A");
  setChildren(body, el("div", { class: "headline" }, el("h3", {}, "A and B"), end), wait, sides);
  body.hidden = true;
  let kept = null;

  function keep(reading) {
    kept = reading;
    body.hidden = false;
    sides.hidden = true;
    wait.hidden = false;
  }

  function forget() {
    kept = null;
    body.hidden = true;
  }

  function draw(about, groups, reading) {
    if (!kept) return;
    const another = reading !== kept;
    wait.hidden = another;
    sides.hidden = !another;
    if (!another) return;
    const both = [kept, reading];
    const said = both.map(({ row, outputs }, n) => {
      const outcome = predictedClassText(about.certificate, outputs);
      return `${"AB"[n]}: ${row.title}${outcome ? `, ${outcome}` : ""}`;
    });
    [titleA, titleB].forEach((title, n) => setChildren(title, said[n]));
    [mapA, mapB].forEach((figure, n) => drawGateMap(figure, groups, both[n], { title: `T of ${said[n]}` }));
    drawDifference(difference, groups, kept, reading);
    setChildren(table, linesOf(about, kept, reading));
    drawRoute(route, groups, [
      { name: "A", reading: kept },
      { name: "B", reading },
    ]);
  }

  return { keep, forget, draw };
}

function drawDifference(figure, groups, a, b) {
  const [before, after] = [gateRows(groups, a), gateRows(groups, b)];
  const z = after.map((units, n) => Float32Array.from(units, (value, unit) => value - before[n][unit]));
  if (!z.some((units) => units.length)) {
    eraseChart(figure);
    setChildren(figure, el("p", { class: "empty" }, b.missing));
    return;
  }
  drawHeatmap(figure, {
    label: `T of B less T of A: ${groups.length} layers by units.`,
    z,
    rows: groups.map(({ name }) => name),
    rowTitle: "layer",
    columns: { title: "unit" },
    scale: "signed",
    hover: { row: "layer", column: "unit", value: "T of B − T of A" },
  });
}

function linesOf({ certificate }, a, b) {
  const lines = [
    ["", "A", "B"],
    ["answer", ...[a, b].map(({ outputs }) => predictedClassText(certificate, outputs) ?? "–")],
    ["carried past all layers", ...[a, b].map(({ route }) => percent(route.carried[0]))],
    ["effective depth", ...[a, b].map(({ route }) => number(route.effective_depth[0]))],
    ["most closed on end", ...[a, b].map(({ route }) => String(route.longest_closed[0]))],
  ];
  const [head, ...rest] = lines.map(([name, ...cells]) => ({ name, cells }));
  return [
    el("thead", {}, el("tr", {}, el("td"), head.cells.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, rest.map(({ name, cells }) =>
      el("tr", {}, el("th", { scope: "row" }, name), cells.map((cell) => el("td", {}, cell))))),
  ];
}
