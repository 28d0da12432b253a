// Light or dark before anything is painted: modules run later than this, and a dark room would see a flash.
{
  let chosen = null;
  try {
    chosen = localStorage.getItem("turnpike-theme");
  } catch {
    // kept nothing, so the system says
  }
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const known = chosen === "dark" || chosen === "light";
  document.documentElement.dataset.theme = known ? chosen : dark ? "dark" : "light";
}
