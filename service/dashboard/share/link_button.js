// The button that copies a link to what is shown, and a note on what a link cannot hold.

import { copyButton } from "../dom/copy_button.js";
import { setChildren } from "../dom/element.js";
import { current, subscribe } from "../state/store.js";
import { viewAddress } from "./shared_view.js";
import { fitsAddress } from "./view_address.js";

/** Create the button in `node`, and show notes in `note`. */
export function startLinkButton(node, note) {
  let problem = "";
  const button = copyButton("Copy link", () => {
    const row = current("row");
    showNote(row && !fitsAddress(row) ? "This row is too large for a link, so the link leads to the model only." : "");
    return viewAddress();
  });
  setChildren(node, button);

  function showNote(text) {
    const shown = text || problem;
    note.hidden = !shown;
    setChildren(note, shown);
  }

  subscribe("address problem", (text) => {
    problem = text;
    showNote("");
  });
  showNote("");
}
