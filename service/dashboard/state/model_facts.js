// Metadata and certificate of each served version, fetched on first use and then cached.

import { get, modelPath } from "./api.js";

// requests in flight at most: scrolling through a long list must not flood the server
const MAX_PARALLEL_REQUESTS = 4;
const cache = new Map();
const queue = [];
let running = 0;

/** {metadata, certificate} of a version; `fresh` bypasses the cache. */
export function modelFacts({ name, version }, { fresh = false } = {}) {
  const path = modelPath(name, version);
  if (fresh || !cache.has(path)) {
    const facts = limitParallel(() => fetchFacts(path));
    cache.set(path, facts);
    facts.catch(() => cache.get(path) === facts && cache.delete(path));
  }
  return cache.get(path);
}

/** Empty the cache, because the server may now have other files. */
export function clearModelFacts() {
  cache.clear();
}

async function fetchFacts(path) {
  // certificate first: if the file is replaced between the two requests, its digest is outdated and the next
  // check notices
  const certificate = await get(`${path}/certificate`);
  return { certificate, metadata: await get(path) };
}

async function limitParallel(job) {
  while (running >= MAX_PARALLEL_REQUESTS) await new Promise((resolve) => queue.push(resolve));
  running += 1;
  try {
    return await job();
  } finally {
    running -= 1;
    queue.shift()?.();
  }
}
