// Summarizes what a model's certificate proves and what was measured.

import { number } from "../dom/number_format.js";

/** Whether the file was proved, the words for it, and the tensor with the largest relative error, or null. */
export function parityVerdict({ parity, proved, precision }) {
  if (!parity) return { proved: false, word: "unknown", worst: null };
  const worst = parity.tensors.find((tensor) => tensor.name === parity.worst) ?? null;
  const provedWord = precision === "fp32" ? "proved" : "proved in fp32";
  return { proved, word: proved ? provedWord : `agreed on ${number(parity.batches.length)} batches`, worst };
}

/** A tensor's RMS error as a multiple of PyTorch's own. */
export function errorRatio({ rms, rms_torch: torch }) {
  if (rms === 0) return "exact";
  return torch ? `${(rms / torch).toFixed(2)}×` : number(rms);
}
