// The chosen model in the page's address, `#model=NAME/VERSION`: survives a reload and can be shared.

const HASH_PATTERN = /^#model=([^/]+)\/(\d+)$/;

/** {name, version} in the address, or null. */
export function modelInAddress() {
  const match = HASH_PATTERN.exec(location.hash);
  if (!match) return null;
  try {
    return { name: decodeURIComponent(match[1]), version: match[2] };
  } catch {
    // an invalid % escape
    return null;
  }
}

/** Put the chosen model into the address, as a new entry in the browser history. */
export function writeAddress({ name, version }) {
  const hash = `#model=${encodeURIComponent(name)}/${version}`;
  if (location.hash !== hash) history.pushState(null, "", hash);
}
