// Converts text to tensors and back: character i of the alphabet has the id i, and id 0 is padding.

/**
 * @typedef {object} TextFormat  how a model takes text
 * @property {object} input
 * @property {Map<string, number>} ids
 * @property {string} alphabet
 * @property {number|null} words  maximum number, -1 for any; null if the text is a single line
 * @property {number} letters  characters of a word or of the line, -1 for any number
 */

/** How a model takes text, or null if it does not. */
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

/** The tensor of a text; throws an Error that says what the network cannot read. */
export function textToTensor(format, text) {
  const { input, words, letters } = format;
  const lines = words === null ? [text] : text.split(/\s+/).filter(Boolean);
  if (lines.join("") === "") throw new Error("text: expected some characters, got none");
  if (words !== null && words !== -1 && lines.length > words) {
    throw new Error(`text: expected at most ${words} words, got ${lines.length}`);
  }
  const idLines = lines.map((line) => [...line].map((letter) => idOf(format, letter, text)));
  const longest = Math.max(...idLines.map((line) => line.length));
  if (letters !== -1 && longest > letters) {
    const noun = words === null ? "characters" : "characters in a word";
    throw new Error(`text: expected at most ${letters} ${noun}, got ${longest}`);
  }
  const width = letters === -1 ? longest : letters;
  const height = words === null || words === -1 ? idLines.length : words;
  const data = new Array(height * width).fill(0);
  idLines.forEach((line, row) => line.forEach((id, column) => (data[row * width + column] = id)));
  const shape = words === null ? [1, width] : [1, height, width];
  return { name: input.name, datatype: input.datatype, shape, data };
}

/** The text of a tensor. */
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

/** A text of random characters. */
export function randomText({ alphabet, words, letters }, random = Math.random) {
  const alphabetLetters = [...alphabet].slice(1).filter((letter) => letter.trim());
  const upTo = (max) => 1 + Math.floor(random() * max);
  const word = () =>
    Array.from(
      { length: upTo(letters === -1 ? 8 : letters) },
      () => alphabetLetters[Math.floor(random() * alphabetLetters.length)],
    ).join("");
  if (words === null) return word();
  return Array.from({ length: upTo(words === -1 ? 4 : words) }, word).join(" ");
}

// upper case is accepted by networks that only know lower case, and the other way round
function idOf({ ids }, letter, text) {
  const id = ids.get(letter) ?? ids.get(letter.toUpperCase()) ?? ids.get(letter.toLowerCase());
  if (id !== undefined) return id;
  const place = [...text].indexOf(letter) + 1;
  throw new Error(
    `text: expected characters of the network's alphabet, got "${letter}" at position ${place}`,
  );
}
