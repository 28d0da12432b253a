// Light or dark theme: follows the system until the user chooses. Printing always uses the light theme.

import { readStored, writeStored } from "../state/browser_storage.js";
import { publish } from "../state/store.js";

// key in localStorage; early_theme.js reads it too
const STORAGE_KEY = "turnpike-theme";
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
let printing = false;

/** Apply the stored choice, or else the theme of the system, and follow its changes. */
export function startTheme() {
  systemIsDark.addEventListener("change", applyTheme);
  addEventListener("beforeprint", () => setPrinting(true));
  addEventListener("afterprint", () => setPrinting(false));
  applyTheme();
}

/** Switch to the other theme and store the choice; choosing the system's theme removes the stored choice. */
export function toggleTheme() {
  const next = currentTheme() === "dark" ? "light" : "dark";
  writeStored("localStorage", STORAGE_KEY, next === systemTheme() ? null : next);
  applyTheme();
}

export function currentTheme() {
  if (printing) return "light";
  const stored = readStored("localStorage", STORAGE_KEY);
  return stored === "dark" || stored === "light" ? stored : systemTheme();
}

/** The value of a colour variable of the style sheet, for example `color("--text")`. */
export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function systemTheme() {
  return systemIsDark.matches ? "dark" : "light";
}

function setPrinting(now) {
  printing = now;
  applyTheme();
}

function applyTheme() {
  document.documentElement.dataset.theme = currentTheme();
  publish("theme", currentTheme());
}
