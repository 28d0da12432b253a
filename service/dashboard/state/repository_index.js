// Polls the repository index: every 10 seconds, and sooner while the server is down or a model is loading.

import { post } from "./api.js";
import { current, publish, subscribe } from "./store.js";

// milliseconds
const POLL_INTERVAL = 10_000;
const FIRST_RETRY = 1500;
const TIMEOUT = 8000;

let timer;
let failures = 0;
let inFlight = null;
let loading = false;
let published = "";

/** Publish `index` whenever it changes; `onError` receives the error when the API returns none. */
export function startRepositoryIndex(onError) {
  const pollAgain = () => poll(onError);
  document.addEventListener("visibilitychange", pollAgain);
  subscribe("key", pollAgain);
  subscribe("refresh", pollAgain);
  subscribe("server", (state) => {
    // another module noticed the state: retry, or read what may have changed
    if (!inFlight && state === "down" && !failures) schedulePoll(pollAgain);
    if (!inFlight && state === "up" && failures) pollAgain();
  });
  pollAgain();
}

async function poll(onError) {
  clearTimeout(timer);
  if (document.visibilityState === "hidden") return;
  inFlight?.abort();
  const controller = new AbortController();
  inFlight = controller;
  // a server that hangs counts as down; this abort is not an AbortError, so api.js reports it
  const timeout = setTimeout(() => controller.abort("late"), TIMEOUT);
  try {
    const index = await post("v2/repository/index", {}, controller.signal);
    failures = 0;
    loading = index.some((entry) => entry.state === "LOADING");
    const now = JSON.stringify(index);
    if (now !== published) publish("index", index);
    published = now;
  } catch (error) {
    if (controller !== inFlight) return;
    published = "";
    const { status } = error;
    // a proxy answers 502 to 504 for a server that is down
    if (status >= 502 && current("server") !== "down") publish("server", "down");
    // other problems are shown by the server state
    if (current("server") === "up") onError(error);
  } finally {
    clearTimeout(timeout);
    if (controller === inFlight) {
      inFlight = null;
      schedulePoll(() => poll(onError));
    }
  }
}

/** Schedule the next poll, unless a key is needed first. */
function schedulePoll(pollAgain) {
  clearTimeout(timer);
  const state = current("server");
  if (state === "unauthorized") return;
  const down = state === "down";
  const delay = down
    ? Math.min(POLL_INTERVAL, FIRST_RETRY * 2 ** failures)
    : loading
      ? FIRST_RETRY
      : POLL_INTERVAL;
  if (down) failures += 1;
  publish("next retry", down ? performance.now() + delay : null);
  timer = setTimeout(pollAgain, delay);
}
