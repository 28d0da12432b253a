// The same question asked from elsewhere: as a line of curl, and in Python with what Python brings along.

import { key } from "../state/api.js";
import { copyButton } from "./copy_button.js";
import { el, setChildren } from "../dom/element.js";
import { number } from "../dom/number_format.js";
import { current, subscribe } from "../state/store.js";

// an argument of a command may have a little over 128,000 bytes
const LONGEST_ARGUMENT = 100_000;
const FEW_VALUES = 6;
// milliseconds without another row before its lines are written: those of a large picture take a while
const REST = 250;
const END = "END";

/** Show the lines for the row in hand. */
export function startSnippets(node) {
  const blocks = [block("curl", curlCommand), block("Python", pythonCode)];
  blocks[0].node.open = true;
  let timer = 0;
  const show = () => {
    const request = inHand();
    for (const { tell } of blocks) tell(request);
    // laid in anew they would lose the focus
    if (!node.firstChild) setChildren(node, el("h3", {}, "The same from elsewhere"), blocks.map((one) => one.node));
  };
  const soon = () => {
    clearTimeout(timer);
    if (current("model") && current("row")) timer = setTimeout(show, REST);
    else setChildren(node);
  };
  for (const topic of ["row", "model", "key"]) subscribe(topic, soon);
}

/** What asks about the row that there is now, since the lines that can be seen may be of one before. */
function inHand() {
  return requestFor(current("model"), current("row"));
}

function block(name, written) {
  const code = el("code");
  const node = el(
    "details",
    { class: "snippet" },
    el("summary", {}, name),
    el("pre", { tabindex: "0" }, code),
    copyButton(`Copy ${name}`, () => written(inHand(), fullLiteral)),
  );
  return { node, tell: (request) => setChildren(code, written(request, short)) };
}

/**
 * The address and the body that ask about a row: rows in and labels out, where the model has one input and
 * answers row by row, else the tensors themselves.
 */
export function requestFor({ name, version, inputs, outputs, path }, row) {
  const simple = inputs.length === 1 && outputs.every((output) => output.shape[0] === -1);
  const address = simple
    ? `v1/models/${encodeURIComponent(name)}/versions/${encodeURIComponent(version)}:predict`
    : `${path}/infer`;
  const lists = row.inputs.map((tensor, i) => nested(tensor, inputs[i].shape[0] === -1));
  const body = simple
    ? { instances: [lists[0]] }
    : {
        inputs: row.inputs.map(({ name: input, datatype, shape, data }) => ({
          name: input,
          shape,
          datatype,
          data: list(data, datatype),
        })),
      };
  return { url: new URL(address, document.baseURI).href, body, keyed: key() !== "" };
}

/** A row as people nest it; a flat one would do where no axis varies, but this always does. */
function nested({ datatype, shape, data }, batched) {
  const dims = batched ? shape.slice(1) : shape;
  const deep = (values, [first, ...rest]) =>
    rest.length === 0
      ? values
      : Array.from({ length: first }, (_, i) =>
          deep(values.slice((i * values.length) / first, ((i + 1) * values.length) / first), rest),
        );
  return dims.length ? deep(list(data, datatype), dims) : list(data, datatype)[0];
}

function list(data, datatype) {
  return Array.from(data, (value) => (typeof value === "boolean" ? value : brief(Number(value), datatype)));
}

/** The shortest number that is the same in single precision. */
function brief(value, datatype) {
  if (datatype !== "FP32" || Number.isInteger(value)) return value;
  for (let figures = 1; figures < 10; figures++) {
    const shorter = Number(value.toPrecision(figures));
    if (Math.fround(shorter) === Math.fround(value)) return shorter;
  }
  return value;
}

/** As a shell reads it: quoted, or where it is long as a document. */
export function curlCommand({ url, body, keyed }, written) {
  const data = written(body, "json");
  const key = keyed ? ' -H "X-Api-Key: $TURNPIKE_KEY"' : "";
  const start = `curl -s ${quoted(url)} -H 'Content-Type: application/json'${key}`;
  if (fullLiteral(body, "json").length < LONGEST_ARGUMENT) return `${start} -d ${quoted(data)}`;
  return `${start} --data-binary @- <<'${END}'\n${data}\n${END}`;
}

export function pythonCode({ url, body, keyed }, written) {
  return [
    "import json",
    ...(keyed ? ["import os"] : []),
    "import urllib.request",
    "",
    `body = ${written(body, "python")}`,
    "request = urllib.request.Request(",
    `    ${JSON.stringify(url)},`,
    "    json.dumps(body).encode(),",
    `    {"Content-Type": "application/json"${keyed ? ', "X-Api-Key": os.environ["TURNPIKE_KEY"]' : ""}},`,
    ")",
    "with urllib.request.urlopen(request) as answer:",
    "    print(json.load(answer))",
    "",
  ].join("\n");
}

/** A value in JSON or in Python. */
export function fullLiteral(value, language) {
  return said(value, language, Infinity);
}

/** The same, with most numbers left out, to be looked at. */
function short(value, language) {
  return said(value, language, FEW_VALUES);
}

function said(value, language, most) {
  if (Array.isArray(value)) {
    const numbers = value.every((one) => !Array.isArray(one) && typeof one !== "object");
    const kept = numbers ? value.slice(0, most) : value.slice(0, most === Infinity ? most : 1);
    const parts = kept.map((one) => said(one, language, most));
    if (kept.length < value.length)
      parts.push(numbers ? `… ${number(value.length)} values` : `… ${number(value.length)} of these`);
    return `[${parts.join(", ")}]`;
  }
  if (typeof value === "object") {
    const parts = Object.entries(value).map(
      ([name, one]) => `${JSON.stringify(name)}: ${said(one, language, most)}`,
    );
    return `{${parts.join(", ")}}`;
  }
  if (typeof value === "boolean" && language === "python") return value ? "True" : "False";
  return JSON.stringify(value);
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
