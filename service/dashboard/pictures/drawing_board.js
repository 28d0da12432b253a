// The board one draws on, by mouse, finger, pen or keys.

import { el } from "../dom/element.js";
import { paintPixels } from "./pixel_canvas.js";

const STEP = 0.04;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const HELP = [
  "Draw by mouse, finger or pen.",
  "By keys: arrows move, with Shift less far; the space bar puts the pen down and lifts it.",
].join(" ");

/** @typedef {import("./stroke_raster.js").Stroke} Stroke */

export class DrawingBoard {
  /** @type {Stroke[]} */
  strokes = [];
  /** what lies under the strokes, null for nothing */
  base = null;
  // how wide the pen is, in heights of the board
  pen = 0.1;

  #dark;
  #begins;
  #changed;
  #canvas;
  #help;
  #stroke = null;
  #pointer = null;
  #place = [0.5, 0.5];
  #cross = false;
  #width;

  /**
   * @param {object} options
   * @param {number} options.height  in pixels of the network
   * @param {number} options.width
   * @param {boolean} options.dark  ink is dark on light
   * @param {() => void} options.begins  called before a stroke
   * @param {() => void} options.changed  called with each piece of a stroke
   */
  constructor({ height, width, dark, begins, changed }) {
    this.#begins = begins;
    this.#dark = dark;
    this.#changed = changed;
    this.#width = width / height;
    this.#place = [this.#width / 2, 0.5];
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
        blur: () => this.#lift(),
      },
    });
    this.#canvas.style.setProperty("aspect-ratio", `${width} / ${height}`);
    this.said = el("p", { class: "visually-hidden", role: "status" });
    this.node = el("div", { class: "board-place" }, this.#canvas, this.#help, this.said);
    new ResizeObserver(() => this.draw()).observe(this.#canvas);
  }

  /** Take everything away, or put a picture under what is drawn from now on. */
  clear(base = null) {
    this.strokes = [];
    this.base = base;
    this.#lift();
    this.draw();
  }

  /** Take back the last stroke. */
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
    const pen = canvas.getContext("2d");
    const [ground, ink] = this.#dark ? ["#fff", "#000"] : ["#000", "#fff"];
    pen.fillStyle = ground;
    pen.fillRect(0, 0, canvas.width, height);
    if (this.base) {
      const small = el("canvas");
      paintPixels(small, this.base);
      pen.imageSmoothingEnabled = false;
      pen.drawImage(small, 0, 0, canvas.width, height);
    }
    pen.strokeStyle = ink;
    pen.lineCap = pen.lineJoin = "round";
    for (const { points, width } of this.strokes) {
      pen.lineWidth = width * height;
      pen.beginPath();
      pen.moveTo(points[0][0] * height, points[0][1] * height);
      for (const [x, y] of points) pen.lineTo(x * height, y * height);
      pen.stroke();
    }
    if (this.#cross) this.#drawCross(pen, height);
  }

  #drawCross(pen, height) {
    const [x, y] = this.#place.map((place) => place * height);
    const long = 0.05 * height;
    for (const [color, width] of [
      ["#000", 5],
      ["#ffb000", 2.5],
    ]) {
      pen.strokeStyle = color;
      pen.lineWidth = width * devicePixelRatio;
      pen.beginPath();
      pen.moveTo(x - long, y);
      pen.lineTo(x + long, y);
      pen.moveTo(x, y - long);
      pen.lineTo(x, y + long);
      pen.stroke();
    }
  }

  #begin(place) {
    this.#begins();
    this.#stroke = { points: [place], width: this.pen };
    this.strokes.push(this.#stroke);
  }

  #lift() {
    this.#stroke = null;
    this.#pointer = null;
    this.#cross = false;
    this.draw();
  }

  #down(event) {
    if (event.button !== 0 || this.#pointer !== null) return;
    this.#lift();
    this.#begin(this.#placeOf(event));
    this.#pointer = event.pointerId;
    this.#canvas.setPointerCapture(event.pointerId);
    this.#drawn();
  }

  #move(event) {
    if (event.pointerId !== this.#pointer || this.#stroke === null) return;
    const events = event.getCoalescedEvents?.() ?? [];
    for (const one of events.length ? events : [event]) this.#stroke.points.push(this.#placeOf(one));
    this.#drawn();
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
      if (this.#stroke === null) this.#begin([...this.#place]);
      else this.#stroke = null;
      this.said.textContent = this.#stroke === null ? "pen lifted" : "pen down";
    } else if (Object.hasOwn(ARROWS, key)) {
      const [dx, dy] = ARROWS[key].map((way) => way * (shiftKey ? STEP / 4 : STEP));
      const [x, y] = this.#place;
      this.#place = [clamped(x + dx, this.#width), clamped(y + dy, 1)];
      this.#stroke?.points.push([...this.#place]);
    } else {
      return;
    }
    event.preventDefault();
    this.#cross = true;
    if (this.#stroke === null) this.draw();
    else this.#drawn();
  }

  #drawn() {
    this.draw();
    this.#changed();
  }

  #placeOf({ clientX, clientY }) {
    const box = this.#canvas.getBoundingClientRect();
    return [(clientX - box.left) / box.height, (clientY - box.top) / box.height];
  }
}

function clamped(value, most) {
  return Math.min(most, Math.max(0, value));
}
