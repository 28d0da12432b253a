// The road: the way of a row through the layers, from the input to the answer. A press on a layer closes it.

import { el, setChildren } from "../dom/element.js";
import { number } from "../dom/number_format.js";
import { resetLayers, setLever, setLevers } from "../state/lesion.js";
import { predictedClass, answerText } from "../row/predicted_class.js";
import { readingTitle } from "../state/levers.js";
import { current, publish, subscribe } from "../state/store.js";
import { startLinkButton } from "../share/link_button.js";
import { showAnswer } from "./answer_sign.js";
import { findFlips } from "./flip_search.js";
import { keptRoad } from "./kept_road.js";
import { layerButtons } from "./layer_buttons.js";
import { leverSlider } from "./lever_slider.js";
import { roadLayers, sharesOf } from "./road_layers.js";
import { RoadPicture } from "./road_picture.js";
import { rowThumbnail } from "./row_thumbnail.js";
import { savePicture } from "./saved_picture.js";
import { shareTransition } from "./share_transition.js";

// shortest stretch in rem: of more layers the road scrolls within its box
const MIN_STRETCH = 0.95;
// share of the picture's height for the road and for the widest ramp, and in between
const [ROAD_SHARE, GAP_SHARE] = [0.44, 0.07];

/** @type {import("./flip_search.js").Flips} */
const NO_FLIPS = { flipping: [], strongest: null, change: 0 };
const HINT =
  "Press a layer to close it: nothing is transformed there, and the row is carried past. Its lever moves it bit by bit.";

/**
 * @typedef {import("../state/store.js").Model} Model
 * @typedef {import("../state/store.js").Reading} Reading
 * @typedef {import("../state/store.js").TellingSample} TellingSample
 *
 * What a search for layers found, or why it failed.
 * @typedef {({error: Error}|(import("./flip_search.js").Flips & {error?: undefined}))
 *   & {row: import("../state/store.js").Row}} Found
 */

export function startRoad(node) {
  const picture = new RoadPicture();
  const buttonsNode = el("div", { class: "layer-buttons" });
  const keptNode = el("div", { class: "kept-road" });
  const track = el("div", { class: "road-track" }, picture.node, buttonsNode);
  const start = el("div", { class: "road-start" });
  const sign = el("div", { class: "road-answer" });
  const message = el("p", { class: "road-message", role: "status" });
  const flipButton = el("button", { type: "button", on: { click: searchFlips } }, "Which layer flips it?");
  const resetButton = el("button", { type: "button", on: { click: resetLayers } }, "Reset layers");
  const keepButton = el("button", { type: "button", on: { click: keep } }, "Keep as A");
  const saveButton = el("button", { type: "button", on: { click: save } }, "Save PNG");
  const [leverNode, link] = [el("div", { class: "lever" }), el("div")];
  const linkNote = el("p", { class: "link-note", role: "status" });
  const scroll = el("div", { class: "road-scroll" }, keptNode, track);
  const scene = el("div", { class: "road-scene" }, start, scroll, sign);
  const tools = el("div", { class: "road-tools" }, flipButton, resetButton, keepButton, link, saveButton);
  const noRoad = el("p", { class: "empty" });
  const title = el("h3");
  const head = el("div", { class: "road-head" }, title, laneKeys());
  setChildren(node, head, noRoad, scene, message, leverNode, tools, linkNote);

  startLinkButton(link, linkNote);
  const kept = keptRoad(keptNode);
  const slider = leverSlider(leverNode, setLever);
  const buttons = layerButtons(buttonsNode, { onPress: setLever, onReach: slider.showLayer });
  const thumbnail = rowThumbnail(start);
  const moveTo = shareTransition((shares) => picture.draw(shares));
  /** @type {Model|null} */
  let model = null;
  /** @type {import("./road_layers.js").RoadLayer[]} */
  let layers = [];
  /** @type {import("./road_layers.js").RoadStretch[]} */
  let stretches = [];
  /** @type {Reading|null} */
  let reading = null;
  /** @type {AbortController|null} */
  let search = null;
  /** @type {Found|null} */
  let found = null;
  /** @type {TellingSample|null} */
  let telling = null;
  /** @type {number|null}  the layer of that sample, if its row is shown and nothing is moved yet */
  let pointed = null;

  function showModel(newModel) {
    model = newModel;
    layers = roadLayers(model?.gates ?? []);
    stretches = layers.flatMap((layer) => layer.stretches);
    picture.setCount(stretches.length);
    kept.setStretches(stretches);
    buttons.setLayers(layers);
    thumbnail.setModel(model);
    const hasRoad = layers.length > 0;
    setChildren(title, titleText(layers.length));
    for (const part of [head, scene, message, tools]) part.hidden = !hasRoad;
    noRoad.hidden = hasRoad;
    setChildren(noRoad, model && !hasRoad && noRoadText(model));
    forgetFlips();
    resize();
    showReading(current("shown reading"));
    showLevers(current("levers"));
  }

  function showReading(shown) {
    reading = shown && fits(shown) ? shown : null;
    const shares = sharesOf(stretches, reading);
    moveTo(shares);
    buttons.showShares(shares);
    drawBarriers();
    thumbnail.showRow(reading?.row);
    keepButton.disabled = saveButton.disabled = !reading;
    showAnswer(sign, model?.certificate, reading, reading?.levers ? current("reading") : null);
    flipButton.disabled = !reading;
    pointAtLayer();
    if (model && reading) flipButton.hidden = !predictedClass(model.certificate, reading.outputs);
    showMessage();
  }

  /** A late response may belong to the model before. */
  function fits({ gates }) {
    const known = model?.gates;
    return known !== undefined && gates.every(({ name }, n) => name === known[n]?.name);
  }

  function showLevers(leverState) {
    const levers = leverState?.levers ?? new Map();
    buttons.showLevers(levers);
    slider.showLevers(levers);
    resetButton.disabled = levers.size === 0;
    node.classList.toggle("moved", levers.size > 0);
    pointAtLayer();
    drawBarriers();
    showMessage();
  }

  function pointAtLayer() {
    const moved = current("levers")?.levers.size;
    const next = telling && !moved && !found && reading?.row.title === telling.title ? telling.layer : null;
    if (next === pointed) return;
    pointed = next;
    buttons.point(pointed);
  }

  function drawBarriers() {
    const levers = current("levers")?.levers ?? new Map();
    const original = sharesOf(stretches, current("reading") ?? null);
    picture.drawBarriers(
      stretches.map(({ group }) => levers.get(group.layer) ?? "as trained"),
      original,
    );
  }

  function resize() {
    if (!stretches.length || !scroll.clientWidth) return;
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const stretch = Math.max(scroll.clientWidth / stretches.length, MIN_STRETCH * rem);
    const height = parseFloat(getComputedStyle(scroll).getPropertyValue("--road-height")) * rem;
    const width = ROAD_SHARE * height;
    const size = { stretch, width, gap: GAP_SHARE * height, margin: 4 };
    picture.resize(size);
    kept.resize(size);
    track.style.setProperty("width", `${stretch * stretches.length}px`);
    buttons.thinNumbers(stretch);
    picture.draw(sharesOf(stretches, reading));
    drawBarriers();
  }

  function showMessage() {
    const { state, message: problem } = current("levers") ?? {};
    message.classList.toggle("failed", state === "failed" || Boolean(found?.error));
    message.classList.toggle("pointing", pointed !== null);
    setChildren(message, messageText(state, problem));
  }

  function messageText(state, problem) {
    if (state === "failed") return `The layers could not be changed: ${problem}`;
    if (!reading) return "Make or choose a row to see its way through the layers.";
    if (!reading.gates.length) return reading.missing;
    if (search) return "Closing each layer in turn …";
    if (found) return foundContent(found, telling);
    return pointed === null || !telling ? HINT : tellingText(telling);
  }

  async function searchFlips() {
    if (!model || !reading) return;
    search?.abort();
    const controller = (search = new AbortController());
    const { row } = reading;
    showMessage();
    const result = await findFlips(model, row, controller.signal).catch((error) => ({ error }));
    if (controller !== search) return;
    search = null;
    // the user drew on in the meantime
    if (current("reading")?.row !== row) return showMessage();
    found = { row, ...result };
    pointAtLayer();
    const { flipping, strongest } = found.error ? NO_FLIPS : found;
    buttons.markFlips(flipping);
    if (flipping.length && strongest !== null) {
      setLevers(new Map([[strongest, "closed"]]));
      buttons.reveal(strongest, scroll);
    }
    showMessage();
  }

  function keep() {
    publish("kept reading", reading);
  }

  function save() {
    if (!model || !reading) return;
    const { certificate, name, version } = model;
    const content = {
      road: picture.node,
      row: thumbnail.canvas(),
      title: `${name}/${version}: ${readingTitle(reading)}`,
      answer: answerText(certificate, reading.outputs) ?? "",
      keys: picture.laneColors(),
    };
    savePicture(content, `${name}-${version}-road`).catch(reportError);
  }

  function forgetFlips() {
    search?.abort();
    [search, found] = [null, null];
    buttons.markFlips([]);
  }

  subscribe("model", showModel);
  subscribe("telling sample", (sample) => {
    telling = sample;
    pointAtLayer();
    showMessage();
  });
  subscribe("reading", (latest) => {
    if (found && latest?.row !== found.row) forgetFlips();
  });
  subscribe("shown reading", showReading);
  subscribe("levers", showLevers);
  new ResizeObserver(resize).observe(scroll);
}

