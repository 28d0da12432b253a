// The chosen model in the address, as `#model=NAME/VERSION`. What is shown of it may follow (share/view_address.js).

const HASH_PATTERN = /^#model=([^/&]+)\/(\d+)(?:&|$)/;

/** {name, version} in the fragment of an address, or null. */
export function modelIn(hash) {
  const match = HASH_PATTERN.exec(hash);
  if (!match) return null;
  try {
    return { name: decodeURIComponent(match[1]), version: match[2] };
  } catch {
    // an invalid % escape
    return null;
  }
}

/** The fragment of the address that names a model. */
export function modelHash({ name, version }) {
  return `#model=${encodeURIComponent(name)}/${version}`;
}
