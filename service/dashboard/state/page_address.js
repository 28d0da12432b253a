// The chosen model in the page's address, `#model=NAME/VERSION`: it lasts over a reload and can be sent on.

const FORM = /^#model=([^/]+)\/(\d+)$/;

/** {name, version} of the address, null where it names none. */
export function modelInAddress() {
  const found = FORM.exec(location.hash);
  if (!found) return null;
  try {
    return { name: decodeURIComponent(found[1]), version: found[2] };
  } catch {
    // a % that is no escape
    return null;
  }
}

/** Write a choice down, as a step that the back button takes back. */
export function writeAddress({ name, version }) {
  const hash = `#model=${encodeURIComponent(name)}/${version}`;
  if (location.hash !== hash) history.pushState(null, "", hash);
}
