// What each served version says of itself, fetched when somebody looks at it and then known.

import { get, modelPath } from "./api.js";

// a long list that is scrolled through must not flood the server
const AT_ONCE = 4;
const known = new Map();
const waiting = [];
let running = 0;

/** {metadata, certificate} of a version; `fresh` asks again. */
export function modelFacts({ name, version }, { fresh = false } = {}) {
  const path = modelPath(name, version);
  if (fresh || !known.has(path)) {
    const facts = inTurn(() => fetched(path));
    known.set(path, facts);
    facts.catch(() => known.get(path) === facts && known.delete(path));
  }
  return known.get(path);
}

/** Forget all: what is served may have changed. */
export function clearModelFacts() {
  known.clear();
}

async function fetched(path) {
  // the certificate first: where a file is replaced in between, its digest is an old one, and that is noticed
  const certificate = await get(`${path}/certificate`);
  return { certificate, metadata: await get(path) };
}

async function inTurn(job) {
  while (running >= AT_ONCE) await new Promise((resolve) => waiting.push(resolve));
  running += 1;
  try {
    return await job();
  } finally {
    running -= 1;
    waiting.shift()?.();
  }
}
