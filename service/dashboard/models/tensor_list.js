// The inputs or outputs of a model as people read them.

import { el } from "../dom/element.js";
import { number, shapeText } from "../dom/number_format.js";

/** The first of these tensors with datatype and shape, and the range of their values where it is known. */
export function tensorList(all, most, ranges = {}) {
  const rest = all.length - most;
  return [
    all.slice(0, most).map((one) => tensor(one, ranges[one.name])),
    rest > 0 && el("span", { class: "tensor quiet" }, `and ${number(rest)} more`),
  ];
}

function tensor({ name, datatype, shape }, range) {
  const within = range ? `, from ${number(range.low)} to ${number(range.high)}` : "";
  return el("span", { class: "tensor" }, el("b", {}, name), ` ${datatype} ${shapeText(shape)}${within}`);
}
