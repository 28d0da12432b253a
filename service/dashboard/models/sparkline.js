// The last minutes of one figure as a small line, cheap enough for a hundred models.

import { svg } from "../dom/element.js";
import { number } from "../dom/number_format.js";

const KEPT = 150;
const [WIDTH, HEIGHT] = [100, 24];

/** A line that grows: `add` a value, and `draw` where it can be seen. */
export class Sparkline {
  constructor(what) {
    this.what = what;
    this.values = [];
    this.line = svg("polyline", { class: "spark-line", fill: "none", "vector-effect": "non-scaling-stroke" });
    this.node = svg(
      "svg",
      { class: "spark", role: "img", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" },
      this.line,
    );
    this.draw();
  }

  add(value) {
    this.values.push(value ?? 0);
    if (this.values.length > KEPT) this.values.shift();
  }

  draw() {
    const most = Math.max(...this.values, 0);
    const step = WIDTH / (KEPT - 1);
    // the newest is at the right, however few there are
    const start = WIDTH - step * (this.values.length - 1);
    const points = this.values.map((value, at) => {
      const y = HEIGHT - 1 - (most ? (value / most) * (HEIGHT - 2) : 0);
      return `${(start + at * step).toFixed(1)},${y.toFixed(1)}`;
    });
    this.line.setAttribute("points", points.join(" "));
    this.node.setAttribute("aria-label", `${this.what} over the last minutes, at most ${number(most)}`);
  }
}
