// One feature of a row: its name and unit, a field for its value, and a slider within its range.

import { el } from "../dom/element.js";
import { number } from "../dom/number_format.js";
import { roundedWithin } from "./feature_rows.js";

export class FeatureField {
  #field;
  #slider;

  /** `isWhole` says whether its values are whole numbers. `onChange` is called when the user changes one. */
  constructor(feature, isWhole, onChange) {
    const { name, unit, low, high } = feature;
    this.name = name;
    const range = `${number(low)} to ${number(high)}${unit ? ` ${unit}` : ""}`;
    this.#field = el("input", { type: "number", step: "any", autocomplete: "off" });
    this.#slider = el("input", {
      type: "range",
      min: low,
      max: high,
      step: isWhole ? 1 : "any",
      "aria-label": `${name}, ${range}`,
      title: range,
    });
    this.#field.addEventListener("input", () => {
      if (this.read() !== null) this.#slider.value = this.#field.value;
      onChange();
    });
    this.#slider.addEventListener("input", () => {
      this.#field.value = roundedWithin(feature, Number(this.#slider.value));
      this.read();
      onChange();
    });
    this.node = el(
      "div",
      { class: "feature" },
      el(
        "label",
        {},
        el(
          "span",
          { class: "feature-name" },
          name,
          // most units are in brackets at the end of the name
          unit && !name.includes(unit) && el("span", { class: "unit" }, ` ${unit}`),
        ),
        this.#field,
      ),
      this.#slider,
    );
  }

  show(value) {
    // seven digits are those of float32
    this.#field.value = Number(value.toPrecision(7));
    this.#slider.value = value;
  }

  /** The value, or null if the field has no number. */
  read() {
    const value = this.#field.value === "" ? null : Number(this.#field.value);
    this.#field.setAttribute("aria-invalid", String(value === null));
    return value;
  }
}
