// The key of the service: asked for where one is wanted, kept for this tab, forgotten when told so.

import { get, key, setKey } from "../state/api.js";
import { el, setChildren } from "../dom/element.js";
import { publish, subscribe } from "../state/store.js";

// what a header can carry
const SENDABLE = /^[!-~]+$/;

/** The button that opens the dialog; the dialog opens by itself where the service wants a key. */
export function createKeyButton() {
  const field = el("input", { type: "password", id: "key-field", autocomplete: "off", required: true });
  const kept = el("input", { type: "checkbox", checked: true });
  const words = el("p", { role: "status" });
  const forget = el("button", { type: "button", on: { click: () => use("") } }, "Forget the key");
  const close = el("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel");
  const form = el(
    "form",
    { method: "dialog", on: { submit } },
    el("h2", { id: "key-title" }, "The key of this service"),
    words,
    el("label", { class: "field", for: "key-field" }, "Key", field),
    el("label", { class: "check" }, kept, "Keep it for this tab, over a reload"),
    el("div", { class: "toolbar end" }, forget, close, el("button", { class: "main" }, "Use this key")),
  );
  const forgetTyped = () => (field.value = "");
  const dialog = el("dialog", { "aria-labelledby": "key-title", on: { close: forgetTyped } }, form);
  document.body.append(dialog);

  const button = el("button", { type: "button", on: { click: show } }, "Key");
  // a service that is open to all has no need of it
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
    setChildren(words, told());
    forget.hidden = !key();
    dialog.showModal();
    field.focus();
  }

  function submit(event) {
    event.preventDefault();
    const wanted = field.value.trim();
    if (SENDABLE.test(wanted)) use(wanted);
    else setChildren(words, "Expected a key of ASCII characters without spaces, got others.");
  }

  async function use(value) {
    setKey(value, kept.checked);
    setChildren(words, "Trying it …");
    try {
      await get("v2/models");
      dialog.close();
    } catch (error) {
      setChildren(words, error.status === 401 ? told() : error.message);
      field.select();
    }
    forget.hidden = !key();
    publish("key", Boolean(value));
  }
}

function told() {
  if (key()) return "This key is wrong: the service does not know it.";
  return "This service answers only those who have a key. It goes to this server alone, with each request.";
}
