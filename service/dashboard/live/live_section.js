// The section live: `/metrics` is read every two seconds or so, and what came between is told to the whole page.

import { getText } from "../state/api.js";
import { startDriftPanel } from "./drift_panel.js";
import { el, setChildren } from "../dom/element.js";
import { parseScrape } from "./metrics_parser.js";
import { startTrafficCharts } from "./traffic_charts.js";
import { MetricsHistory } from "./metrics_history.js";
import { current, publish, subscribe } from "../state/store.js";

const PACE = 2000;
// of many models the answer costs the server much: it rests so many times as long as it took, up to a limit
const REST = 20;
const MOST_REST = 8000;
// while there is no answer the pace slows down to this, and so long an answer may take
const SLOWEST = 15_000;
const PATIENCE = 10_000;
const COLLECTING = "Collecting: the first figures come with the next look, in some seconds.";

export function startLive(body) {
  const notice = el("p", { class: "quiet", role: "status" }, "Asking the server for its figures…");
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

/** Look, and look again, as long as somebody may be looking at the page; `tell` hears what is amiss. */
function watchMetrics(history, tell) {
  let timer = null;
  let asking = false;
  let wait = PACE;
  let failed = false;

  async function look() {
    clearTimeout(timer);
    if (document.hidden || asking) return;
    asking = true;
    const began = performance.now();
    const answer = getText("metrics", AbortSignal.timeout(PATIENCE));
    const [text, error] = await answer.then((told) => [told, null], (failure) => [null, failure]);
    asking = false;
    failed = error !== null;
    const ended = performance.now();
    const rest = Math.min(Math.max(PACE, REST * (ended - began)), MOST_REST);
    wait = failed ? Math.min(2 * wait, SLOWEST) : rest;
    // without a key there is no use in asking again before there is one
    if (current("server") !== "unauthorized") timer = setTimeout(look, wait);
    if (failed) history.stop();
    else history.add(parseScrape(text, ended / 1000));
    tell(failed ? sentence(error) : history.now ? "" : COLLECTING);
  }

  document.addEventListener("visibilitychange", look);
  subscribe("server", (state) => {
    if (state === "up" && failed && !asking) look();
  });
  look();
}

function sentence(error) {
  if (error.status === 0) return "The server cannot be reached: these are its last figures.";
  if (error.status === 401) return "The server's figures want a key: give one above.";
  return `The server does not tell its figures: ${error.message}`;
}
