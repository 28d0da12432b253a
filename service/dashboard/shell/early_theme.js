// Sets the light or dark theme before the first paint. A module would run too late, and a page in dark mode
// would flash white. Same rules as theme.js.
{
  /** @type {string|null} */
  let stored = null;
  try {
    stored = localStorage.getItem("turnpike-theme");
  } catch {
    // storage is blocked: follow the system
  }
  const systemDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const system = systemDark ? "dark" : "light";
  document.documentElement.dataset.theme = stored === "dark" || stored === "light" ? stored : system;
}
