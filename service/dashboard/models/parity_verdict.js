// Summarizes the parity proof in a model's certificate.

import { number } from "../dom/number_format.js";

/** Whether parity was proved, the word for it, and the tensor that came closest to failing, or null. */
export function parityVerdict({ parity }) {
  if (!parity) return { proved: false, word: "not proved", worst: null };
  const proved = parity.verdict === "pass";
  const worst = parity.tensors.find((tensor) => tensor.name === parity.worst) ?? null;
  return { proved, word: proved ? "proved" : parity.verdict, worst };
}

/** A tensor's RMS error as a multiple of PyTorch's own. */
export function errorRatio({ rms, rms_torch: torch }) {
  if (rms === 0) return "exact";
  return torch ? `${(rms / torch).toFixed(2)}×` : number(rms);
}
