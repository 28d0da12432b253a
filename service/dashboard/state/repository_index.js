// The repository's index, read again and again: seldom, and sooner while the server is gone or loads a model.

import { post } from "./api.js";
import { current, publish, subscribe } from "./store.js";

const EVERY = 10_000;
const FIRST_TRY = 1500;
const PATIENCE = 8000;

let timer;
let tries = 0;
let looking = null;
let loading = false;
let said = "";

/** Publish `index` from now on, whenever it has changed; `failed` hears why the API has none. */
export function startRepositoryIndex(failed) {
  const again = () => look(failed);
  document.addEventListener("visibilitychange", again);
  subscribe("key", again);
  subscribe("refresh", again);
  subscribe("server", (state) => {
    // told by another room: this one tries, or reads what may have changed
    if (!looking && state === "down" && !tries) wait(again);
    if (!looking && state === "up" && tries) again();
  });
  again();
}

async function look(failed) {
  clearTimeout(timer);
  if (document.visibilityState === "hidden") return;
  looking?.abort();
  const mine = new AbortController();
  looking = mine;
  // one that hangs is gone, too: this is no AbortError, and so api.js says it
  const late = setTimeout(() => mine.abort("late"), PATIENCE);
  try {
    const index = await post("v2/repository/index", {}, mine.signal);
    tries = 0;
    loading = index.some((one) => one.state === "LOADING");
    const now = JSON.stringify(index);
    if (now !== said) publish("index", index);
    said = now;
  } catch (error) {
    if (mine !== looking) return;
    said = "";
    const { status } = error;
    // a proxy answers for servers that are gone
    if (status >= 502 && current("server") !== "down") publish("server", "down");
    // what is amiss with the server as a whole is told by its state
    if (current("server") === "up") failed(error);
  } finally {
    clearTimeout(late);
    if (mine === looking) {
      looking = null;
      wait(() => look(failed));
    }
  }
}

/** The next look, unless a key has to come first. */
function wait(again) {
  clearTimeout(timer);
  const state = current("server");
  if (state === "unauthorized") return;
  const gone = state === "down";
  const after = gone ? Math.min(EVERY, FIRST_TRY * 2 ** tries) : loading ? FIRST_TRY : EVERY;
  if (gone) tries += 1;
  publish("next retry", gone ? Date.now() + after : null);
  timer = setTimeout(again, after);
}
