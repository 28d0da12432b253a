// Entry of a picture as the row: drawn, taken from a sample, or read from a file.

import { el, setChildren } from "../dom/element.js";
import { rowPicker } from "../inputs/file_input.js";
import { rowsInNpy } from "../inputs/npy_rows.js";
import { tensorFromValues } from "../inputs/tensor_parser.js";
import { DrawingBoard } from "./drawing_board.js";
import { fitPixels, fitStrokes, strokesAsDrawn } from "./fit_to_frame.js";
import { readImage } from "./image_file.js";
import { pixelsToTensor, tensorToPixels, withPixelRange } from "./picture_input.js";
import { PictureTools } from "./picture_tools.js";
import { paintPixels } from "./pixel_canvas.js";
import { blackPixels, borderMean, cropToFill, fitInside, invert, toGrey } from "./pixels.js";
import { frameFor } from "./training_frame.js";

// milliseconds between two rows while the user draws
const ROW_INTERVAL = 60;

/**
 * What was opened or chosen: a row, or an image that is fitted to the frame.
 * @typedef {{title: string, tensor: import("../state/store.js").Tensor}} RowSource
 *
 * @typedef {{title: string, image: import("./stroke_raster.js").Pixels}} ImageSource
 *
 * @typedef {RowSource|ImageSource} Source
 */

/** An entry of the section "Try it"; `onRow` receives the row, or null for none. */
export class PictureEntry {
  title = "Picture";

