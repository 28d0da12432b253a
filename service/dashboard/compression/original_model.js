// Finds the whole network that a compressed model was made from, if the service has it as well.

import { get, modelPath } from "../state/api.js";
import { modelFacts } from "../state/model_facts.js";

// certificates that are read at most: a repository may have thousands of versions
const MAX_CERTIFICATES = 50;

/**
 * The served version with the weights of the original, or null. Versions of the same model are tried first.
 *
 * @param {import("../state/store.js").Model} model  a compressed model
 * @param {{name: string, version: string, state: string}[]} index  of the repository
 * @returns {Promise<{name: string, version: string, path: string, gates: object[]}|null>}
 */
export async function findOriginal({ name, certificate }, index) {
  const served = index.filter(({ state }) => state === "READY");
  const sameNameFirst = [
    ...served.filter((version) => version.name === name),
    ...served.filter((version) => version.name !== name),
  ];
  for (const version of sameNameFirst.slice(0, MAX_CERTIFICATES)) {
    // a version that was unloaded meanwhile is not the one
    const facts = await modelFacts(version).catch(() => null);
    if (facts?.certificate.weights !== certificate.compression?.original) continue;
    const path = modelPath(version.name, version.version);
    const profile = facts.certificate.gates ? await get(`${path}/gates/profile`) : null;
    return { name: version.name, version: version.version, path, gates: profile?.gates ?? [] };
  }
  return null;
}
