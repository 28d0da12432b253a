// A button that copies a text, also where the page came without TLS and browsers hold back the clipboard.

import { el, setChildren } from "../dom/element.js";

const BRIEFLY = 1500;

/** A button that copies what `text()` gives. */
export function copyButton(name, text) {
  const button = el("button", { type: "button", class: "copy" }, name);
  const said = el("span", { class: "visually-hidden", role: "status" });
  button.addEventListener("click", async () => {
    const done = await copied(text());
    setChildren(button, done ? "Copied" : "Not copied");
    said.textContent = done ? "copied" : "the browser does not let this page copy";
    setTimeout(() => {
      setChildren(button, name);
      said.textContent = "";
    }, BRIEFLY);
  });
  return el("div", { class: "copying" }, button, said);
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return byHand(text);
  }
}

function byHand(text) {
  const area = el("textarea", { class: "visually-hidden", tabindex: "-1", "aria-hidden": "true" });
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}
