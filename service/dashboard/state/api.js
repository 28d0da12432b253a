// HTTP client for the service's public routes, with the API key that the user gave for this tab.

import { readStored, writeStored } from "./browser_storage.js";
import { current, publish } from "./store.js";
import { parseTensors, tensorRequest } from "./tensors.js";

const STORAGE_KEY = "turnpike-key";
let apiKey = readStored("sessionStorage", STORAGE_KEY) ?? "";

/** A request without a usable response; `status` is 0 when the server cannot be reached. */
export class ApiError extends Error {
  /**
   * @param {string} message
   * @param {number} status
   */
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

/**
 * The common prefix of a model version's routes.
 *
 * @param {string} name
 * @param {string} version
 */
export function modelPath(name, version) {
  return `v2/models/${encodeURIComponent(name)}/versions/${encodeURIComponent(version)}`;
}

/**
 * GET a path and parse the JSON response.
 *
 * @param {string} path
 * @param {AbortSignal} [signal]
 */
export async function get(path, signal) {
  return parseJson(path, await getText(path, signal));
}

/**
 * GET a path as text.
 *
 * @param {string} path
 * @param {AbortSignal} [signal]
 */
export async function getText(path, signal) {
  return (await request("GET", path, undefined, signal, readText)).content;
}

/**
 * POST a JSON body and parse the JSON response.
 *
 * @param {string} path
 * @param {object} body
 * @param {AbortSignal} [signal]
 */
export async function post(path, body, signal) {
  const sent = { content: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  return parseJson(path, (await request("POST", path, sent, signal, readText)).content);
}

/**
 * POST tensors to infer, gates or lesion. Returns the JSON of the response, in which the `data` of every tensor
 * (in `outputs`, `tensors` and `lesioned.outputs`) is a typed array. `keys` are added to the body. With `binary`
 * the server sends large tensors as bytes.
 *
 * @param {string} path
 * @param {import("./store.js").Tensor[]} inputs
 * @param {object} options
 * @param {string[]} [options.outputs]
 * @param {object} [options.keys]
 * @param {object} [options.parameters]
 * @param {boolean} [options.binary]
 * @param {AbortSignal} [options.signal]
 */
export async function postTensors(
  path,
  inputs,
  { outputs, keys = {}, parameters = {}, binary = true, signal } = {},
) {
  const fields = {
    ...keys,
    parameters: { ...parameters, ...(binary ? { binary_data_output: true } : {}) },
    ...(outputs ? { outputs: outputs.map((name) => ({ name })) } : {}),
  };
  const sent = tensorRequest(inputs, fields);
  const { content, headers } = await request("POST", path, sent, signal, readBytes);
  return parseTensors(content, headers.get("Inference-Header-Content-Length"));
}

/**
 * Send a request, with the content and headers in `sent` if it has a body. Returns the response headers and the
 * content that `read` returns.
 *
 * @template Content
 * @param {string} method
 * @param {string} path
 * @param {{content: BodyInit, headers: HeadersInit}|undefined} sent
 * @param {AbortSignal|undefined} signal
 * @param {(response: Response) => Promise<Content>} read
 */
async function request(method, path, sent, signal, read) {
  const headers = new Headers(sent?.headers);
  if (apiKey) headers.set("X-Api-Key", apiKey);
  let response, content;
  let problem = "";
  try {
    response = await fetch(path, {
      method,
      headers,
      body: sent?.content,
      signal,
      cache: "no-store",
    });
    if (response.ok) content = await read(response);
    else problem = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    publishServerState("down");
    throw new ApiError("the server cannot be reached", 0);
  }
  if (content === undefined) throw errorFrom(response.status, problem, `${method} ${path}`);
  publishServerState("up");
  return { headers: response.headers, content };
}

/** @param {Response} response */
function readText(response) {
  return response.text();
}

/** @param {Response} response */
function readBytes(response) {
  return response.arrayBuffer();
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
