// Publish/subscribe store of the page. Each topic has one kind of value; sections know topics, not each other.

/**
 * @typedef {(number|bigint|boolean|string)[]|import("./tensors.js").TypedArray} TensorData
 *
 * @typedef {{name: string, datatype: string, shape: number[], data: TensorData}} Tensor
 *
 * @typedef {{low: number, high: number}} Range
 *
 * @typedef {object} Model  everything known of one served version
 * @property {string} name
 * @property {string} version
 * @property {import("./api_types.js").TensorMetadata[]} inputs  -1 is an axis of any length
 * @property {import("./api_types.js").TensorMetadata[]} outputs
 * @property {import("./api_types.js").Certificate} certificate
 * @property {import("./api_types.js").GatesProfile|null} profile  null for a model without gates
 * @property {import("./api_types.js").GateInfo[]} gates  `profile.gates`, or an empty list
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
 * @property {import("./api_types.js").GateSummary[]} gates  the summary of each gate; empty for a model without gates
 * @property {import("./api_types.js").Route|null} route
 * @property {Map<string, Tensor>} tensors  by name: T of each gate, C of independent carry gates, layer outputs
 * @property {string|null} missing  why tensors are missing, or null
 * @property {number} milliseconds
 *
 * @typedef {object} Lesioned  the response to the same row with layers closed or opened
 * @property {Reading} reading
 * @property {import("./levers.js").Levers} levers
 * @property {Tensor[]} outputs  with the lesion
 *
 * @typedef {{name: string, version: string}} ModelVersion
 *
 * @typedef {object} ChosenModel  which one, and whether it can be used
 * @property {string} name
 * @property {string} version
 * @property {"loading"|"ready"|"failed"|"unserved"} state
 * @property {string} message  why it cannot be used
 *
 * @typedef {object} TellingSample  a sample whose answer one layer flips
 * @property {string} title
 * @property {number} layer
 * @property {string} after  the answer with the layer closed
 * @property {() => void} open
 *
 * Topics, and the module that publishes them:
 *   server           on change                                           api.js
 *   next retry       time of the next attempt while down                 repository_index.js
 *   refresh          request to read the index now                       any
 *   theme            on change                                           theme.js
 *   open key dialog  request to open the dialog for the key              any
 *   key              whether there is a key, on change                   api_key_dialog.js
 *   index            the repository index, on change                     repository_index.js
 *   choose model     request to choose this model                        any
 *   chosen model     on change                                           chosen_model.js
 *   model            the chosen model, once loaded                       chosen_model.js
 *   open row         request to make this row the current one            any
 *   row              the current row                                     try_section.js
 *   request          the request for the row                             row_requests.js
 *   reading          the response to the row                             row_requests.js
 *   levers           layers closed and opened                            lesion.js
 *   lesioned         the response with them                              lesion.js
 *   shown reading    the reading with the layers closed and opened       lesion.js
 *   kept reading     A, which others are compared with                   any
 *   hovered layer    the layer under the pointer                         any
 *   chosen layer     the layer of the lever and of the details           any
 *   telling sample   the sample to try first                             try_section.js
 *   address problem  why the view in the address cannot be shown, or ""  shared_view.js
 *   live             figures of the last minutes                         live_section.js
 *
 * @typedef {{
 *   "server": "up"|"down"|"unauthorized",
 *   "next retry": number|null,
 *   "refresh": true,
 *   "theme": "light"|"dark",
 *   "open key dialog": true,
 *   "key": boolean,
 *   "index": import("./api_types.js").IndexEntry[],
 *   "choose model": ModelVersion,
 *   "chosen model": ChosenModel,
 *   "model": Model|null,
 *   "open row": Row,
 *   "row": Row|null,
 *   "request": import("../try/row_requests.js").RequestState|null,
 *   "reading": Reading|null,
 *   "levers": import("./lesion.js").LeverState,
 *   "lesioned": Lesioned|null,
 *   "shown reading": Reading|null,
 *   "kept reading": Reading|null,
 *   "hovered layer": number|null,
 *   "chosen layer": number|null,
 *   "telling sample": TellingSample|null,
 *   "address problem": string,
 *   "live": import("../live/traffic_history.js").TrafficHistory|null,
 * }} Topics
 */

/** @type {Partial<Topics>} */
const values = {};
/** @type {Map<string, Set<Function>>} */
const listeners = new Map();

/**
 * Set a topic's value and call its listeners, each of them even if an earlier one throws.
 *
 * @template {keyof Topics} Topic
 * @param {Topic} topic
 * @param {Topics[Topic]} value
 */
export function publish(topic, value) {
  values[topic] = value;
  for (const listener of listeners.get(topic) ?? []) {
    try {
      listener(value);
    } catch (error) {
      reportError(error);
    }
  }
}

/**
 * Call `listener` with the current value, if any, and on every change. Returns a function to unsubscribe.
 *
 * @template {keyof Topics} Topic
 * @param {Topic} topic
 * @param {(value: Topics[Topic]) => void} listener
 */
export function subscribe(topic, listener) {
  const others = listeners.get(topic) ?? new Set();
  listeners.set(topic, others.add(listener));
  const value = values[topic];
  if (value !== undefined) listener(value);
  return () => others.delete(listener);
}

/**
 * The current value of a topic that has one by now.
 *
 * @template {keyof Topics} Topic
 * @param {Topic} topic
 * @returns {NonNullable<Topics[Topic]>}
 */
export function expectCurrent(topic) {
  const value = values[topic];
  if (value === undefined || value === null) throw new Error(`expected a value of "${topic}", got none`);
  return value;
}

/**
 * The current value of a topic, or undefined.
 *
 * @template {keyof Topics} Topic
 * @param {Topic} topic
 * @returns {Topics[Topic]|undefined}
 */
export function current(topic) {
  return values[topic];
}
