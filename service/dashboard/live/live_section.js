// Section "Live": polls `/metrics` about every two seconds, and publishes and shows the figures in between.

import { el, setChildren } from "../dom/element.js";
import { getText } from "../state/api.js";
import { current, publish, subscribe } from "../state/store.js";
import { startDriftPanel } from "./drift_panel.js";
import { MetricsHistory } from "./metrics_history.js";
import { parseScrape } from "./metrics_parser.js";
import { startTrafficCharts } from "./traffic_charts.js";

// milliseconds between two polls
const POLL_INTERVAL = 2000;
// with many models the response is expensive: pause this many times its duration, up to a limit
const PAUSE_FACTOR = 20;
const MAX_PAUSE = 8000;
// while polls fail the interval grows up to this; and a poll times out after that many milliseconds
const MAX_RETRY_INTERVAL = 15_000;
const TIMEOUT = 10_000;
const COLLECTING = "Collecting data: the first figures appear in a few seconds.";

export function startLive(body) {
  const notice = el("p", { class: "quiet", role: "status" }, "Loading the server’s figures …");
  const gauges = el("div", { class: "gauges" });
  const drift = el("div", { class: "drift" });
  setChildren(body, notice, gauges, drift);
  const history = new MetricsHistory();
  const show = startTrafficCharts(gauges, history);
  startDriftPanel(drift);
  watchMetrics(history, (text) => {
    setChildren(notice, text);
    notice.hidden = !text;
    body.classList.toggle("stale", !history.now);
    publish("live", history.now);
    show();
  });
}

/** Poll while the page may be looked at; `onUpdate` receives a message if something is wrong, or "". */
function watchMetrics(history, onUpdate) {
  let timer = null;
  let inFlight = false;
  let wait = POLL_INTERVAL;
  let failed = false;

  async function poll() {
    clearTimeout(timer);
    if (document.hidden || inFlight) return;
    inFlight = true;
    const began = performance.now();
    const answer = getText("metrics", AbortSignal.timeout(TIMEOUT));
    const [text, error] = await answer.then(
      (body) => [body, null],
      (reason) => [null, reason],
    );
    inFlight = false;
    failed = error !== null;
    const ended = performance.now();
    const pause = Math.min(Math.max(POLL_INTERVAL, PAUSE_FACTOR * (ended - began)), MAX_PAUSE);
    wait = failed ? Math.min(2 * wait, MAX_RETRY_INTERVAL) : pause;
    // without a key, asking again is pointless
    if (current("server") !== "unauthorized") timer = setTimeout(poll, wait);
    if (failed) history.stop();
    else history.add(parseScrape(text, ended / 1000));
    onUpdate(failed ? messageOf(error) : history.now ? "" : COLLECTING);
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
