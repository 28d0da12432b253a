// The drawing board, for mouse, finger, pen and keyboard.

import { el } from "../dom/element.js";
import { contextOf, paintPixels } from "./pixel_canvas.js";

// movement per arrow key, in heights of the board
const KEY_STEP = 0.04;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const CURSOR_LINES = [
  { color: "#000", width: 5 },
  { color: "#ffb000", width: 2.5 },
];
const HELP = [
  "Draw with a mouse, finger or pen.",
  "With the keyboard, the arrow keys move the pen (with Shift in smaller steps)",
  "and the space bar lowers or lifts it.",
].join(" ");

/** @typedef {import("./stroke_raster.js").Stroke} Stroke */

export class DrawingBoard {
  /** @type {Stroke[]} */
  strokes = [];
  /** @type {import("./stroke_raster.js").Pixels|null} under the strokes */
  base = null;
  // width of the pen, in heights of the board
  penWidth = 0.1;

  #darkInk;
  #onStroke;
  #onChange;
  #canvas;
  #help;
  /** @type {Stroke|null} */
  #stroke = null;
  /** @type {number|null} */
  #pointer = null;
  #cursor = [0.5, 0.5];
  #cursorShown = false;
  #width;

  /**
   * @param {object} options
   * @param {number} options.height  in pixels of the network's input
   * @param {number} options.width
   * @param {boolean} options.darkInk  draw dark on light
   * @param {() => void} options.onStroke  called before each stroke
   * @param {() => void} options.onChange  called whenever a stroke changes
   */
  constructor({ height, width, darkInk, onStroke, onChange }) {
    this.#onStroke = onStroke;
    this.#darkInk = darkInk;
    this.#onChange = onChange;
    this.#width = width / height;
    this.#cursor = [this.#width / 2, 0.5];
    this.#help = el("p", { class: "visually-hidden", id: "board-help" }, HELP);
    this.#canvas = el("canvas", {
      class: "board",
      tabindex: "0",
      role: "application",
      "aria-label": `Drawing board for ${height} by ${width} pixels`,
      "aria-describedby": "board-help",
      on: {
        pointerdown: (event) => this.#down(event),
        pointermove: (event) => this.#move(event),
        pointerup: (event) => this.#up(event),
        pointercancel: (event) => this.#up(event),
        keydown: (event) => this.#key(event),
        blur: () => this.#liftPen(),
      },
    });
    this.#canvas.style.setProperty("aspect-ratio", `${width} / ${height}`);
    this.status = el("p", { class: "visually-hidden", role: "status" });
    this.node = el("div", { class: "board-place" }, this.#canvas, this.#help, this.status);
    new ResizeObserver(() => this.draw()).observe(this.#canvas);
  }

  /** Remove all strokes and show `base` beneath the next ones. */
  clear(base = null) {
    this.strokes = [];
    this.base = base;
    this.#liftPen();
    this.draw();
  }

  /** Remove the last stroke. */
  undo() {
    this.#stroke = null;
    this.strokes.pop();
    this.draw();
  }

  draw() {
    const canvas = this.#canvas;
    const height = Math.max(1, Math.round(canvas.clientHeight * devicePixelRatio));
    canvas.width = Math.max(1, Math.round(canvas.clientWidth * devicePixelRatio));
    canvas.height = height;
    const context = contextOf(canvas);
    const [background, ink] = this.#darkInk ? ["#fff", "#000"] : ["#000", "#fff"];
    context.fillStyle = background;
    context.fillRect(0, 0, canvas.width, height);
    if (this.base) {
      const baseCanvas = el("canvas");
      paintPixels(baseCanvas, this.base);
      context.imageSmoothingEnabled = false;
      context.drawImage(baseCanvas, 0, 0, canvas.width, height);
    }
    context.strokeStyle = ink;
    context.lineCap = context.lineJoin = "round";
    for (const { points, width } of this.strokes) {
      context.lineWidth = width * height;
      context.beginPath();
      context.moveTo(points[0][0] * height, points[0][1] * height);
      for (const [x, y] of points) context.lineTo(x * height, y * height);
      context.stroke();
    }
    if (this.#cursorShown) this.#drawCursor(context, height);
  }

  #drawCursor(context, height) {
    const [x, y] = this.#cursor.map((point) => point * height);
    const armLength = 0.05 * height;
    for (const { color, width } of CURSOR_LINES) {
      context.strokeStyle = color;
      context.lineWidth = width * devicePixelRatio;
      context.beginPath();
      context.moveTo(x - armLength, y);
      context.lineTo(x + armLength, y);
      context.moveTo(x, y - armLength);
      context.lineTo(x, y + armLength);
      context.stroke();
    }
  }

  #startStroke(point) {
    this.#onStroke();
    const stroke = { points: [point], width: this.penWidth };
    this.#stroke = stroke;
    this.strokes.push(stroke);
  }

  #liftPen() {
    this.#stroke = null;
    this.#pointer = null;
    this.#cursorShown = false;
    this.draw();
  }

  #down(event) {
    if (event.button !== 0 || this.#pointer !== null) return;
    this.#liftPen();
    this.#startStroke(this.#pointOf(event));
    this.#pointer = event.pointerId;
    this.#canvas.setPointerCapture(event.pointerId);
    this.#strokeChanged();
  }

  #move(event) {
    if (event.pointerId !== this.#pointer || this.#stroke === null) return;
    const events = event.getCoalescedEvents?.() ?? [];
    for (const moveEvent of events.length ? events : [event])
      this.#stroke.points.push(this.#pointOf(moveEvent));
    this.#strokeChanged();
  }

  #up(event) {
    if (event.pointerId !== this.#pointer) return;
    this.#stroke = null;
    this.#pointer = null;
  }

  #key(event) {
    const { key, shiftKey } = event;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (key === " ") {
      if (this.#stroke === null) this.#startStroke([...this.#cursor]);
      else this.#stroke = null;
      this.status.textContent = this.#stroke === null ? "pen lifted" : "pen down";
    } else if (Object.hasOwn(ARROWS, key)) {
      const [dx, dy] = ARROWS[key].map((direction) => direction * (shiftKey ? KEY_STEP / 4 : KEY_STEP));
      const [x, y] = this.#cursor;
      this.#cursor = [clamp(x + dx, this.#width), clamp(y + dy, 1)];
      this.#stroke?.points.push([...this.#cursor]);
    } else {
      return;
    }
    event.preventDefault();
    this.#cursorShown = true;
    if (this.#stroke === null) this.draw();
    else this.#strokeChanged();
  }

  #strokeChanged() {
    this.draw();
    this.#onChange();
  }

  #pointOf({ clientX, clientY }) {
    const box = this.#canvas.getBoundingClientRect();
    return [(clientX - box.left) / box.height, (clientY - box.top) / box.height];
  }
}

function clamp(value, max) {
  return Math.min(max, Math.max(0, value));
}
