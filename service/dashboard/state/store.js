// Publish/subscribe store of the page. Each topic has one kind of value; sections know topics, not each other.

/**
 * @typedef {{name: string, datatype: string, shape: number[], data: ArrayLike<number|bigint|boolean|string>}} Tensor
 *
 * @typedef {{low: number, high: number}} Range
 *
 * @typedef {object} Model  everything known of one served version
 * @property {string} name
 * @property {string} version
 * @property {{name: string, datatype: string, shape: number[]}[]} inputs  -1 is an axis of any length
 * @property {{name: string, datatype: string, shape: number[]}[]} outputs
 * @property {object} certificate  from GET …/certificate
 * @property {object|null} profile  from GET …/gates/profile, null for a model without gates
 * @property {object[]} gates  `profile.gates`, or an empty list
 * @property {string} path  common prefix of its routes: v2/models/NAME/versions/VERSION
 *
 * @typedef {object} Row  one input row for a model
 * @property {string} title  "drawn", "sample: 7", "seven.png"
 * @property {Tensor[]} inputs  each with a leading axis of length 1
 *
 * @typedef {object} Reading  the model's response to a row
 * @property {Row} row
 * @property {import("./levers.js").Levers|null} levers  null for none
 * @property {Tensor[]} outputs
 * @property {object[]} gates  the summary of each gate; empty for a model without gates
 * @property {object|null} route
 * @property {Map<string, Tensor>} tensors  by name: T of each gate, C of independent carry gates, layer outputs
 * @property {string|null} missing  why tensors are missing, or null
 * @property {number} milliseconds
 *
 * @typedef {object} Lesioned  the response to the same row with layers closed or opened
 * @property {Reading} reading
 * @property {import("./levers.js").Levers} levers
 * @property {Tensor[]} outputs  with the lesion
 *
 * Topics, their values, and the module that publishes them:
 *   server           "up" | "down" | "unauthorized", on change           api.js
 *   next retry       time of the next attempt while down, or null        repository_index.js
 *   refresh          request to read the index now                       any
 *   theme            "light" | "dark"                                    theme.js
 *   open key dialog  request to open the dialog for the key              any
 *   key              whether there is a key, on change                   api_key_dialog.js
 *   index            the repository index, on change                     repository_index.js
 *   choose model     {name, version}: request to choose this model       any
 *   chosen model     {name, version, state, message}; state is           chosen_model.js
 *                    "loading" | "ready" | "failed" | "unserved"
 *   model            Model | null: the chosen model, once loaded         chosen_model.js
 *   open row         Row: request to make this row the current one       any
 *   row              Row | null                                          try_section.js
 *   request          {row, busy, error} | null: the request for the row  row_requests.js
 *   reading          Reading | null                                      row_requests.js
 *   levers           LeverState (see lesion.js)                          lesion.js
 *   lesioned         Lesioned | null                                     lesion.js
 *   shown reading    Reading | null: with the layers closed and opened   lesion.js
 *   kept reading     Reading | null: A, which others are compared with   any
 *   hovered layer    number | null: the layer under the pointer          any
 *   address problem  why the view in the address cannot be shown, or ""  shared_view.js
 *   live             TrafficHistory | null: figures of the last minutes  live_section.js
 */

const values = new Map();
const listeners = new Map();

/** Set a topic's value and call its listeners, each of them even if an earlier one throws. */
export function publish(topic, value) {
  values.set(topic, value);
  for (const listener of listeners.get(topic) ?? []) {
    try {
      listener(value);
    } catch (error) {
      reportError(error);
    }
  }
}

/** Call `listener` with the current value, if any, and on every change. Returns a function to unsubscribe. */
export function subscribe(topic, listener) {
  if (!listeners.has(topic)) listeners.set(topic, new Set());
  listeners.get(topic).add(listener);
  if (values.has(topic)) listener(values.get(topic));
  return () => listeners.get(topic).delete(listener);
}

/** The current value of a topic, or undefined. */
export function current(topic) {
  return values.get(topic);
}