  #format;
  #onRow;
  #frame;
  #board;
  #tools;
  // shown beside a drawing; other pictures are on the board as the network receives them
  #preview = el("figure", { class: "preview" });
  #pixels = el("canvas", {
    class: "pixels",
    role: "img",
    "aria-label": "Picture as the network receives it",
  });
  #error = el("p", { class: "failed", role: "alert" });
  #rowPicker = el("div", { class: "chooser" });
  // whether the network expects dark ink on a light background
  #darkInk = false;
  /** @type {Source|null} */
  #source = null;
  // identifies the file that is being read, null for none
  /** @type {object|null} */
  #opening = null;
  #timer = 0;

  constructor(format, onRow) {
    this.#format = format;
    this.#onRow = onRow;
    this.node = el("div", { class: "picture" });
    this.#tools = new PictureTools({
      hasColours: format.channels === 3,
      onClear: () => this.#clear(),
      onUndo: () => this.#undo(),
      onFile: (file) => this.open(file),
      onBrush: () => this.#setPenWidth(),
      onFit: () => this.#refit(),
      onRange: format.known ? null : (range) => this.#setRange(range),
    });
    this.learnFrom([]);
  }

  /** Learn from samples how pictures are placed in their frame, and whether ink is dark. */
  learnFrom(samples) {
    const { height, width, channels } = this.#format;
    const isGrey = channels === 1;
    const samplePixels = samples.map(({ inputs }) => tensorToPixels(this.#format, inputs[0]));
    this.#darkInk =
      isGrey && samplePixels.filter((pixels) => borderMean(pixels) > 0.5).length > samplePixels.length / 2;
    this.#frame = frameFor(
      height,
      width,
      isGrey ? samplePixels.map((pixels) => this.#toggleInk(pixels)) : [],
    );
    this.#board = new DrawingBoard({
      height,
      width,
      darkInk: this.#darkInk,
      onStroke: () => this.#startStroke(),
      onChange: () => (this.#timer ||= setTimeout(() => this.#send(), ROW_INTERVAL)),
    });
    this.#setPenWidth();
    const size = `${height} × ${width}${isGrey ? "" : " × 3"} pixels, as the network receives them`;
    setChildren(this.#preview, this.#pixels, el("figcaption", {}, size));
    const boards = el("div", { class: "boards" }, this.#board.node, this.#preview);
    setChildren(this.node, boards, this.#tools.node, this.#rowPicker, this.#error);
    this.#showPreview(null);
  }

  /** Take over an existing row. */
  take({ title, inputs }) {
    this.#opening = null;
    setChildren(this.#rowPicker);
    this.#useSource({ title, tensor: inputs[0] });
  }

  /** Open a .npy file, or an image that the browser can read. */
  async open(file) {
    const opening = (this.#opening = {});
    try {
      if (file.name.toLowerCase().endsWith(".npy")) {
        const rows = rowsInNpy(await file.arrayBuffer(), this.#format.input);
        if (opening !== this.#opening) return;
        setChildren(this.#rowPicker, rowPicker(rows.count, (index) => this.#useNpyRow(file, rows, index)));
        this.#useNpyRow(file, rows, 0);
      } else {
        const image = await readImage(file);
        if (opening !== this.#opening) return;
        setChildren(this.#rowPicker);
        this.#useImage(file.name, image);
      }
    } catch (error) {
      if (opening === this.#opening) this.#showError(`${file.name}: ${error.message}`);
    }
  }

  #useNpyRow({ name }, rows, index) {
    try {
      const { values, shape } = rows.row(index);
      const title = rows.count > 1 ? `${name}, row ${index + 1}` : name;
      this.#useSource({ title, tensor: tensorFromValues(this.#format.input, values, shape) });
    } catch (error) {
      this.#showError(`${name}: ${error.message}`);
    }
  }

  #useImage(title, read) {
    const { channels } = this.#format;
    const image = channels === 1 ? toGrey(read) : read;
    this.#tools.invert = channels === 1 && borderMean(image) > 0.5 !== this.#darkInk;
    this.#useSource({ title, image });
  }

  #useSource(source) {
    this.#setSource(source);
    this.#send();
  }

  /** Put a picture, or an empty board for a drawing, in the place of what is there. */
  #setSource(source) {
    this.#showError("");
    // a file is usually framed like the training pictures, and fitting it again distorts it; a drawing is not
    if (this.#format.channels === 1 && (isImage(this.#source) || isImage(source))) {
      this.#tools.fit = !isImage(source);
    }
    this.#source = source;
    this.#tools.showFor(isImage(source) ? "image" : source ? "row" : "nothing");
    this.#board.clear(source && this.#pixelsOf(source));
  }

  /** A stroke starts a new drawing, unless the user wants to draw over the current picture. */
  #startStroke() {
    this.#opening = null;
    if (!this.#source || this.#tools.drawOver) return;
    setChildren(this.#rowPicker);
    this.#setSource(null);
  }

  #clear() {
    this.#opening = null;
    setChildren(this.#rowPicker);
    this.#useSource(null);
  }

  #undo() {
    this.#board.undo();
    this.#send();
  }

  #setPenWidth() {
    this.#board.penWidth = this.#tools.brush * this.#usualPenWidth();
  }

  #refit() {
    if (isImage(this.#source)) this.#board.base = this.#pixelsOf(this.#source);
    this.#board.draw();
    this.#send();
  }

  #setRange(range) {
    this.#format = withPixelRange(this.#format, range);
    this.#refit();
  }

  /**
   * The pixels of a source in the network's size.
   *
   * @param {Source} source
   */
  #pixelsOf(source) {
    if ("tensor" in source) return tensorToPixels(this.#format, source.tensor);
    const { image } = source;
    const { height, width, channels } = this.#format;
    const oriented = this.#tools.invert ? invert(image) : image;
    if (channels === 3) return cropToFill(oriented, height, width);
    if (!this.#tools.fit) return fitInside(oriented, height, width);
    return this.#toggleInk(fitPixels(this.#toggleInk(oriented), this.#frame));
  }

  /** Convert between the network's colours and light ink on dark. */
  #toggleInk(pixels) {
    return this.#darkInk ? invert(pixels) : pixels;
  }

  #send() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    const row = this.#row();
    this.#showPreview(row);
    this.#onRow(row);
  }

  #row() {
    const { strokes, base } = this.#board;
    if (strokes.length === 0) {
      if (!this.#source) return null;
      const { title } = this.#source;
      const tensor = "tensor" in this.#source ? this.#source.tensor : pixelsToTensor(this.#format, base);
      return { title, inputs: [tensor] };
    }
    const title = this.#source ? `${this.#source.title}, drawn over` : "drawn";
    return { title, inputs: [pixelsToTensor(this.#format, this.#drawing(strokes, base))] };
  }

  #drawing(strokes, base) {
    const { height, width, channels } = this.#format;
    const fit = this.#tools.fit && !base;
    const inkPixels = fit
      ? fitStrokes(strokes, this.#frame, this.#usualPenWidth())
      : strokesAsDrawn(strokes, height, width);
    const basePixels = base && this.#toggleInk(base).data;
    const drawn = blackPixels(height, width, channels);
    drawn.data.forEach((_, place) => {
      drawn.data[place] = Math.max(
        inkPixels.data[Math.floor(place / channels)],
        basePixels ? basePixels[place] : 0,
      );
    });
    return this.#toggleInk(drawn);
  }

  #showPreview(row) {
    const { height, width, channels } = this.#format;
    const pixels = row
      ? tensorToPixels(this.#format, row.inputs[0])
      : this.#toggleInk(blackPixels(height, width, channels));
    paintPixels(this.#pixels, pixels);
    this.#preview.hidden = this.#board.strokes.length === 0;
  }

  #showError(text) {
    this.#error.textContent = text;
  }

  /** Pen width, in heights of the board, that gives lines as thick as in the training pictures. */
  #usualPenWidth() {
    return this.#frame.pen / this.#frame.height;
  }
}

/**
 * @param {Source|null} source
 * @returns {source is ImageSource}
 */
function isImage(source) {
  return source !== null && "image" in source;
}
