// Scales of colours: where they begin and end, and which colours lie between.

import { currentTheme } from "../shell/theme.js";

// diverging scales with a middle that is near to the ground of the theme (Crameri's vik and berlin)
const SIGNED = {
  light: ["#001261", "#033e7d", "#1e6f9d", "#71a8c4", "#c9dde7", "#ebe5e0", "#eacebd", "#d39774", "#be6533",
    "#8b2706", "#590008"],
  dark: ["#9eb0ff", "#5ba4db", "#2d7597", "#1a4256", "#11191e", "#191014", "#280d01", "#501802", "#8a3f2a",
    "#c4756a", "#ffacac"],
};
// a few numbers far out would leave no colours for the rest
const WITHIN = 0.995;

/** The least and the greatest number that a scale shows; maps with the same ends can be compared. */
export function scaleRange(z, scale) {
  if (scale === "gate") return [0, 1];
  let low = Infinity;
  let high = -Infinity;
  const sizes = [];
  for (const row of z) {
    for (const value of row) {
      if (!Number.isFinite(value)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
      sizes.push(Math.abs(value));
    }
  }
  if (!sizes.length) return scale === "signed" ? [-1, 1] : [0, 1];
  if (scale !== "signed") return low < high ? [low, high] : [low - 0.5, high + 0.5];
  const sorted = Float64Array.from(sizes).sort();
  const bound = sorted[Math.ceil(WITHIN * sorted.length) - 1] || sorted.at(-1) || 1;
  return [-bound, bound];
}

/** The colours of a scale, from low to high, as Plotly takes them. */
export function scaleColors(scale) {
  if (scale === "gate") return "Viridis";
  if (scale === "plain") return "Cividis";
  const colors = SIGNED[currentTheme()];
  return colors.map((one, n) => [n / (colors.length - 1), one]);
}
