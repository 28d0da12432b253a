// The chosen model: chosen by the user or the address, or else the first one that is served. The choice is kept
// in the address, so that it survives a reload and can be shared.

import { get, modelPath } from "./api.js";
import { modelFacts } from "./model_facts.js";
import { modelHash, modelIn, tabIn, withTab } from "./page_address.js";
import { current, publish, subscribe } from "./store.js";

// milliseconds between checks whether the model file was replaced under the same version
const FILE_CHECK_INTERVAL = 60_000;

let latestLoad = 0;
// after an outage another server may be running, with other files
let serverWasDown = false;

/** Publish `chosen model` (which one, and its state) and `model` (everything known of it) from now on. */
export function startChosenModel() {
  subscribe("choose model", choose);
  subscribe("index", followIndex);
  addEventListener("popstate", followAddress);
  // the user edited the address
  addEventListener("hashchange", followAddress);
  subscribe("server", (state) => (serverWasDown ||= state === "down"));
  setInterval(checkFile, FILE_CHECK_INTERVAL);
}

/**
 * Whether both name the same version of the same model.
 *
 * @param {import("./store.js").ModelVersion|null|undefined} a
 * @param {import("./store.js").ModelVersion|null|undefined} b
 */
export function sameVersion(a, b) {
  if (!a || !b) return false;
  return a.name === b.name && a.version === b.version;
}

function choose({ name, version }) {
  writeAddress({ name, version });
  load({ name, version });
}

function followAddress() {
  const target = modelIn(location.hash) ?? firstServed();
  if (target && !sameVersion(target, current("chosen model"))) load(target);
}

/** React to a new index: load the chosen version, or report that it is not served. */
function followIndex(index) {
  const chosen = current("chosen model");
  if (!chosen) {
    const target = modelIn(location.hash) ?? firstServed();
    if (target) load(target);
    else publish("model", null);
    return;
  }
  const entry = index.find((candidate) => sameVersion(candidate, chosen));
  if (entry?.state === "READY") {
    if (serverWasDown || chosen.state === "unserved" || chosen.state === "failed") load(chosen);
    serverWasDown = false;
  } else {
    publish("chosen model", { ...chosen, state: "unserved", message: unservedReason(entry) });
  }
}

async function load({ name, version }) {
  const thisLoad = (latestLoad += 1);
  const publishState = (state, message = "") => publish("chosen model", { name, version, state, message });
  const entry = current("index")?.find((candidate) => sameVersion(candidate, { name, version }));
  if (entry?.state !== "READY") {
    publishState("unserved", unservedReason(entry));
    if (!sameVersion(current("model"), { name, version })) publish("model", null);
    return;
  }
  publishState("loading");
  try {
    const model = await fetchModel({ name, version });
    if (thisLoad !== latestLoad) return;
    publishState("ready");
    // an unchanged file must not reset what the page shows
    const before = current("model");
    const unchanged = sameVersion(before, model) && before?.certificate.digest === model.certificate.digest;
    if (!unchanged) publish("model", model);
  } catch (error) {
    if (thisLoad !== latestLoad) return;
    publishState("failed", error.message);
    if (!sameVersion(current("model"), { name, version })) publish("model", null);
  }
}

/** Reload the model if the server now serves another file under the same version. */
async function checkFile() {
  const model = current("model");
  if (!model || document.visibilityState === "hidden" || current("server") !== "up") return;
  const now = await get(`${model.path}/certificate`).catch(() => null);
  if (now && now.digest !== model.certificate.digest && current("model") === model) load(model);
}

/** @returns {Promise<import("./store.js").Model>} */
async function fetchModel({ name, version }) {
  const path = modelPath(name, version);
  const { metadata, certificate } = await modelFacts({ name, version }, { fresh: true });
  const profile = certificate.gates ? await get(`${path}/gates/profile`) : null;
  const { inputs, outputs } = metadata;
  return { name, version, path, inputs, outputs, certificate, profile, gates: profile?.gates ?? [] };
}

function firstServed() {
  return current("index")?.find((entry) => entry.state === "READY");
}

function unservedReason(entry) {
  if (!entry) return "no such version is in the repository";
  if (entry.state === "LOADING") return "it is being loaded";
  return entry.reason || "it is not served";
}

/** Put the chosen model into the address, as a new entry in the browser history. */
function writeAddress(model) {
  if (sameVersion(modelIn(location.hash), model)) return;
  history.pushState(null, "", withTab(modelHash(model), tabIn(location.hash)));
}
