// Colour scales: their ends and their colours.

import { currentTheme } from "../shell/theme.js";

// diverging scales whose middle is close to the background of the theme: Crameri's vik, and one that becomes
// lighter in even steps, so that small values can be distinguished on a dark page
const SIGNED = {
  light: [
    "#001261",
    "#033e7d",
    "#1e6f9d",
    "#71a8c4",
    "#c9dde7",
    "#ebe5e0",
    "#eacebd",
    "#d39774",
    "#be6533",
    "#8b2706",
    "#590008",
  ],
  dark: [
    "#b8d9ff",
    "#84b1e3",
    "#508ac6",
    "#32679b",
    "#2c4864",
    "#222b32",
    "#5c4337",
    "#985834",
    "#c7794c",
    "#e3a680",
    "#ffd3b5",
  ],
};
// quantile of absolute values at which a signed scale ends: a few outliers would leave no colours for the rest
const SCALE_QUANTILE = 0.995;

/** The lowest and highest number of a scale. Maps with the same ends can be compared. */
export function scaleRange(z, scale) {
  if (scale === "gate") return [0, 1];
  let low = Infinity;
  let high = -Infinity;
  const magnitudes = [];
  for (const row of z) {
    for (const value of row) {
      if (!Number.isFinite(value)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
      magnitudes.push(Math.abs(value));
    }
  }
  if (!magnitudes.length) return scale === "signed" ? [-1, 1] : [0, 1];
  if (scale !== "signed") return low < high ? [low, high] : [low - 0.5, high + 0.5];
  const sorted = Float64Array.from(magnitudes).sort();
  const bound = sorted[Math.ceil(SCALE_QUANTILE * sorted.length) - 1] || sorted.at(-1) || 1;
  return [-bound, bound];
}

/** The colours of a scale, from low to high, in Plotly's form. */
export function scaleColors(scale) {
  if (scale === "gate") return "Viridis";
  if (scale === "plain") return "Cividis";
  const colors = SIGNED[currentTheme()];
  return colors.map((hex, n) => [n / (colors.length - 1), hex]);
}
