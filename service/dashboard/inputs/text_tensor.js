// Texts as tensors: the service makes the ids that a network reads, as in its training.

/**
 * @typedef {object} TextFormat  how a model takes text
 * @property {string} name  of the input
 * @property {string[]} letters  that have an id; empty if all have
 * @property {number} words  of a text that are read
 * @property {number} characters  of a word that are read
 * @property {boolean} bytes  whether characters are the bytes of UTF-8
 */

// the first letters of a random text if all have an id
const LATIN = [..."abcdefghijklmnopqrstuvwxyz"];
// words and characters of a word that the marks of a scheme take
const MARKS = { alphabet: [0, 0], bytes: [0, 0], elmo: [0, 2], characterbert: [2, 2] };

/** How a model takes text, or null if it does not. */
export function textFormatOf({ inputs, certificate }) {
  const { text, alphabet } = certificate;
  if (!text || inputs.length !== 1 || inputs[0].name !== text.input) return null;
  const [wordMarks, characterMarks] = MARKS[text.scheme] ?? [0, 0];
  return {
    name: text.input,
    letters: text.scheme === "alphabet" ? [...alphabet].slice(1) : [],
    words: text.words - wordMarks,
    characters: text.characters - characterMarks,
    bytes: text.scheme !== "alphabet",
  };
}

/** The tensor of a text. */
export function textTensor({ name }, text) {
  return { name, datatype: "BYTES", shape: [1], data: [text] };
}

/** The text with letters in the other case where only that has an id: networks may know upper case alone. */
export function inKnownCase({ letters }, text) {
  if (!letters.length) return text;
  const known = new Set(letters);
  const other = (letter) => [letter.toUpperCase(), letter.toLowerCase()].find((one) => known.has(one));
  return [...text].map((letter) => (known.has(letter) ? letter : (other(letter) ?? letter))).join("");
}

/** What of a text the network does not read, as sentences. */
export function unreadParts({ letters, words, characters, bytes }, text) {
  const found = text.split(/\s+/).filter(Boolean);
  const known = new Set(letters);
  const unknown = letters.length ? [...new Set(found.join(""))].filter((letter) => !known.has(letter)) : [];
  const length = (word) =>
    bytes
      ? new TextEncoder().encode(word).length
      : [...word].filter((letter) => known.has(letter)).length;
  return [
    unknown.length && `Left out: ${unknown.slice(0, 10).join(" ")}${unknown.length > 10 ? " …" : "."}`,
    found.length > words && `Only the first ${words} words are read.`,
    found.some((word) => length(word) > characters) &&
      `Only the first ${characters} ${bytes ? "bytes" : "characters"} of a word are read.`,
  ].filter(Boolean);
}

/** A text of random letters. */
export function randomText({ letters, words, characters }, random = Math.random) {
  const some = letters.filter((letter) => letter.trim());
  const pool = some.length ? some : LATIN;
  const upTo = (max) => 1 + Math.floor(random() * max);
  const word = () =>
    Array.from({ length: upTo(Math.min(characters, 12)) }, () => pool[Math.floor(random() * pool.length)]).join("");
  return Array.from({ length: upTo(Math.min(words, 8)) }, word).join(" ");
}
