// What the certificate of a model comes to, in a few words.

import { number } from "../dom/number_format.js";

/** Whether parity was proved, the word for it, and the tensor that came nearest to failing, or null. */
export function parityVerdict({ parity }) {
  if (!parity) return { proved: false, word: "not proved", worst: null };
  const proved = parity.verdict === "pass";
  const worst = parity.tensors.find((one) => one.name === parity.worst) ?? null;
  return { proved, word: proved ? "proved" : parity.verdict, worst };
}

/** A tensor's error as a multiple of the one that PyTorch itself makes. */
export function errorRatio({ rms, rms_torch: torch }) {
  if (rms === 0) return "exact";
  return torch ? `${(rms / torch).toFixed(2)}×` : number(rms);
}
