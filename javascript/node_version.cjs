// Exits with 1 if this Node.js is older than the linter needs, in a syntax that old versions read as well.

const [major, minor] = process.versions.node.split(".").map(Number);
const oldestMinor = { 20: 19, 22: 13 }[major] ?? (major >= 24 ? 0 : Infinity);
process.exit(minor >= oldestMinor ? 0 : 1);
