// Evaluates a function per line of the input, {source, argument} in JSON, and writes {result} or {error} per line.

import { createInterface } from "node:readline";

for await (const line of createInterface({ input: process.stdin })) {
  const { source, argument } = JSON.parse(line);
  let answer;
  try {
    // direct, so that the function may import modules
    answer = { result: await eval(source)(argument) };
  } catch (error) {
    answer = { error: error.stack };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
