// Reads and writes CSV: cells separated by commas or the like, in quotes if they contain commas, quotes or line breaks.

const DELIMITERS = [",", ";", "\t", "|"];
const NEEDS_QUOTES = /[",\r\n]/;

/**
 * The lines of a CSV text that are not blank. Throws an Error if quotes are left open.
 *
 * @param {string} delimiter  what stands between cells
 * @returns {{line: number, cells: string[]}[]}  with the number of the line on which each begins
 */
export function parseCsv(text, delimiter = ",") {
  const records = [];
  const mark = delimiter === "|" ? "\\|" : delimiter;
  // a cell in quotes or without, and what follows it
  const cellPattern = new RegExp(`(?:"((?:[^"]|"")*)"|([^"${mark}\\r\\n]*))(${mark}|\\r\\n|\\n|\\r|$)`, "y");
  const source = text.replace(/^\ufeff/, "");
  let line = 1;
  let cells = [];
  let start = line;
  while (cellPattern.lastIndex < source.length || cells.length > 0) {
    const match = cellPattern.exec(source);
    if (!match) throw new Error(`line ${line}: expected quotes around a whole cell, and doubled within`);
    const [, quoted, plain, end] = match;
    cells.push(quoted === undefined ? plain : quoted.replaceAll('""', '"'));
    line += quoted?.match(/\r\n|\n|\r/g)?.length ?? 0;
    if (end === delimiter) continue;
    if (cells.some((cell) => cell.trim() !== "")) records.push({ line: start, cells });
    line += 1;
    start = line;
    cells = [];
  }
  return records;
}

/** What the first line of a text has most of, outside quotes, among the usual delimiters. */
export function delimiterOf(text) {
  const [first] = text.replace(/"[^"]*"/g, "").split(/[\r\n]/, 1);
  const count = (mark) => first.split(mark).length;
  return DELIMITERS.reduce((best, mark) => (count(mark) > count(best) ? mark : best));
}

/** CSV with a line for each list of cells. */
export function csvText(rows) {
  return rows.map((cells) => `${cells.map(csvCell).join(",")}\n`).join("");
}

function csvCell(cell) {
  const text = String(cell);
  return NEEDS_QUOTES.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
