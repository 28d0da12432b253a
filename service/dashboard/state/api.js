// The service as the page asks it: its own public routes, with the key that a person gave for this tab.

import { writeStored, readStored } from "./browser_storage.js";
import { current, publish } from "./store.js";
import { parseTensors } from "./tensors.js";

const KEY = "turnpike-key";
let held = readStored("sessionStorage", KEY) ?? "";

/** What a request came to where it is not an answer: `status` is 0 where the server cannot be reached. */
export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** The key that requests carry, "" for none. */
export function key() {
  return held;
}

/** Carry this key from now on, "" for none; it is kept over a reload of this tab where that is wished. */
export function setKey(value, kept = true) {
  held = value;
  writeStored("sessionStorage", KEY, kept && value ? value : null);
}

/** The start of a model's routes. */
export function modelPath(name, version) {
  return `v2/models/${encodeURIComponent(name)}/versions/${encodeURIComponent(version)}`;
}

/** The JSON of a GET. */
export async function get(path, signal) {
  return json(path, await getText(path, signal));
}

/** The text of a GET. */
export async function getText(path, signal) {
  return (await sent("GET", path, undefined, signal, "text")).content;
}

/** The JSON of a POST. */
export async function post(path, body, signal) {
  return json(path, (await sent("POST", path, body, signal, "text")).content);
}

/**
 * The answer of infer, gates or lesion with its tensors as typed arrays: the JSON, whose `outputs` (and
 * `tensors`, and `lesioned.outputs`) have `data`. Ask with `binary` so that large maps arrive as bytes.
 */
export async function postTensors(path, inputs, { outputs, parameters = {}, binary = true, signal } = {}) {
  const body = { inputs: inputs.map(tensorAsJson), parameters: { ...parameters } };
  if (binary) body.parameters.binary_data_output = true;
  if (outputs) body.outputs = outputs.map((name) => ({ name }));
  const { content, headers } = await sent("POST", path, body, signal, "arrayBuffer");
  return parseTensors(content, headers.get("Inference-Header-Content-Length"));
}

/** A tensor as JSON takes it. */
export function tensorAsJson(tensor) {
  const data = Array.from(tensor.data, (value) => (typeof value === "bigint" ? Number(value) : value));
  return { name: tensor.name, datatype: tensor.datatype, shape: tensor.shape, data };
}

/** The answer's headers, and its content as "text" or "arrayBuffer". */
async function sent(method, path, body, signal, form) {
  const headers = {};
  if (held) headers["X-Api-Key"] = held;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response, content;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
    });
    content = await response[response.ok ? form : "text"]();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    tell("down");
    throw new ApiError("the server cannot be reached", 0);
  }
  if (!response.ok) throw refused(response.status, content, `${method} ${path}`);
  tell("up");
  return { headers: response.headers, content };
}

function json(path, text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new ApiError(`${path}: expected JSON, got ${JSON.stringify(text.slice(0, 40))}`, 200);
  }
}

/** The API's own sentence, where what stands between has not answered in other words. */
function refused(status, text, what) {
  if (status === 401) tell("unauthorized");
  else if (status === 502) tell("down");
  // 503 and 504 may be a model's or a proxy's, and so say nothing of the server
  else if (status < 503) tell("up");
  let tensorAsJson;
  try {
    tensorAsJson = JSON.parse(text).error;
  } catch {
    // no answer of ours
  }
  return new ApiError(tensorAsJson ?? `${what}: status ${status}`, status);
}

function tell(state) {
  if (current("server") !== state) publish("server", state);
}
