// Details of one layer of a row: its gate by unit, place or pixel, and the distribution of its values.

import { drawBars } from "../charts/bar_chart.js";
import { eraseChart, remPixels } from "../charts/chart.js";
import { drawHeatmap } from "../charts/heatmap.js";
import { el, setChildren } from "../dom/element.js";
import { number, percent } from "../dom/number_format.js";
import { gateEnds } from "../gates/gate_ends.js";
import { groupMean, groupUnitMeans } from "../gates/gate_groups.js";
import { unitNumbers } from "../gates/unit_numbers.js";
import { gateLayout, meanOfLists, unitMeans, unitPicture, unitsByPlace } from "./gate_values.js";

// bins of the histogram of gate values from 0 to 1
const BINS = 20;
const MEAN = "mean";
// largest height of a picture in rem
const MAX_PICTURE_HEIGHT = 24;
const CARRY_TEXTS = {
  coupled: "C is 1 − T",
  independent: "C is an independent gate",
  softmax: "C and T share a softmax",
};

/** Create the part in `body`. Returns a function that draws a group of gates for a reading. */
export function startLayerDetail(body) {
  const [title, facts] = [el("h3"), el("dl", { class: "facts" })];
  const [values, spreadFigure] = [el("figure"), el("figure")];
  const gateSelect = el("select", { "aria-label": "Gate", on: { change: redraw } });
  const channelSelect = el("select", { "aria-label": "Channel", on: { change: redraw } });
  const gateField = el("label", {}, "Gate ", gateSelect);
  const channelField = el("label", {}, "Channel ", channelSelect);
  const valuesTitle = el("h4");
  setChildren(
    body,
    title,
    facts,
    el(
      "div",
      { class: "pair" },
      el("div", {}, el("div", { class: "headline" }, valuesTitle, gateField, channelField), values),
      el(
        "div",
        {},
        el("div", { class: "headline" }, el("h4", {}, "Distribution of its values")),
        spreadFigure,
      ),
    ),
  );
  let shownLayer = null;

  function redraw() {
    if (shownLayer) draw(shownLayer.group, shownLayer.reading);
  }

  function draw(group, reading) {
    shownLayer = { group, reading };
    setChildren(title, `Layer ${group.name}`);
    setChildren(facts, factsOf(group, reading));
    const hasCarryGates = group.gates.every(({ carry_gate }) => reading.tensors.has(carry_gate));
    setOptions(gateSelect, hasCarryGates ? ["transform gate T", "carry gate C"] : ["transform gate T"]);
    gateField.hidden = !hasCarryGates;
    const carry = hasCarryGates && gateSelect.selectedIndex === 1;
    const letter = carry ? "C" : "T";
    const name = (gateInfo) => (carry ? gateInfo.carry_gate : gateInfo.name);
    const tensors = group.gates.map((gateInfo) => reading.tensors.get(name(gateInfo)));
    if (tensors.every(Boolean)) {
      const gates = tensors.map((tensor, n) => gateLayout(tensor, group.gates[n].unit_axis));
      const isPicture = gates[0].after.length > 1;
      channelField.hidden = !isPicture;
      if (isPicture) setOptions(channelSelect, [MEAN, ...unitNumbers(group.gates[0], gates[0].units)]);
      setChildren(valuesTitle, drawValues(values, group, gates, letter, channelSelect));
      drawSpread(spreadFigure, gates, letter);
      return;
    }
    channelField.hidden = true;
    eraseChart(spreadFigure);
    const units = groupUnitMeans(group, (gateInfo) => unitMeans(reading, name(gateInfo), gateInfo.unit_axis));
    setChildren(valuesTitle, `${letter} by unit`);
    if (units.length) drawUnits(values, group, units, letter);
    else {
      eraseChart(values);
      setChildren(values, el("p", { class: "empty" }, reading.missing ?? "The response contains no gates."));
    }
  }

  return draw;
}

