// A button that copies text, also on pages without TLS, where browsers disable the clipboard API.

import { el, setChildren } from "./element.js";

// milliseconds that the result is shown
const RESULT_DURATION = 1500;

/** A button that copies what `text()` returns. */
export function copyButton(name, text) {
  const button = el("button", { type: "button", class: "copy" }, name);
  const status = el("span", { class: "visually-hidden", role: "status" });
  button.addEventListener("click", async () => {
    const succeeded = await copyText(text());
    setChildren(button, succeeded ? "Copied" : "Not copied");
    status.textContent = succeeded ? "copied" : "the browser does not allow this page to copy";
    setTimeout(() => {
      setChildren(button, name);
      status.textContent = "";
    }, RESULT_DURATION);
  });
  return el("div", { class: "copying" }, button, status);
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyWithCommand(text);
  }
}

function copyWithCommand(text) {
  const area = el("textarea", { class: "visually-hidden", tabindex: "-1", "aria-hidden": "true" });
  area.value = text;
  document.body.append(area);
  area.select();
  const succeeded = document.execCommand("copy");
  area.remove();
  return succeeded;
}
