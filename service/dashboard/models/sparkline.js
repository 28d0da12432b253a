// A sparkline: the last minutes of one figure as a small SVG line, cheap enough for a hundred models.

import { svg } from "../dom/element.js";
import { number } from "../dom/number_format.js";

// the line is as wide as this many values, or more if there are more
const MIN_WIDTH_VALUES = 60;
// of the viewBox
const [WIDTH, HEIGHT] = [100, 24];

/** A line of `values`, which `draw` paints. */
export class Sparkline {
  constructor(description) {
    this.description = description;
    this.values = [];
    this.line = svg("polyline", { class: "spark-line", fill: "none", "vector-effect": "non-scaling-stroke" });
    this.node = svg(
      "svg",
      { class: "spark", role: "img", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" },
      this.line,
    );
    this.draw();
  }

  draw() {
    const maximum = Math.max(...this.values, 0);
    const step = WIDTH / (Math.max(this.values.length, MIN_WIDTH_VALUES) - 1);
    // the newest value is at the right edge, however few there are
    const start = WIDTH - step * (this.values.length - 1);
    const points = this.values.map((value, index) => {
      const y = HEIGHT - 1 - (maximum ? (value / maximum) * (HEIGHT - 2) : 0);
      return `${(start + index * step).toFixed(1)},${y.toFixed(1)}`;
    });
    this.line.setAttribute("points", points.join(" "));
    this.node.setAttribute(
      "aria-label",
      `${this.description} over the last minutes, maximum ${number(maximum)}`,
    );
  }
}
