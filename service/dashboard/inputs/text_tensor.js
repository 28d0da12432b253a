// Texts for a network that reads letters: letter i of the alphabet has the id i, and id 0 fills up.

/**
 * @typedef {object} Reader
 * @property {object} input
 * @property {Map<string, number>} ids
 * @property {string} alphabet
 * @property {number|null} words  how many there may be, -1 for any; null where a text is one line of letters
 * @property {number} letters  of a word or of the line, -1 for any
 */

/** How a model reads text, null for one that does not. */
export function textFormatOf({ inputs, certificate }) {
  const [input] = inputs;
  if (!certificate.alphabet || inputs.length !== 1 || !/^INT(32|64)$/.test(input.datatype)) return null;
  const dims = input.shape.slice(1);
  if (input.shape[0] !== -1 || dims.length < 1 || dims.length > 2) return null;
  const alphabet = certificate.alphabet;
  const ids = new Map([...alphabet].map((letter, id) => [letter, id]));
  const [words, letters] = dims.length === 2 ? dims : [null, dims[0]];
  return { input, alphabet, ids, words, letters };
}

/** The row of a text; an Error says what of it the network cannot read. */
export function textToTensor(reader, text) {
  const { input, words, letters } = reader;
  const lines = words === null ? [text] : text.split(/\s+/).filter(Boolean);
  if (lines.join("") === "") throw new Error("text: expected some letters, got none");
  if (words !== null && words !== -1 && lines.length > words) {
    throw new Error(`text: expected at most ${words} words, got ${lines.length}`);
  }
  const coded = lines.map((line) => [...line].map((letter) => idOf(reader, letter, text)));
  const longest = Math.max(...coded.map((line) => line.length));
  if (letters !== -1 && longest > letters) {
    const what = words === null ? "letters" : "letters in a word";
    throw new Error(`text: expected at most ${letters} ${what}, got ${longest}`);
  }
  const width = letters === -1 ? longest : letters;
  const height = words === null || words === -1 ? coded.length : words;
  const data = new Array(height * width).fill(0);
  coded.forEach((line, row) => line.forEach((id, column) => (data[row * width + column] = id)));
  const shape = words === null ? [1, width] : [1, height, width];
  return { name: input.name, datatype: input.datatype, shape, data };
}

/** The text of a row. */
export function tensorToText({ alphabet, words }, { shape, data }) {
  const letters = [...alphabet];
  const width = shape.at(-1);
  const lines = Array.from({ length: data.length / width }, (_, row) =>
    Array.from({ length: width }, (_, column) => Number(data[row * width + column]))
      .map((id) => (id === 0 && words !== null ? "" : (letters[id] ?? "�")))
      .join(""),
  );
  return lines.join(" ").trim();
}

/** A text of random letters. */
export function randomText({ alphabet, words, letters }, chance = Math.random) {
  const known = [...alphabet].slice(1).filter((letter) => letter.trim());
  const upTo = (most) => 1 + Math.floor(chance() * most);
  const word = () =>
    Array.from(
      { length: upTo(letters === -1 ? 8 : letters) },
      () => known[Math.floor(chance() * known.length)],
    ).join("");
  if (words === null) return word();
  return Array.from({ length: upTo(words === -1 ? 4 : words) }, word).join(" ");
}

// networks that know one case only are given that
function idOf({ ids }, letter, text) {
  const id = ids.get(letter) ?? ids.get(letter.toUpperCase()) ?? ids.get(letter.toLowerCase());
  if (id !== undefined) return id;
  const place = [...text].indexOf(letter) + 1;
  throw new Error(`text: expected letters of the network's alphabet, got "${letter}" at place ${place}`);
}