function factsOf(group, reading) {
  const gates = new Map(reading.gates.map((gateInfo) => [gateInfo.name, gateInfo]));
  const [mean, deviation, closed, open, carried] = ["mean", "sd", "closed", "open", "carried"].map((figure) =>
    groupMean(group, ({ name }) => gates.get(name)?.[figure]),
  );
  const { kind, carry, kept } = group.gates[0];
  const meansNote = group.gates.length > 1 ? ` (means of ${group.gates.length} gates)` : "";
  const carriedInput = carry === "projected" ? "a projection of the input" : "the input";
  return [
    ...(kept ? [["Units", `${number(kept.length)} are left of the original layer`]] : []),
    ["T", `mean ${number(mean)}, standard deviation ${number(deviation)}${meansNote}`],
    ["Nearly closed, nearly open", `${percent(closed)}, ${percent(open)} of the values`],
    ["Carried over", `${percent(carried)} of ${carriedInput}; ${CARRY_TEXTS[kind]}`],
  ].map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));
}

/** Draw a gate's values in the form that fits them; returns a title for the chart. */
function drawValues(figure, group, gates, letter, channelSelect) {
  if (gates[0].after.length > 1) {
    const channel = channelSelect.value === MEAN ? null : Number(channelSelect.value);
    const unit = channel === null ? null : unitNumbers(group.gates[0], gates[0].units).indexOf(channel);
    drawPicture(figure, gates, unit, letter, group);
    return channel === null ? `${letter} by pixel, mean of channels` : `${letter} of channel ${channel}`;
  }
  const places = gates.flatMap((gateInfo) => unitsByPlace(gateInfo));
  if (places.length === 1) {
    drawUnits(figure, group, places[0], letter);
    return `${letter} by unit`;
  }
  const [placesPerGate] = [places.length / gates.length];
  drawHeatmap(figure, {
    label: `${letter} of layer ${group.name}: ${places.length} places by ${places[0].length} units.`,
    z: places,
    rows: places.map((_, n) =>
      placeName(group.gates[Math.floor(n / placesPerGate)], placesPerGate > 1 ? n % placesPerGate : null),
    ),
    rowTitle: group.gates[0].time === null ? "place" : "step",
    columns: { title: "unit", names: group.gates[0].kept?.map(String) },
    scale: "gate",
    ends: gateEnds([group], letter),
    hover: { row: group.gates[0].time === null ? "place" : "step", column: "unit", value: letter },
  });
  return `${letter} by ${group.gates[0].time === null ? "place" : "step"}`;
}

function placeName({ time }, place) {
  if (time === null) return String(place);
  return place === null ? String(time) : `${time}.${place}`;
}

function drawPicture(figure, gates, unit, letter, group) {
  const pictures = gates.map((gateInfo) => unitPicture(gateInfo, unit));
  const z = pictures[0].map((_, n) => meanOfLists(pictures.map((lines) => lines[n])));
  drawHeatmap(figure, {
    label: `${letter} of layer ${group.name} over ${z.length} by ${z[0].length} pixels.`,
    z,
    rows: z.map((_, n) => String(n)),
    columns: { title: "pixel" },
    scale: "gate",
    ends: gateEnds([group], letter),
    hover: { row: "line", column: "pixel", value: letter },
    square: true,
    height: Math.min(figure.clientWidth + 3 * remPixels(), MAX_PICTURE_HEIGHT * remPixels()),
  });
}

function drawUnits(figure, group, units, letter) {
  drawBars(figure, {
    label: `${letter} of layer ${group.name} in ${units.length} units.`,
    names: unitNumbers(group.gates[0], units.length).map(String),
    series: [{ name: letter, values: units }],
    xTitle: "unit",
    yTitle: letter,
    range: [0, 1],
  });
}

function drawSpread(figure, gates, letter) {
  const counts = new Array(BINS).fill(0);
  let total = 0;
  for (const { data } of gates) {
    total += data.length;
    for (const value of data) counts[Math.min(Math.max(Math.floor(value * BINS), 0), BINS - 1)] += 1;
  }
  drawBars(figure, {
    label: `Histogram of ${total} values of ${letter} from 0 to 1.`,
    names: counts.map((_, n) => number(n / BINS)),
    series: [{ name: "share", values: counts.map((count) => count / total), format: percent }],
    xTitle: `${letter}, lower end of a bin of width ${number(1 / BINS)}`,
    yTitle: "share",
    yFormat: ".0%",
  });
}

/** Offer these options; the selected one stays selected if it is still there. */
function setOptions(list, choices) {
  const previous = list.value;
  const offered = Array.from(list.options, ({ value }) => value);
  if (offered.join() !== choices.join()) {
    setChildren(
      list,
      choices.map((choice) => el("option", { value: choice }, choice)),
    );
  }
  list.value = choices.map(String).includes(previous) ? previous : String(choices[0]);
}
