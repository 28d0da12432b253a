// Types of the service's answers, as far as the page reads them. docs/reference/http-api.md explains the fields.

/**
 * @typedef {{name: string, datatype: string, shape: number[]}} TensorMetadata  -1 is an axis of any length
 *
 * @typedef {object} IndexEntry  a version in the repository
 * @property {string} name
 * @property {string} version
 * @property {"READY"|"LOADING"|"UNAVAILABLE"} state
 * @property {string} reason  why it is not served
 *
 * @typedef {object} ModelMetadata
 * @property {TensorMetadata[]} inputs
 * @property {TensorMetadata[]} outputs
 *
 * @typedef {object} Sample  a row that people can try a model with
 * @property {string} label
 * @property {string} text
 * @property {import("./store.js").Tensor[]} inputs
 */

/**
 * @typedef {object} GateInfo  a transform gate of a model
 * @property {string} name
 * @property {number} layer
 * @property {number|null} depth
 * @property {number|null} time
 * @property {"coupled"|"independent"|"softmax"} kind
 * @property {"identity"|"projected"} carry
 * @property {string|null} carry_gate
 * @property {string|null} output
 * @property {number} unit_axis
 * @property {number|null} units
 * @property {number[]|null} kept  the numbers of its units in the original layer, if others were removed
 * @property {{mean: number, sd: number, min: number, max: number}|null} bias
 * @property {object[]} levers
 *
 * @typedef {object} LayerProfile  T of a gate over the rows of the export
 * @property {string} gate
 * @property {number} mean
 * @property {number} sd
 * @property {number[]} quantiles
 * @property {number} closed
 * @property {number} open
 * @property {number[]} histogram
 * @property {number[]} units
 * @property {number[]} units_sd
 *
 * @typedef {object} Profile
 * @property {number} rows
 * @property {number} epsilon
 * @property {number[]} levels
 * @property {LayerProfile[]} layers
 * @property {number[][]} contrast  gates x classes
 *
 * @typedef {object} LesionCurve
 * @property {number} rows
 * @property {number} accuracy
 * @property {number} loss
 * @property {{layer: number, accuracy: number, loss: number, flipped: number}[]} layers
 *
 * @typedef {object} GatesProfile  from GET …/gates/profile
 * @property {GateInfo[]} gates
 * @property {Profile|null} profile
 * @property {LesionCurve|null} lesion
 * @property {Record<string, number[]|null>} biases  of each unit, by gate
 *
 * @typedef {object} GateSummary  a gate for one row
 * @property {string} name
 * @property {number} mean
 * @property {number} sd
 * @property {number} closed
 * @property {number} open
 * @property {number} carried
 * @property {Record<string, number>} quantiles
 *
 * @typedef {object} Route  the way of a row through the layers
 * @property {"row"|"request"} per
 * @property {number} layers
 * @property {number[]} carried
 * @property {number[]} effective_depth
 * @property {number[]} longest_closed
 */

/**
 * @typedef {object} TensorParity  the error of a tensor
 * @property {string} name
 * @property {number} rms
 * @property {number} rms_torch
 * @property {number} max
 * @property {number} max_torch
 *
 * @typedef {object} Parity
 * @property {string} reference
 * @property {string[]} providers
 * @property {number} seed
 * @property {{name: string, rows: number, digest: string}[]} batches
 * @property {TensorParity[]} tensors
 * @property {string|null} worst  the name of a tensor
 *
 * @typedef {object} Identity
 * @property {"identical"|"not decided"} verdict
 * @property {number} compared
 * @property {number} runs
 * @property {number} error_bound
 * @property {{name: string, ulp: number}[]} rounded
 * @property {number} levers
 * @property {number} carried
 * @property {"independent"|"coupled"|"not decided"} rows
 *
 * @typedef {object} Variant  a lower precision beside fp32
 * @property {number} agreement
 * @property {number|null} error
 * @property {number} rows
 * @property {number|null} metric
 * @property {number|null} metric_fp32
 *
 * @typedef {object} CompressionPoint
 * @property {number} share
 * @property {number} macs
 * @property {number|null} agreement
 * @property {number|null} metric
 * @property {Record<string, number>} faster  by rows
 *
 * @typedef {object} Compression
 * @property {string} original
 * @property {number} units
 * @property {number} units_whole
 * @property {number} macs
 * @property {number} macs_whole
 * @property {number} rows
 * @property {number|null} agreement
 * @property {number|null} metric
 * @property {number|null} metric_whole
 * @property {number} bytes_whole
 * @property {Record<string, number>} faster  by rows
 * @property {number} finetune_epochs
 * @property {CompressionPoint[]} curve
 *
 * @typedef {object} PictureInput
 * @property {string} input
 * @property {number} height
 * @property {number} width
 * @property {1|3} channels
 * @property {number} black
 * @property {number} white
 *
 * @typedef {object} Vocabulary  the characters or words that have an id, and rules by their ids
 * @property {string[]} tokens
 * @property {number} padding
 * @property {number|null} unknown
 * @property {number|null} start
 * @property {number|null} end
 * @property {boolean} lower
 *
 * @typedef {object} TextInput
 * @property {string} input
 * @property {"alphabet"|"bytes"|"elmo"|"characterbert"|"characters"|"words"} scheme
 * @property {number} words
 * @property {number} characters
 * @property {Vocabulary|null} vocabulary  missing in answers of earlier versions
 *
 * @typedef {object} Certificate  from GET …/certificate
 * @property {number} bytes
 * @property {string} digest
 * @property {boolean} batched
 * @property {"probabilities"|"logits"|null} distribution
 * @property {"fp32"|"fp16"|"int8"|null} precision
 * @property {"cpu"|"cuda"|"openvino"} device
 * @property {"fp32"|"bf16"} device_precision
 * @property {string|null} source
 * @property {string[]} labels
 * @property {string} alphabet
 * @property {TextInput|null} text
 * @property {PictureInput|null} picture
 * @property {import("../inputs/table_cells.js").Feature[]} features
 * @property {"classes"|"number"} task
 * @property {string} target
 * @property {{level: number, half_width: number, rows: number}|null} interval
 * @property {boolean} batch_coupled
 * @property {Record<string, import("./store.js").Range>} ranges
 * @property {number} samples
 * @property {number} gates
 * @property {boolean} proved
 * @property {string|null} verdict
 * @property {Identity|null} identity
 * @property {Parity|null} parity
 * @property {Variant|null} variant
 * @property {Compression|null} compression
 * @property {Record<string, string>} tools
 * @property {string|null} weights
 * @property {boolean} random_weights
 */

export {};
