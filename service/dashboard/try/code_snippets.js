// Code that sends the same request from elsewhere: a curl command, and Python with only its standard library.

import { el, setChildren } from "../dom/element.js";
import { number } from "../dom/number_format.js";
import { canBeWritten, cellOf } from "../inputs/table_cells.js";
import { key } from "../state/api.js";
import { leverFields, leversText } from "../state/levers.js";
import { current, expectCurrent, subscribe } from "../state/store.js";
import { hasNaN } from "../state/tensors.js";
import { copyButton } from "../dom/copy_button.js";

// characters; Linux limits one argument of a command to 131,072 bytes
const MAX_ARGUMENT_LENGTH = 100_000;
// characters up to which a body is shown whole, and values shown of each list of a longer one
const [MAX_SHOWN_LENGTH, MAX_SHOWN_VALUES] = [1500, 6];
// milliseconds without another row before the code is updated, since a large picture takes a while
const UPDATE_DELAY = 250;
const HEREDOC_END = "END";
const BLANKS_NOTE =
  "This row has a blank. Tensors have it as NaN, which JSON cannot carry, so this request can only be sent in binary.";

/** Show the code for the current row and levers. */
export function startSnippets(node) {
  const heading = el("h3");
  const snippets = [createSnippet("curl", curlCommand), createSnippet("Python", pythonCode)];
  snippets[0].node.open = true;
  const note = el("p", { class: "quiet" }, BLANKS_NOTE);
  let timer = 0;
  const show = () => {
    const request = currentRequest();
    note.hidden = request !== null;
    for (const { node: snippet, update } of snippets) {
      snippet.hidden = request === null;
      if (request) update(request);
    }
    const moved = leversText(currentLevers());
    setChildren(heading, "Use from code", moved && `, with ${moved}`);
    // added only once, because nodes that are moved lose the focus
    if (!node.firstChild)
      setChildren(
        node,
        heading,
        note,
        snippets.map((item) => item.node),
      );
  };
  const showSoon = () => {
    clearTimeout(timer);
    if (current("model") && current("row")) timer = setTimeout(show, UPDATE_DELAY);
    else setChildren(node);
  };
  subscribe("row", showSoon);
  subscribe("model", showSoon);
  subscribe("key", showSoon);
  subscribe("levers", showSoon);
}

/** The request for the current row; the code on the page may still show an earlier one. */
function currentRequest() {
  return requestFor(expectCurrent("model"), expectCurrent("row"), currentLevers());
}

function currentLevers() {
  return current("levers")?.levers ?? new Map();
}

function createSnippet(name, format) {
  const code = el("code");
  const node = el(
    "details",
    { class: "snippet" },
    el("summary", {}, name),
    el("pre", { tabindex: "0" }, code),
    copyButton(`Copy ${name}`, () => format(currentRequest(), fullLiteral)),
  );
  return { node, update: (request) => setChildren(code, format(request, shortLiteral)) };
}

/**
 * URL and body of a request for a row: a lesion if levers are moved; otherwise rows in and labels out if the
 * model has one input and answers row by row, and the tensors themselves if not. A row of a table has cells by the
 * names of its features. Null for tensors with blanks, which JSON cannot carry.
 */
export function requestFor({ name, version, inputs, outputs, path, certificate }, row, levers = new Map()) {
  const request = (address, body) => ({
    url: new URL(address, document.baseURI).href,
    body,
    needsKey: key() !== "",
  });
  const features = certificate?.features ?? [];
  const sendsRow = inputs.length === 1 && outputs.every((output) => output.shape[0] === -1) && canBeWritten(features);
  if ((levers.size || !sendsRow) && row.inputs.some(hasNaN)) return null;
  if (levers.size) {
    const moved = Object.entries(leverFields(levers)).filter(([, value]) => value.length !== 0);
    return request(`${path}/lesion`, { ...Object.fromEntries(moved), inputs: tensorsOf(row) });
  }
  if (!sendsRow) return request(`${path}/infer`, { inputs: tensorsOf(row) });
  const servedModel = `${encodeURIComponent(name)}/versions/${encodeURIComponent(version)}`;
  const instance = instanceOf(row.inputs[0], inputs[0], features);
  return request(`v1/models/${servedModel}:predict`, { instances: [instance] });
}

function tensorsOf(row) {
  return row.inputs.map(({ name, datatype, shape, data }) => ({
    name,
    shape,
    datatype,
    data: flatList(data, datatype),
  }));
}

