// HTTP client for the service's public routes, with the API key that the user gave for this tab.

import { readStored, writeStored } from "./browser_storage.js";
import { current, publish } from "./store.js";
import { parseTensors, tensorRequest } from "./tensors.js";

const STORAGE_KEY = "turnpike-key";
let apiKey = readStored("sessionStorage", STORAGE_KEY) ?? "";

/** A request without a usable response; `status` is 0 when the server cannot be reached. */
export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** The key sent with requests, "" for none. */
export function key() {
  return apiKey;
}

/** Send this key from now on, "" for none; with `remember` it survives a reload of this tab. */
export function setKey(value, remember = true) {
  apiKey = value;
  writeStored("sessionStorage", STORAGE_KEY, remember && value ? value : null);
}

/** The common prefix of a model version's routes. */
export function modelPath(name, version) {
  return `v2/models/${encodeURIComponent(name)}/versions/${encodeURIComponent(version)}`;
}

/** GET a path and parse the JSON response. */
export async function get(path, signal) {
  return parseJson(path, await getText(path, signal));
}

/** GET a path as text. */
export async function getText(path, signal) {
  return (await request("GET", path, undefined, signal, "text")).content;
}

/** POST a JSON body and parse the JSON response. */
export async function post(path, body, signal) {
  const sent = { content: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  return parseJson(path, (await request("POST", path, sent, signal, "text")).content);
}

/**
 * POST tensors to infer, gates or lesion. Returns the JSON of the response, in which the `data` of every tensor
 * (in `outputs`, `tensors` and `lesioned.outputs`) is a typed array. `keys` are added to the body. With `binary`
 * the server sends large tensors as bytes.
 */
export async function postTensors(
  path,
  inputs,
  { outputs, keys = {}, parameters = {}, binary = true, signal } = {},
) {
  const fields = { ...keys, parameters: { ...parameters } };
  if (binary) fields.parameters.binary_data_output = true;
  if (outputs) fields.outputs = outputs.map((name) => ({ name }));
  const sent = tensorRequest(inputs, fields);
  const { content, headers } = await request("POST", path, sent, signal, "arrayBuffer");
  return parseTensors(content, headers.get("Inference-Header-Content-Length"));
}

/**
 * Send a request, with the content and headers in `sent` if it has a body. Returns the response headers and the
 * content, read as "text" or "arrayBuffer".
 */
async function request(method, path, sent, signal, contentType) {
  const headers = { ...sent?.headers };
  if (apiKey) headers["X-Api-Key"] = apiKey;
  let response, content;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: sent?.content,
      signal,
      cache: "no-store",
    });
    content = await response[response.ok ? contentType : "text"]();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    publishServerState("down");
    throw new ApiError("the server cannot be reached", 0);
  }
  if (!response.ok) throw errorFrom(response.status, content, `${method} ${path}`);
  publishServerState("up");
  return { headers: response.headers, content };
}

function parseJson(path, text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new ApiError(`${path}: expected JSON, got ${JSON.stringify(text.slice(0, 40))}`, 200);
  }
}

/** The error message of the API, or a generic one if something in between, such as a proxy, answered. */
function errorFrom(status, text, what) {
  if (status === 401) publishServerState("unauthorized");
  else if (status === 502) publishServerState("down");
  // 503 and 504 may come from a model or a proxy, so they say nothing about the server
  else if (status < 503) publishServerState("up");
  let message;
  try {
    message = JSON.parse(text).error;
  } catch {
    // not a response of this API
  }
  return new ApiError(message ?? `${what}: status ${status}`, status);
}

function publishServerState(state) {
  if (current("server") !== state) publish("server", state);
}
