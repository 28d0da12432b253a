// Lists the inputs or outputs of a model.

import { el } from "../dom/element.js";
import { number, shapeText } from "../dom/number_format.js";

/** The first `max` tensors with datatype, shape and, if known, the range of their values. */
export function tensorList(tensors, max, ranges = {}) {
  const rest = tensors.length - max;
  return [
    tensors.slice(0, max).map((tensor) => tensorItem(tensor, ranges[tensor.name])),
    rest > 0 && el("span", { class: "tensor quiet" }, `and ${number(rest)} more`),
  ];
}

function tensorItem({ name, datatype, shape, parameters }, range) {
  const textNote = parameters?.text ? ", or text" : "";
  const rangeText = range ? `, ${number(range.low)} to ${number(range.high)}` : "";
  return el("span", { class: "tensor" }, el("b", {}, name), ` ${datatype} ${shapeText(shape)}${rangeText}${textNote}`);
}
