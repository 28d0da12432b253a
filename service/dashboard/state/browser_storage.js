// Access to localStorage and sessionStorage. The user may have blocked storage: then nothing is stored.

/**
 * A stored text, or null; `where` is "localStorage" or, for this tab only, "sessionStorage".
 *
 * @param {"localStorage"|"sessionStorage"} where
 * @param {string} name
 */
export function readStored(where, name) {
  try {
    return window[where].getItem(name);
  } catch {
    return null;
  }
}

/**
 * Store a text; null removes it.
 *
 * @param {"localStorage"|"sessionStorage"} where
 * @param {string} name
 * @param {string|null} text
 */
export function writeStored(where, name, text) {
  try {
    if (text === null) window[where].removeItem(name);
    else window[where].setItem(name, text);
  } catch {
    // storage is blocked; the page works without it
  }
}
