// A picture as the row: drawn, one of the samples, or out of a file.

import { DrawingBoard } from "./drawing_board.js";
import { el, setChildren } from "../dom/element.js";
import { tensorFromValues } from "../inputs/tensor_parser.js";
import { rowPicker } from "../inputs/file_input.js";
import { strokesAsDrawn, fitStrokes, fitPixels } from "./fit_to_frame.js";
import { frameFor } from "./training_frame.js";
import { readImage } from "./image_file.js";
import { rowsInNpy } from "../inputs/npy_rows.js";
import { paintPixels } from "./pixel_canvas.js";
import { tensorToPixels, pixelsToTensor } from "./picture_input.js";
import { PictureTools } from "./picture_tools.js";
import { blackPixels, borderMean, fitInside, cropToFill, toGrey, invert } from "./pixels.js";

// milliseconds between two rows while one draws
const PACE = 60;

/** One of the ways to make a row; `put` takes it, null for none. */
export class PictureEntry {
  title = "Picture";

  #picture;
  #put;
  #frame;
  #board;
  #tools;
  #preview = el("canvas", { class: "pixels", role: "img", "aria-label": "What the network gets" });
  #notice = el("p", { class: "failed", role: "alert" });
  #chooser = el("div", { class: "chooser" });
  // whether ink is dark on light, as the network knows it
  #dark = false;
  // what was opened or chosen: {title, tensor}, or {title, image} which is yet to be made to fit
  #source = null;
  #opening = null;
  #timer = 0;

