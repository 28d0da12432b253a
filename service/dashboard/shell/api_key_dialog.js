// The dialog for the API key and the button that opens it.

import { el, setChildren } from "../dom/element.js";
import { get, key, setKey } from "../state/api.js";
import { publish, subscribe } from "../state/store.js";

// characters that an HTTP header can carry
const SENDABLE = /^[!-~]+$/;

/** The button that opens the dialog. The dialog opens by itself when the service requires a key. */
export function createKeyButton() {
  const field = el("input", { type: "password", id: "key-field", autocomplete: "off", required: true });
  const keepBox = el("input", { type: "checkbox", checked: true });
  const message = el("p", { role: "status" });
  const forgetButton = el("button", { type: "button", on: { click: () => use("") } }, "Forget key");
  const closeButton = el("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel");
  const form = el(
    "form",
    { method: "dialog", on: { submit } },
    el("h2", { id: "key-title" }, "API key"),
    message,
    el("label", { class: "field", for: "key-field" }, "Key", field),
    el("label", { class: "check" }, keepBox, "Remember the key in this tab"),
    el(
      "div",
      { class: "toolbar end" },
      forgetButton,
      closeButton,
      el("button", { class: "main" }, "Use key"),
    ),
  );
  const clearField = () => (field.value = "");
  const dialog = el("dialog", { "aria-labelledby": "key-title", on: { close: clearField } }, form);
  document.body.append(dialog);

  const button = el("button", { type: "button", on: { click: show } }, "Key");
  // hidden on a service that requires no key
  button.hidden = !key();
  subscribe("open key dialog", show);
  subscribe("server", (state) => {
    if (state !== "unauthorized") return;
    button.hidden = false;
    show();
  });
  return button;

  function show() {
    if (dialog.open) return;
    setChildren(message, explanation());
    forgetButton.hidden = !key();
    dialog.showModal();
    field.focus();
  }

  function submit(event) {
    event.preventDefault();
    const value = field.value.trim();
    if (SENDABLE.test(value)) use(value);
    else setChildren(message, "Expected a key of ASCII characters without spaces.");
  }

  async function use(value) {
    setKey(value, keepBox.checked);
    setChildren(message, "Checking the key …");
    try {
      await get("v2/models");
      dialog.close();
    } catch (error) {
      setChildren(message, error.status === 401 ? explanation() : error.message);
      field.select();
    }
    forgetButton.hidden = !key();
    publish("key", Boolean(value));
  }
}

function explanation() {
  if (key()) return "This key is wrong: the service does not accept it.";
  return "This service requires an API key. The key is sent only to this server, with every request.";
}
