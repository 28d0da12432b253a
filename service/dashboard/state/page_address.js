// The chosen model and the tab in the fragment of the address: `#model=NAME/VERSION&tab=live`. Between them may be
// what is shown of the model (share/view_address.js).

const MODEL_PATTERN = /^#model=([^/&]+)\/(\d+)(?:&|$)/;
const TAB_PATTERN = /[#&]tab=([a-z]+)(?:&|$)/;

/** {name, version} in the fragment of an address, or null. */
export function modelIn(hash) {
  const match = MODEL_PATTERN.exec(hash);
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

/** The name of the tab in the fragment of an address, or null. */
export function tabIn(hash) {
  return TAB_PATTERN.exec(hash)?.[1] ?? null;
}

/** The fragment with the name of another tab, or with none. */
export function withTab(hash, tab) {
  const fields = hash.slice(1).split("&");
  const others = fields.filter((field) => field.includes("=") && !field.startsWith("tab="));
  return `#${[...others, ...(tab ? [`tab=${tab}`] : [])].join("&")}`;
}
