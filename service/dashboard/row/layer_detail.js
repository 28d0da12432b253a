// One layer of a row: its gate unit by unit, or place by place, and how T is spread.

import { drawBars } from "../charts/bar_chart.js";
import { eraseChart, remPixels } from "../charts/chart.js";
import { el, setChildren } from "../dom/element.js";
import { number, percent } from "../dom/number_format.js";
import { groupMean, groupUnitMeans } from "../gates/gate_groups.js";
import { drawHeatmap } from "../charts/heatmap.js";
import { unitsByPlace, gateLayout, meanOfLists, unitPicture, unitMeans } from "./gate_values.js";

const BINS = 20;
const MEAN = "mean";
// how high a picture is at most, in rem
const PICTURE = 24;
const CARRIES = {
  coupled: "C is 1 − T",
  independent: "C is a gate of its own",
  softmax: "C is what the softmax leaves beside T",
};

/** The part in `body`; the answer draws a group of gates as a reading has them. */
export function startLayerDetail(body) {
  const [title, facts] = [el("h3"), el("dl", { class: "facts" })];
  const [values, spread] = [el("figure"), el("figure")];
  const gate = el("select", { "aria-label": "Gate", on: { change: again } });
  const channel = el("select", { "aria-label": "Channel", on: { change: again } });
  const gateField = el("label", {}, "Gate ", gate);
  const channelField = el("label", {}, "Channel ", channel);
  const valuesTitle = el("h4");
  setChildren(
    body,
    title,
    facts,
    el(
      "div",
      { class: "pair" },
      el("div", {}, el("div", { class: "headline" }, valuesTitle, gateField, channelField), values),
      el("div", {}, el("div", { class: "headline" }, el("h4", {}, "How its values are spread")), spread),
    ),
  );
  let shown = null;

  function again() {
    if (shown) draw(shown.group, shown.reading);
  }

  function draw(group, reading) {
    shown = { group, reading };
    setChildren(title, `Layer ${group.name}`);
    setChildren(facts, factsOf(group, reading));
    const own = group.gates.every(({ carry_gate }) => reading.tensors.has(carry_gate));
    offer(gate, own ? ["transform gate T", "carry gate C"] : ["transform gate T"]);
    gateField.hidden = !own;
    const carry = own && gate.selectedIndex === 1;
    const letter = carry ? "C" : "T";
    const name = (one) => (carry ? one.carry_gate : one.name);
    const whole = group.gates.map((one) => reading.tensors.get(name(one)));
    if (whole.every(Boolean)) {
      const gates = whole.map((tensor, n) => gateLayout(tensor, group.gates[n].unit_axis));
      const pictured = gates[0].after.length > 1;
      channelField.hidden = !pictured;
      if (pictured) offer(channel, [MEAN, ...Array(gates[0].units).keys()]);
      setChildren(valuesTitle, drawValues(values, group, gates, letter, channel));
      drawSpread(spread, gates, letter);
      return;
    }
    channelField.hidden = true;
    eraseChart(spread);
    const units = groupUnitMeans(group, (one) => unitMeans(reading, name(one), one.unit_axis));
    setChildren(valuesTitle, `${letter}, unit by unit`);
    if (units.length) drawUnits(values, group, units, letter);
    else {
      eraseChart(values);
      setChildren(values, el("p", { class: "empty" }, reading.missing ?? "The answer has no gates."));
    }
  }

  return draw;
}

function factsOf(group, reading) {
  const gates = new Map(reading.gates.map((one) => [one.name, one]));
  const [mean, sd, closed, open, carried] = ["mean", "sd", "closed", "open", "carried"].map((figure) =>
    groupMean(group, ({ name }) => gates.get(name)?.[figure]),
  );
  const { kind, carry } = group.gates[0];
  const of = group.gates.length > 1 ? ` (means of ${group.gates.length} gates)` : "";
  const what = carry === "projected" ? "a projection of what came in" : "what came in";
  return [
    ["T", `${number(mean)} on average, sd ${number(sd)}${of}`],
    ["Nearly closed, nearly open", `${percent(closed)}, ${percent(open)} of its values`],
    ["Carried", `${percent(carried)} of ${what}; ${CARRIES[kind]}`],
  ].map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));
}

/** Draw a gate's values in the way that fits them; the answer says what can be seen. */
function drawValues(figure, group, gates, letter, channel) {
  if (gates[0].after.length > 1) {
    const unit = channel.value === MEAN ? null : Number(channel.value);
    drawPicture(figure, gates, unit, letter, group);
    return unit === null ? `${letter} over the picture, mean of channels` : `${letter} of channel ${unit}`;
  }
  const places = gates.flatMap((one) => unitsByPlace(one));
  if (places.length === 1) {
    drawUnits(figure, group, places[0], letter);
    return `${letter}, unit by unit`;
  }
  const [each] = [places.length / gates.length];
  drawHeatmap(figure, {
    label: `${letter} of layer ${group.name}: ${places.length} places by ${places[0].length} units.`,
    z: places,
    rows: places.map((_, n) => placeName(group.gates[Math.floor(n / each)], each > 1 ? n % each : null)),
    rowTitle: group.gates[0].time === null ? "place" : "step",
    columns: { title: "unit" },
    scale: "gate",
    hover: { row: group.gates[0].time === null ? "place" : "step", column: "unit", value: letter },
  });
  return `${letter}, ${group.gates[0].time === null ? "place by place" : "step by step"}`;
}

function placeName({ time }, place) {
  if (time === null) return String(place);
  return place === null ? String(time) : `${time}.${place}`;
}

function drawPicture(figure, gates, unit, letter, group) {
  const pictures = gates.map((one) => unitPicture(one, unit));
  const z = pictures[0].map((_, n) => meanOfLists(pictures.map((lines) => lines[n])));
  drawHeatmap(figure, {
    label: `${letter} of layer ${group.name} over ${z.length} by ${z[0].length} pixels.`,
    z,
    rows: z.map((_, n) => String(n)),
    columns: { title: "pixel" },
    scale: "gate",
    hover: { row: "line", column: "pixel", value: letter },
    square: true,
    height: Math.min(figure.clientWidth + 3 * remPixels(), PICTURE * remPixels()),
  });
}

function drawUnits(figure, group, units, letter) {
  drawBars(figure, {
    label: `${letter} of layer ${group.name} in ${units.length} units.`,
    names: Array.from(units, (_, n) => String(n)),
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
    xTitle: `${letter}, from this value up to ${number(1 / BINS)} more`,
    yTitle: "share",
    yFormat: ".0%",
  });
}

/** These choices in a list; what was chosen stays chosen where it is still there. */
function offer(list, choices) {
  const before = list.value;
  if (list.options.length !== choices.length || list.options[0].value !== String(choices[0])) {
    setChildren(list, choices.map((choice) => el("option", { value: choice }, choice)));
  }
  list.value = choices.map(String).includes(before) ? before : String(choices[0]);
}
