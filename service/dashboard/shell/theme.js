// Light or dark: what the system says, until a person says otherwise. Paper is light.

import { writeStored, readStored } from "../state/browser_storage.js";
import { publish } from "../state/store.js";

// early_theme.js reads it, too
const CHOICE = "turnpike-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");
let printing = false;

/** Follow the system and what was chosen before. */
export function startTheme() {
  dark.addEventListener("change", show);
  addEventListener("beforeprint", () => onPaper(true));
  addEventListener("afterprint", () => onPaper(false));
  show();
}

/** The other one, from now on; where that is the system's, it is followed again. */
export function toggleTheme() {
  const wanted = currentTheme() === "dark" ? "light" : "dark";
  writeStored("localStorage", CHOICE, wanted === system() ? null : wanted);
  show();
}

export function currentTheme() {
  if (printing) return "light";
  const chosen = readStored("localStorage", CHOICE);
  return chosen === "dark" || chosen === "light" ? chosen : system();
}

/** A colour of the sheet: `color("--text")`. */
export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function system() {
  return dark.matches ? "dark" : "light";
}

function onPaper(now) {
  printing = now;
  show();
}

function show() {
  document.documentElement.dataset.theme = currentTheme();
  publish("theme", currentTheme());
}