function laneKeys() {
  const key = (kind, text) => el("span", { class: `lane-key ${kind}` }, text);
  const keys = [key("carried", "carried"), key("transformed", "transformed by H"), key("as-trained", "as trained")];
  return el("p", { class: "lane-keys" }, keys);
}

function titleText(count) {
  return count === 1 ? "The way through the layer" : `The way through ${count} layers`;
}

function noRoadText({ name }) {
  return `${name} has no gates that are known, so there is no road to show: nothing says what its layers carry over.`;
}

function tellingText({ layer, after }) {
  return `Press layer ${layer} to close it: it then transforms nothing, carries the row past unchanged, and the answer becomes ${after}.`;
}

/**
 * What was found; if no layer flips the answer, with a way to the sample that one does.
 *
 * @param {Found} found
 * @param {TellingSample|null} telling
 */
function foundContent(found, telling) {
  const text = foundText(found);
  if (found.error || found.flipping.length || !telling) return text;
  const button = el("button", { type: "button", on: { click: telling.open } }, `Open ${telling.title}`);
  return [text, ` Layer ${telling.layer} flips another row: `, button];
}

/** @param {Found} found */
function foundText(found) {
  if (found.error) return `The layers could not be tried: ${found.error.message}`;
  const { flipping, strongest, change } = found;
  if (strongest === null) return "No layer of this model can be closed.";
  if (!flipping.length) {
    const points = `${number(Math.abs(100 * change))} percentage points`;
    const effect = `${change < 0 ? "lowers" : "raises"} the answer's probability by ${points}`;
    return `No layer flips this answer alone. Layer ${strongest} changes it most: closed, it ${effect}.`;
  }
  const others = flipping.filter((layer) => layer !== strongest);
  const also = others.length ? ` ${others.length > 1 ? "Layers" : "Layer"} ${others.join(", ")} would, too.` : "";
  return `Layer ${strongest} alone, closed here, flips the answer.${also}`;
}
