// The header of the page: chosen model, server state, key, theme, and a banner when the server is unreachable.

import { el, setChildren } from "../dom/element.js";
import { elapsed } from "../dom/number_format.js";
import { current, publish, subscribe } from "../state/store.js";
import { createKeyButton } from "./api_key_dialog.js";
import { startTabs } from "./tabs.js";
import { currentTheme, toggleTheme } from "./theme.js";

const STATES = {
  up: ["up", "ok"],
  down: ["unreachable", "alarm"],
  unauthorized: ["key required", "watch"],
};

export function startPageHeader(bar, notice) {
  setChildren(bar, chosenModel(), serverState(), createKeyButton(), themeButton());
  startNotice(notice);
  startTabs();
}

function chosenModel() {
  const link = el("a", { class: "chip", href: "#models", hidden: true });
  subscribe("chosen model", ({ name, version, state }) => {
    const title = `${name}/${version}`;
    link.hidden = false;
    link.title = `Chosen model: ${title}`;
    link.classList.toggle("off", state === "unserved" || state === "failed");
    setChildren(link, el("span", { class: "visually-hidden" }, "Chosen model: "), title);
    document.title = `${title} · turnpike`;
  });
  return link;
}

function serverState() {
  const word = el("span", { class: "server busy" }, "…");
  subscribe("server", (state) => {
    const [label, toneClass] = STATES[state];
    word.className = `server sign ${toneClass}`;
    setChildren(word, el("span", { class: "visually-hidden" }, "Server: "), label);
    document.documentElement.dataset.server = state;
  });
  return word;
}

function themeButton() {
  const button = el("button", { type: "button", on: { click: toggleTheme } });
  const suffix = el("span", { class: "visually-hidden" }, " theme");
  subscribe("theme", () => setChildren(button, currentTheme() === "dark" ? "Light" : "Dark", suffix));
  return button;
}

/** The message is announced to screen readers once; the clock beside it is only shown. */
function startNotice(notice) {
  const message = el("p", { role: "status" });
  const timeText = el("span", {});
  const retryButton = el(
    "button",
    { type: "button", on: { click: () => publish("refresh", true) } },
    "Retry now",
  );
  setChildren(notice, message);
  let since = null;
  let timer;
  subscribe("server", (state) => {
    clearInterval(timer);
    const down = state === "down";
    notice.classList.toggle("banner", down);
    since = down ? performance.now() : null;
    setChildren(message, down && "The server does not answer. The page shows the last known state.");
    setChildren(notice, message, down && [timeText, retryButton]);
    if (down) timer = setInterval(tick, 1000);
    if (down) tick();
  });

  function tick() {
    setChildren(timeText, downtimeText(since));
  }
}

function downtimeText(since) {
  // unlike the time of day, this clock never jumps
  const now = performance.now();
  const next = ((current("next retry") ?? 0) - now) / 1000;
  const down = `Unreachable for ${elapsed((now - since) / 1000)}`;
  return next > 0 ? `${down}, next attempt in ${elapsed(next)}` : `${down}, retrying now`;
}