/** A text as it is, a row of a table by the names of its features, another one as nested lists. */
function instanceOf(tensor, input, features) {
  if (tensor.datatype === "BYTES") return tensor.data[0];
  if (!features.length) return nestedList(tensor, input.shape[0] === -1);
  const values = flatList(tensor.data, tensor.datatype);
  return Object.fromEntries(features.map((feature, n) => [feature.name, cellOf(feature, values[n])]));
}

/** A row as nested lists, which is valid in any case; a flat list would not be if several axes vary. */
function nestedList({ datatype, shape, data }, batched) {
  const dims = batched ? shape.slice(1) : shape;
  const nest = (values, axes) => {
    const [first, ...rest] = axes;
    if (rest.length === 0) return values;
    const length = values.length / first;
    return Array.from({ length: first }, (_, i) => nest(values.slice(i * length, (i + 1) * length), rest));
  };
  return dims.length ? nest(flatList(data, datatype), dims) : flatList(data, datatype)[0];
}

function flatList(data, datatype) {
  return Array.from(data, (value) =>
    typeof value === "boolean" || typeof value === "string" ? value : shortNumber(Number(value), datatype),
  );
}

/** The shortest decimal number that is equal in single precision. */
function shortNumber(value, datatype) {
  if (datatype !== "FP32" || Number.isInteger(value)) return value;
  for (let figures = 1; figures < 10; figures++) {
    const shorter = Number(value.toPrecision(figures));
    if (Math.fround(shorter) === Math.fround(value)) return shorter;
  }
  return value;
}

/** A curl command; a long body is passed as a here-document. */
export function curlCommand({ url, body, needsKey }, format) {
  const data = format(body, "json");
  const keyHeader = needsKey ? ' -H "X-Api-Key: $TURNPIKE_KEY"' : "";
  const start = `curl -s ${shellQuote(url)} -H 'Content-Type: application/json'${keyHeader}`;
  if (fullLiteral(body, "json").length < MAX_ARGUMENT_LENGTH) return `${start} -d ${shellQuote(data)}`;
  return `${start} --data-binary @- <<'${HEREDOC_END}'\n${data}\n${HEREDOC_END}`;
}

export function pythonCode({ url, body, needsKey }, format) {
  return [
    "import json",
    ...(needsKey ? ["import os"] : []),
    "import urllib.request",
    "",
    `body = ${format(body, "python")}`,
    "request = urllib.request.Request(",
    `    ${JSON.stringify(url)},`,
    "    json.dumps(body).encode(),",
    `    {"Content-Type": "application/json"${needsKey ? ', "X-Api-Key": os.environ["TURNPIKE_KEY"]' : ""}},`,
    ")",
    "with urllib.request.urlopen(request) as answer:",
    "    print(json.load(answer))",
    "",
  ].join("\n");
}

/** A value as a JSON or Python literal. */
export function fullLiteral(value, language) {
  return literal(value, language, Infinity);
}

/** The same for display: in a long one, most numbers of lists are left out. */
export function shortLiteral(value, language) {
  const whole = fullLiteral(value, language);
  return whole.length > MAX_SHOWN_LENGTH ? literal(value, language, MAX_SHOWN_VALUES) : whole;
}

function literal(value, language, maxValues) {
  if (value === null) return language === "python" ? "None" : "null";
  if (Array.isArray(value)) {
    const numbers = value.every((item) => !Array.isArray(item) && typeof item !== "object");
    const shownItems = numbers
      ? value.slice(0, maxValues)
      : value.slice(0, maxValues === Infinity ? maxValues : 1);
    const parts = shownItems.map((item) => literal(item, language, maxValues));
    if (shownItems.length < value.length)
      parts.push(numbers ? `… ${number(value.length)} values` : `… ${number(value.length)} of these`);
    return `[${parts.join(", ")}]`;
  }
  if (typeof value === "object") {
    const parts = Object.entries(value).map(
      ([name, item]) => `${JSON.stringify(name)}: ${literal(item, language, maxValues)}`,
    );
    // a row of a table has a line for each feature
    const isRow = parts.length > 1 && Object.values(value).every((item) => item === null || typeof item !== "object");
    return isRow ? `{\n    ${parts.join(",\n    ")}\n}` : `{${parts.join(", ")}}`;
  }
  if (typeof value === "boolean" && language === "python") return value ? "True" : "False";
  return JSON.stringify(value);
}

function shellQuote(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
