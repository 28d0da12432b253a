// What stands above all sections: where one is, which model it is about, the server's state, key and theme.

import { el, setChildren } from "../dom/element.js";
import { elapsed } from "../dom/number_format.js";
import { createKeyButton } from "./api_key_dialog.js";
import { startSectionLinks } from "./section_links.js";
import { current, publish, subscribe } from "../state/store.js";
import { currentTheme, toggleTheme } from "./theme.js";

const STATES = {
  up: ["up", "ok"],
  gone: ["down", "alarm"],
  unauthorized: ["key wanted", "watch"],
};

export function startPageHeader(bar, notice) {
  setChildren(bar, chosenModel(), serverState(), createKeyButton(), themeButton());
  startNotice(notice);
  startSectionLinks();
}

function chosenModel() {
  const link = el("a", { class: "chip", href: "#models", hidden: true });
  subscribe("chosen model", ({ name, version, state }) => {
    const title = `${name}/${version}`;
    link.hidden = false;
    link.title = `The chosen model: ${title}`;
    link.classList.toggle("off", state === "unserved" || state === "failed");
    setChildren(link, el("span", { class: "only-read" }, "Chosen model: "), title);
    document.title = `${title} · turnpike`;
  });
  return link;
}

function serverState() {
  const word = el("span", { class: "server busy" }, "…");
  subscribe("server", (state) => {
    const [said, tone] = STATES[state];
    word.className = `server sign ${tone}`;
    setChildren(word, el("span", { class: "only-read" }, "Server: "), said);
    document.documentElement.dataset.server = state;
  });
  return word;
}

function themeButton() {
  const button = el("button", { type: "button", on: { click: toggleTheme } });
  const colours = el("span", { class: "only-read" }, " colours");
  subscribe("theme", () => setChildren(button, currentTheme() === "dark" ? "Light" : "Dark", colours));
  return button;
}

/** That the server is gone is said once; for how long is shown, and not read out each second. */
function startNotice(notice) {
  const said = el("p", { role: "status" });
  const clock = el("span", {});
  const now = el("button", { type: "button", on: { click: () => publish("refresh", true) } }, "Try now");
  setChildren(notice, said);
  let since = null;
  let timer;
  subscribe("server", (state) => {
    clearInterval(timer);
    const gone = state === "down";
    notice.classList.toggle("banner", gone);
    since = gone ? Date.now() : null;
    setChildren(said, gone && "The server does not answer: what is shown is from before.");
    setChildren(notice, said, gone && [clock, now]);
    if (gone) timer = setInterval(tick, 1000);
    if (gone) tick();
  });

  function tick() {
    setChildren(clock, clockOf(since));
  }
}

function clockOf(since) {
  const next = ((current("next retry") ?? 0) - Date.now()) / 1000;
  const gone = `Gone for ${elapsed((Date.now() - since) / 1000)}`;
  return next > 0 ? `${gone}, next try in ${elapsed(next)}` : `${gone}, trying`;
}
