// Section "Live": asks the server for its traffic every few seconds, and publishes and shows it.

import { el, setChildren } from "../dom/element.js";
import { get } from "../state/api.js";
import { current, publish, subscribe } from "../state/store.js";
import { startDriftPanel } from "./drift_panel.js";
import { startTrafficCharts } from "./traffic_charts.js";
import { TrafficHistory } from "./traffic_history.js";

// milliseconds between two requests until the server has said how often it has new figures
const FIRST_INTERVAL = 3000;
// while requests fail the interval grows up to this; and a request times out after that many milliseconds
const MAX_RETRY_INTERVAL = 15_000;
const TIMEOUT = 10_000;
const COLLECTING = "Collecting data: the first figures appear in a few seconds.";

export function startLive(body) {
  const notice = el("p", { class: "quiet", role: "status" }, "Loading the server’s figures …");
  const gauges = el("div", { class: "gauges" });
  const drift = el("div", { class: "drift" });
  setChildren(body, notice, gauges, drift);
  const history = new TrafficHistory();
  const show = startTrafficCharts(gauges, history);
  startDriftPanel(drift);
  watchTraffic(history, (text) => {
    setChildren(notice, text);
    notice.hidden = !text;
    body.classList.toggle("stale", text !== "");
    publish("live", text ? null : history);
    show();
  });
}

/** Ask while the page may be looked at; `onUpdate` receives a message if something is wrong, or "". */
function watchTraffic(history, onUpdate) {
  let timer = null;
  let inFlight = false;
  let wait = FIRST_INTERVAL;
  let failed = false;

  async function poll() {
    clearTimeout(timer);
    if (document.hidden || inFlight) return;
    inFlight = true;
    const answer = get(`traffic?after=${history.lastAt}`, AbortSignal.timeout(TIMEOUT));
    const [traffic, error] = await answer.then(
      (body) => [body, null],
      (reason) => [null, reason],
    );
    inFlight = false;
    failed = error !== null;
    const sameRun = failed || history.add(traffic);
    // without a key, asking again is pointless
    if (failed) wait = Math.min(2 * wait, MAX_RETRY_INTERVAL);
    else wait = sameRun ? 1000 * history.momentSeconds : 0;
    if (current("server") !== "unauthorized") timer = setTimeout(poll, wait);
    onUpdate(failed ? messageOf(error) : history.latest ? "" : COLLECTING);
  }

  document.addEventListener("visibilitychange", poll);
  subscribe("server", (state) => {
    if (state === "up" && failed && !inFlight) poll();
  });
  poll();
}

function messageOf(error) {
  if (error.status === 0) return "The server cannot be reached. These are the last known figures.";
  if (error.status === 401) return "The figures require an API key. Enter it with the button above.";
  return `The figures could not be loaded: ${error.message}`;
}
