// What the browser keeps for this page. A person may have forbidden that: then nothing is kept.

/** A text that was kept, null for none; `where` is "localStorage", or "sessionStorage" for this tab alone. */
export function readStored(where, name) {
  try {
    return window[where].getItem(name);
  } catch {
    return null;
  }
}

/** Keep a text; null forgets it. */
export function writeStored(where, name, text) {
  try {
    if (text === null) window[where].removeItem(name);
    else window[where].setItem(name, text);
  } catch {
    // the page goes on without
  }
}
