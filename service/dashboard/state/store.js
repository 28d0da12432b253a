// What the rooms of the page share: each writes its own topics and hears those of the others.

/**
 * @typedef {{name: string, datatype: string, shape: number[], data: ArrayLike<number|bigint|boolean>}} Tensor
 *
 * @typedef {{low: number, high: number}} Range
 *
 * @typedef {object} About  everything that is known of one served version
 * @property {string} name
 * @property {string} version
 * @property {{name: string, datatype: string, shape: number[]}[]} inputs  -1 is an axis of any length
 * @property {{name: string, datatype: string, shape: number[]}[]} outputs
 * @property {object} certificate  as GET …/certificate tells it
 * @property {object|null} profile  as GET …/gates/profile tells it, null for a model without gates
 * @property {object[]} gates  the profile's, or none
 * @property {string} path  the start of its routes: v2/models/NAME/versions/VERSION
 *
 * @typedef {object} Row  one row to ask a model about
 * @property {string} title  "drawn", "sample: 7", "seven.png"
 * @property {Tensor[]} inputs  each with a leading axis of 1
 *
 * @typedef {object} Reading  the answer to a row
 * @property {About} model
 * @property {Row} row
 * @property {Tensor[]} outputs
 * @property {object[]} gates  the summary of each gate, none for a model without
 * @property {object} route
 * @property {Map<string, Tensor>} tensors  T of each gate by name, C of those of their own, outputs of layers
 * @property {string|null} missing  why tensors are missing, where they are
 * @property {number} milliseconds
 *
 * @typedef {object} Lesioned  the same row with layers closed or open
 * @property {Reading} reading
 * @property {number[]} closed
 * @property {number[]} open
 * @property {Tensor[]} outputs  with the lesion
 * @property {object} told  the answer's `lesion`
 *
 * Topics, and who publishes them:
 *   server   "up" | "down" | "unauthorized", as it changes      api.js
 *   retry    when a server that is gone is tried next, or null  repository.js
 *   look     the index is wanted now                            anyone
 *   theme    "light" | "dark"                                   theme.js
 *   ask key  the dialog for the key is wanted                   anyone
 *   key      whether there is one, as it changes                key.js
 *   index    the repository's index, as it changes              repository.js
 *   choose   {name, version}: somebody wants this model         anyone
 *   chosen   {name, version, state, message}: how that stands,  choice.js
 *            "loading" | "ready" | "failed" | "unserved"
 *   model    About | null: the chosen model, whole              choice.js
 *   row      Row | null                                         try.js
 *   asking   {row, busy, error} | null: how the row stands      asking.js
 *   reading  Reading | null                                     asking.js
 *   wishes   {of: Map, closed, open, state, message}: layers to lesion.js
 *            be moved, and whether that was answered
 *   lesioned Lesioned | null                                    lesion.js
 *   live     figures of the last seconds                        live.js
 */

const last = new Map();
const listeners = new Map();

/** Tell everyone. Each listener is called even where one before it fails. */
export function publish(topic, value) {
  last.set(topic, value);
  for (const listener of listeners.get(topic) ?? []) {
    try {
      listener(value);
    } catch (error) {
      reportError(error);
    }
  }
}

/** Hear a topic from now on, and at once what was said last; the answer ends it. */
export function subscribe(topic, listener) {
  if (!listeners.has(topic)) listeners.set(topic, new Set());
  listeners.get(topic).add(listener);
  if (last.has(topic)) listener(last.get(topic));
  return () => listeners.get(topic).delete(listener);
}

/** What was said last, undefined where nothing was. */
export function current(topic) {
  return last.get(topic);
}
