// A compressed model beside its original, in the section "Models". Hidden for other models.

import { clearCharts } from "../charts/chart.js";
import { el, setChildren } from "../dom/element.js";
import { watchVisibility } from "../dom/visibility.js";
import { current, publish, subscribe } from "../state/store.js";
import { layerUnits } from "./layer_units.js";
import { findOriginal } from "./original_model.js";
import { commonRunTimes } from "./run_times.js";
import { shareChart, shareTable } from "./share_curve.js";
import { sideBySide } from "./side_by_side.js";
import { startUnitStrips } from "./unit_strips.js";

// milliseconds between two requests for the times of live runs
const POLL_INTERVAL = 10_000;

/** Show the compression of the chosen model in this node. */
export function startCompressionPanel(body) {
  const summary = el("p", { class: "verdict" });
  const [comparison, shares] = [el("div"), el("div")];
  const note = el("p", { class: "caption" });
  const tables = el("div", { class: "tables" }, el("div", {}, comparison, note), shares);
  const strips = el("div", { class: "strips" });
  const curve = el("div");
  setChildren(
    body,
    el("h2", { class: "about-title" }, "Beside its original"),
    summary,
    tables,
    strips,
    curve,
  );
  const showStrips = startUnitStrips(strips);
  let model = null;
  // the latest search for the original, null before one was started for this model and index
  let search = null;
  // undefined until it was found, null if it is not served
  let original;
  let runTimes = [];
  let layers = [];
  let visible = false;
  let timer = null;

  function showTable() {
    const name = original ? `${original.name}/${original.version}` : "original";
    const table = sideBySide(model, name, runTimes);
    // the region itself stays, since it may have the focus
    const region = comparison.firstElementChild;
    setChildren(region ?? comparison, region ? [...table.childNodes] : table);
    setChildren(note, noteText(original, runTimes));
    note.hidden = !original;
  }

  function showOriginal() {
    setChildren(summary, summaryText(model.certificate.compression, original));
    showTable();
    showLayers();
  }

  function showLayers() {
    const reading = current("reading");
    const isOfModel = reading?.gates.every(({ name }, n) => name === model.gates[n]?.name);
    layers = layerUnits(model.gates, original?.gates ?? null, reading && isOfModel ? reading : null);
    showStrips(layers);
  }

  async function lookForOriginal() {
    const thisSearch = (search = findOriginal(model, current("index") ?? []).catch(() => null));
    const found = await thisSearch;
    if (thisSearch !== search) return;
    original = found;
    showOriginal();
    pollTimes();
  }

  async function pollTimes() {
    clearTimeout(timer);
    if (!visible || !original) return;
    const [compared, whole] = [model, original];
    const times = await commonRunTimes(compared.path, whole.path).catch(() => null);
    if (compared !== model || whole !== original) return;
    const changed = times && JSON.stringify(times) !== JSON.stringify(runTimes);
    if (changed) {
      runTimes = times;
      showTable();
    }
    clearTimeout(timer);
    timer = setTimeout(pollTimes, POLL_INTERVAL);
  }

  function update() {
    if (!visible || !model) return;
    if (search) pollTimes();
    else lookForOriginal();
    showWidths();
  }

  /** Show the layers again while some have an unknown width, which a new reading may have. */
  function showWidths() {
    if (visible && layers.some(({ kept, units }) => kept.length && units === null)) showLayers();
  }

  subscribe("model", (newModel) => {
    model = newModel?.certificate.compression ? newModel : null;
    [search, original, runTimes, layers] = [null, undefined, [], []];
    body.hidden = !model;
    clearCharts(curve);
    setChildren(shares);
    if (!model) return;
    showOriginal();
    const { certificate } = model;
    if (certificate.compression?.curve.length) {
      setChildren(shares, shareTable(certificate));
      setChildren(curve, shareChart(certificate));
    }
    update();
  });
  subscribe("index", () => {
    search = null;
    update();
  });
  subscribe("reading", showWidths);
  watchVisibility(body, (isVisible) => {
    visible = isVisible;
    update();
  });
}

/** A button that chooses the original. */
function buttonOf({ name, version }) {
  const click = () => publish("choose model", { name, version });
  return el("button", { type: "button", class: "plain", on: { click } }, `${name}/${version}`);
}

function summaryText(compression, original) {
  const { units, units_whole, calibration_rows, rows, finetune_epochs, original: digest } = compression;
  const count = (value) => value.toLocaleString("en");
  const training = finetune_epochs
    ? ` They were then trained for ${finetune_epochs} more ${finetune_epochs === 1 ? "epoch" : "epochs"}.`
    : "";
  return [
    `${count(units)} of ${count(units_whole)} units are left, those that change most on ` +
      `${count(calibration_rows)} rows.${training} Accuracy and same answers are those of ${count(rows)} other rows. `,
    original && ["The original is served as ", buttonOf(original)],
    original === null && [
      "The original is not served here. The SHA-256 of its parameters is ",
      el("code", {}, digest),
      ".",
    ],
  ];
}

function noteText(original, runTimes) {
  if (!original) return null;
  return runTimes.length
    ? "Live times are means since the service started, for runs with the same number of rows."
    : "Times of live traffic appear here when both versions have run the same number of rows at once.";
}
