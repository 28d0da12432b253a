// One feature of a row: its name and unit, and a control for its cell by the kind of its column: a slider with a
// field for a number, a choice for a word or a boolean, and a field for a date.

import { el, setChildren } from "../dom/element.js";
import { number } from "../dom/number_format.js";
import { roundedWithin } from "./feature_rows.js";
import { ANOTHER_WORD, isIndex } from "./table_cells.js";

const MILLISECONDS_PER_DAY = 86_400_000;
const BLANK = "blank";

/**
 * The control of a feature: its `name` and `node`, `show(number)`, and `read()`, which returns the number that the
 * network gets, NaN for a blank, or null if the control has no value; `expected` says what is then missing.
 *
 * @param {import("./table_cells.js").Feature} feature
 * @param {boolean} isWhole  whether the input takes whole numbers only
 * @param {() => void} onChange  is called when the user changes the cell
 */
export function featureField(feature, isWhole, onChange) {
  const Field = { boolean: ChoiceField, category: ChoiceField, date: DateField }[feature.kind] ?? NumberField;
  return isIndex(feature) ? new NumberField(feature, true, onChange) : new Field(feature, isWhole, onChange);
}

class NumberField {
  expected = "a number";

  #field;
  #slider;
  #blank;
  #mean;

  constructor(feature, isWhole, onChange) {
    const { name, unit, affix, low, high, mean, blanks } = feature;
    this.name = name;
    this.#mean = mean;
    this.#blank = blanks;
    const range = `${number(low)} to ${number(high)}${unit ? ` ${unit}` : ""}`;
    const placeholder = blanks ? BLANK : null;
    this.#field = el("input", { type: "number", step: "any", autocomplete: "off", placeholder });
    this.#slider = el("input", {
      type: "range",
      min: low,
      max: high,
      step: isWhole ? 1 : "any",
      "aria-label": `${name}, ${range}`,
      title: range,
    });
    this.#field.addEventListener("input", () => {
      const value = this.read();
      if (value !== null) this.#moveSlider(value);
      onChange();
    });
    this.#slider.addEventListener("input", () => {
      this.#field.value = String(roundedWithin(feature, Number(this.#slider.value)));
      this.#moveSlider(this.read());
      onChange();
    });
    this.node = fieldNode(
      feature,
      unit || affix,
      this.#field,
      this.#slider,
      blanks && blankButton(this, onChange),
    );
  }

  show(value) {
    // seven digits are those of float32
    this.#field.value = Number.isNaN(value) ? "" : String(Number(value.toPrecision(7)));
    this.#moveSlider(value);
    this.read();
  }

  read() {
    const isEmpty = this.#field.value === "";
    // the browser has no value for text that is no number
    const isBlank = isEmpty && this.#blank && !this.#field.validity.badInput;
    const value = isBlank ? NaN : isEmpty ? null : Number(this.#field.value);
    this.#field.setAttribute("aria-invalid", String(value === null));
    return value;
  }

  /** The slider of a blank is grey, at the mean. */
  #moveSlider(value) {
    this.#slider.value = String(Number.isNaN(value) ? this.#mean : value);
    this.#slider.classList.toggle(BLANK, Number.isNaN(value));
  }
}

/** A word or a boolean, of which the options have the numbers; "" is a blank. */
class ChoiceField {
  #select;

  constructor(feature, _, onChange) {
    const { name, kind, categories, blanks } = feature;
    this.name = name;
    const [words, rest] = kind === "boolean" ? [["false", "true"], []] : [categories, [ANOTHER_WORD]];
    const option = (value, text) => el("option", { value }, text);
    const others = [
      ...rest.map((text) => option(String(words.length), text)),
      ...(blanks ? [option("", BLANK)] : []),
    ];
    this.#select = el("select", { on: { change: onChange } });
    setChildren(
      this.#select,
      words.map((word, place) => option(String(place), word)),
      // words of the training, and what else there is
      kind === "category" ? el("optgroup", { label: "or" }, others) : others,
    );
    this.node = fieldNode(feature, feature.unit, this.#select);
  }

  show(value) {
    // any index above is another word, too
    const last = this.#select.querySelectorAll('option:not([value=""])').length - 1;
    this.#select.value = Number.isNaN(value) ? "" : String(Math.min(value, last));
  }

  read() {
    return this.#select.value === "" ? NaN : Number(this.#select.value);
  }
}

class DateField {
  expected = "a date";

  #field;
  #blank;

  constructor(feature, _, onChange) {
    this.name = feature.name;
    this.#blank = feature.blanks;
    this.#field = el("input", { type: hasTime(feature) ? "datetime-local" : "date", autocomplete: "off" });
    this.#field.addEventListener("input", onChange);
    this.node = fieldNode(feature, feature.unit, this.#field, feature.blanks && blankButton(this, onChange));
  }

  show(value) {
    if (!Number.isInteger(value) && !Number.isNaN(value)) this.#field.type = "datetime-local";
    // to the second: fields accept no parts of one
    const milliseconds = 1000 * Math.round((value * MILLISECONDS_PER_DAY) / 1000);
    if (Number.isNaN(value)) this.#field.value = "";
    else this.#field.valueAsNumber = milliseconds;
    this.read();
  }

  read() {
    const isBlank = this.#field.value === "" && this.#blank && !this.#field.validity.badInput;
    const value = this.#field.valueAsNumber / MILLISECONDS_PER_DAY;
    const isInvalid = Number.isNaN(value) && !isBlank;
    this.#field.setAttribute("aria-invalid", String(isInvalid));
    this.#field.classList.toggle(BLANK, isBlank);
    return isInvalid ? null : value;
  }
}

function hasTime({ low, high }) {
  return !Number.isInteger(low) || !Number.isInteger(high);
}

function fieldNode({ name }, unit, field, ...others) {
  // most units are in brackets at the end of the name
  const unitNode = unit && !name.includes(unit) && el("span", { class: "unit" }, ` ${unit}`);
  return el(
    "div",
    { class: "feature" },
    el("label", {}, el("span", { class: "feature-name" }, name, unitNode), field),
    others,
  );
}

/** A button that leaves the cell blank. */
function blankButton(field, onChange) {
  const clear = () => {
    field.show(NaN);
    onChange();
  };
  const title = `Leave ${field.name} blank`;
  return el("button", { type: "button", class: "clear", "aria-label": title, title, on: { click: clear } }, "×");
}