  constructor(picture, put) {
    this.#picture = picture;
    this.#put = put;
    this.node = el("div", { class: "picture" });
    this.#tools = new PictureTools({
      colours: picture.channels === 3,
      cleared: () => this.#clear(),
      undone: () => this.#undo(),
      opened: (file) => this.open(file),
      brushed: () => this.#brush(),
      turned: () => this.#refit(),
    });
    this.learn([]);
  }

  /** Samples tell how pictures lie in their frame, and whether ink is dark. */
  learn(samples) {
    const { height, width, channels } = this.#picture;
    const one = channels === 1;
    const shown = samples.map(({ inputs }) => tensorToPixels(this.#picture, inputs[0]));
    this.#dark = one && shown.filter((pixels) => borderMean(pixels) > 0.5).length > shown.length / 2;
    this.#frame = frameFor(height, width, one ? shown.map((pixels) => this.#ink(pixels)) : []);
    this.#board = new DrawingBoard({
      height,
      width,
      dark: this.#dark,
      begins: () => this.#begin(),
      changed: () => (this.#timer ||= setTimeout(() => this.#send(), PACE)),
    });
    this.#brush();
    const size = `${height} × ${width}${one ? "" : " × 3"} pixels, as the network gets them`;
    const preview = el("figure", { class: "preview" }, this.#preview, el("figcaption", {}, size));
    const boards = el("div", { class: "boards" }, this.#board.node, preview);
    setChildren(this.node, boards, this.#tools.node, this.#chooser, this.#notice);
    this.#show(null);
  }

  /** Show a row that there is, and ask about it. */
  take({ title, inputs }) {
    this.#opening = null;
    setChildren(this.#chooser);
    this.#from({ title, tensor: inputs[0] });
  }

  /** A picture that the browser can read, or .npy. */
  async open(file) {
    const mine = (this.#opening = {});
    const rows = file.name.toLowerCase().endsWith(".npy");
    try {
      const read = rows ? rowsInNpy(await file.arrayBuffer(), this.#picture.input) : await readImage(file);
      if (mine !== this.#opening) return;
      setChildren(this.#chooser, rows && rowPicker(read.count, (index) => this.#pick(file, read, index)));
      if (rows) this.#pick(file, read, 0);
      else this.#openImage(file.name, read);
    } catch (error) {
      if (mine === this.#opening) this.#say(`${file.name}: ${error.message}`);
    }
  }

  #pick({ name }, rows, index) {
    try {
      const { values, shape } = rows.row(index);
      const title = rows.count > 1 ? `${name}, row ${index + 1}` : name;
      this.#from({ title, tensor: tensorFromValues(this.#picture.input, values, shape) });
    } catch (error) {
      this.#say(`${name}: ${error.message}`);
    }
  }

  #openImage(title, read) {
    const { height, width, channels } = this.#picture;
    const image = channels === 1 ? toGrey(read) : read;
    // a picture of the network's own size has been made for it
    this.#tools.fit = channels === 1 && (image.height !== height || image.width !== width);
    this.#tools.invert = channels === 1 && borderMean(image) > 0.5 !== this.#dark;
    this.#from({ title, image });
  }

  #from(source) {
    this.#turnTo(source);
    this.#send();
  }

  #turnTo(source) {
    this.#say("");
    this.#source = source;
    this.#tools.suit(source?.image ? "image" : source ? "row" : "nothing");
    this.#board.clear(source && this.#shownOf(source));
  }

  /** A stroke begins a drawing of its own, unless what is there is to be drawn over. */
  #begin() {
    this.#opening = null;
    if (!this.#source || this.#tools.over) return;
    setChildren(this.#chooser);
    this.#turnTo(null);
  }

  #clear() {
    this.#opening = null;
    setChildren(this.#chooser);
    this.#from(null);
  }

  #undo() {
    this.#board.undo();
    this.#send();
  }

  #brush() {
    this.#board.pen = this.#tools.brush * this.#usual();
  }

  #refit() {
    if (this.#source?.image) this.#board.base = this.#shownOf(this.#source);
    this.#board.draw();
    this.#send();
  }

  /** The picture of a source in the network's own size. */
  #shownOf({ tensor, image }) {
    if (tensor) return tensorToPixels(this.#picture, tensor);
    const { height, width, channels } = this.#picture;
    const turned = this.#tools.invert ? invert(image) : image;
    if (channels === 3) return cropToFill(turned, height, width);
    if (!this.#tools.fit) return fitInside(turned, height, width);
    return this.#ink(fitPixels(this.#ink(turned), this.#frame));
  }

  /** Light ink on dark, of a picture as the network has it, and back. */
  #ink(pixels) {
    return this.#dark ? invert(pixels) : pixels;
  }

  #send() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    const row = this.#row();
    this.#show(row);
    this.#put(row);
  }

  #row() {
    const { strokes, base } = this.#board;
    if (strokes.length === 0) {
      if (!this.#source) return null;
      const { title, tensor } = this.#source;
      return { title, inputs: [tensor ?? pixelsToTensor(this.#picture, base)] };
    }
    const title = this.#source ? `${this.#source.title}, drawn over` : "drawn";
    return { title, inputs: [pixelsToTensor(this.#picture, this.#drawing(strokes, base))] };
  }

  #drawing(strokes, base) {
    const { height, width, channels } = this.#picture;
    const fit = this.#tools.fit && !base;
    const ink = fit ? fitStrokes(strokes, this.#frame, this.#usual()) : strokesAsDrawn(strokes, height, width);
    const under = base && this.#ink(base).data;
    const drawn = blackPixels(height, width, channels);
    drawn.data.forEach((_, place) => {
      drawn.data[place] = Math.max(ink.data[Math.floor(place / channels)], under ? under[place] : 0);
    });
    return this.#ink(drawn);
  }

  #show(row) {
    const { height, width, channels } = this.#picture;
    const shown = row ? tensorToPixels(this.#picture, row.inputs[0]) : this.#ink(blackPixels(height, width, channels));
    paintPixels(this.#preview, shown);
  }

  #say(text) {
    this.#notice.textContent = text;
  }

  /** How wide the pen is when lines come out as thick as in training. */
  #usual() {
    return this.#frame.pen / this.#frame.height;
  }
}
