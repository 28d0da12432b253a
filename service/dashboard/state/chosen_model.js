// Which model the page is about: chosen by a person, by the address, or else the first that is served.

import { writeAddress, modelInAddress } from "./page_address.js";
import { get, modelPath } from "./api.js";
import { modelFacts } from "./model_facts.js";
import { current, publish, subscribe } from "./store.js";

// a file can be put in the place of another without a new version
const COMPARED_EVERY = 60_000;

let turn = 0;
// the server was gone: another may be there now, with other files
let suspect = false;

/** Publish `chosen` (which, and how that stands) and `model` (all that is known of it) from now on. */
export function startChosenModel() {
  subscribe("choose model", choose);
  subscribe("index", settle);
  addEventListener("popstate", follow);
  // an address written by hand
  addEventListener("hashchange", follow);
  subscribe("server", (state) => (suspect ||= state === "down"));
  setInterval(compare, COMPARED_EVERY);
}

/** Whether these are one version. */
export function sameVersion(one, other) {
  return Boolean(one && other) && one.name === other.name && one.version === other.version;
}

function choose({ name, version }) {
  writeAddress({ name, version });
  take({ name, version });
}

function follow() {
  const wanted = modelInAddress() ?? firstServed();
  if (wanted && !sameVersion(wanted, current("chosen model"))) take(wanted);
}

/** What the index means for what is chosen. */
function settle(index) {
  const chosen = current("chosen model");
  if (!chosen) {
    const wanted = modelInAddress() ?? firstServed();
    if (wanted) take(wanted);
    else publish("model", null);
    return;
  }
  const entry = index.find((one) => sameVersion(one, chosen));
  if (entry?.state === "READY") {
    if (suspect || chosen.state === "unserved" || chosen.state === "failed") take(chosen);
    suspect = false;
  } else {
    publish("chosen model", { ...chosen, state: "unserved", message: whyNot(entry) });
  }
}

async function take({ name, version }) {
  const mine = (turn += 1);
  const say = (state, message = "") => publish("chosen model", { name, version, state, message });
  const entry = current("index")?.find((one) => sameVersion(one, { name, version }));
  if (entry?.state !== "READY") {
    say("unserved", whyNot(entry));
    if (!sameVersion(current("model"), { name, version })) publish("model", null);
    return;
  }
  say("loading");
  try {
    const model = await wholeOf({ name, version });
    if (mine !== turn) return;
    say("ready");
    // the very same file as before disturbs nobody
    const before = current("model");
    const known = sameVersion(before, model) && before.certificate.digest === model.certificate.digest;
    if (!known) publish("model", model);
  } catch (error) {
    if (mine !== turn) return;
    say("failed", error.message);
    if (!sameVersion(current("model"), { name, version })) publish("model", null);
  }
}

/** Whether what is served is still the file that the page is about. */
async function compare() {
  const model = current("model");
  if (!model || document.visibilityState === "hidden" || current("server") !== "up") return;
  const now = await get(`${model.path}/certificate`).catch(() => null);
  if (now && now.digest !== model.certificate.digest && current("model") === model) take(model);
}

/** @returns {Promise<import("./store.js").About>} */
async function wholeOf({ name, version }) {
  const path = modelPath(name, version);
  const { metadata, certificate } = await modelFacts({ name, version }, { fresh: true });
  const profile = certificate.gates ? await get(`${path}/gates/profile`) : null;
  const { inputs, outputs } = metadata;
  return { name, version, path, inputs, outputs, certificate, profile, gates: profile?.gates ?? [] };
}

function firstServed() {
  return current("index")?.find((entry) => entry.state === "READY");
}

function whyNot(entry) {
  if (!entry) return "no such version is in the repository";
  if (entry.state === "LOADING") return "it is being loaded";
  return entry.reason || "it is not served";
}
