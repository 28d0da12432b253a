// Formats numbers, durations and sizes for display.

const KIB = 1024;

/** At most three significant digits, four above a thousand: 0.0123, 12.3, 1,234, 1.2M. */
export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  return formatted(value, size).replaceAll("-", "−");
}

function formatted(value, size) {
  if (size >= 1e6) return value.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 });
  if (size !== 0 && size < 1e-3) return value.toExponential(1);
  return value.toLocaleString("en", { maximumSignificantDigits: size >= 1000 ? 4 : 3 });
}

/** A count of things, with all its digits: 58,788. */
export function count(value) {
  return value.toLocaleString("en");
}

/** 0.1234 as 12.3 %. */
export function percent(share) {
  if (share === null || share === undefined || Number.isNaN(share)) return "–";
  return `${(100 * share).toLocaleString("en", { maximumSignificantDigits: 3 }).replace("-", "−")} %`;
}

/** A share of many rows, to a hundredth of a percent: 0.92534 as 92.53 %. */
export function finePercent(share) {
  if (share === null || share === undefined || Number.isNaN(share)) return "–";
  return `${(100 * share).toFixed(2)} %`;
}

/** Seconds as µs, ms or s. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  if (seconds < 1e-3) return `${number(seconds * 1e6)} µs`;
  if (seconds < 1) return `${number(seconds * 1e3)} ms`;
  return `${number(seconds)} s`;
}

/** A rough time span: 12 s, 3 min, 2 h. */
export function elapsed(seconds) {
  if (seconds < 100) return `${Math.round(seconds)} s`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

/** Bytes as KiB, MiB or GiB. */
export function bytes(size) {
  if (size < KIB) return `${size} bytes`;
  if (size < KIB ** 2) return `${number(size / KIB)} KiB`;
  if (size < KIB ** 3) return `${number(size / KIB ** 2)} MiB`;
  return `${number(size / KIB ** 3)} GiB`;
}

/** A tensor shape: a variable first axis is n (rows), other variable axes are ?. */
export function shapeText(shape) {
  return shape.map((dim, axis) => (dim >= 0 ? dim : axis ? "?" : "n")).join(" × ") || "a single value";
}
