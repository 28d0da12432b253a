// Texts as tensors: the service makes the ids that a network reads, as in its training.

/**
 * @typedef {object} TextFormat  how a model takes text
 * @property {string} name  of the input
 * @property {"words"|"characters"|"letters of words"} reads  what of a text has an id
 * @property {string[]} known  the characters or words that have an id; empty if all have
 * @property {number} words  of a text that are read
 * @property {number} characters  of a text, or of a word, that are read
 * @property {boolean} bytes  whether characters are the bytes of UTF-8
 * @property {boolean} lower  whether the service converts texts to lower case first
 * @property {string} unknown  the token that is read for what is not known; "" if that is left out
 */

// the first letters of a random text if all have an id
const LATIN = [..."abcdefghijklmnopqrstuvwxyz"];
// words and characters of a word that the marks of a scheme take
const MARKS = { alphabet: [0, 0], bytes: [0, 0], elmo: [0, 2], characterbert: [2, 2], characters: [0, 0], words: [0, 0] };
const READS = /** @type {const} */ ({ characters: "characters", words: "words" });
// a token that stands for something else than its letters, such as <pad> or [UNK]
const SPECIAL_TOKEN = /^(<[^<>]+>|\[[^[\]]+\])$/;
// names of what is not known, or of what is random, that are shown
const MAX_NAMED = 10;

/**
 * How a model takes text, or null if it does not.
 * @returns {TextFormat|null}
 */
export function textFormatOf({ inputs, certificate }) {
  const { text, alphabet } = certificate;
  if (!text || inputs.length !== 1 || inputs[0].name !== text.input) return null;
  const { scheme, vocabulary } = text;
  const [wordMarks, characterMarks] = MARKS[scheme] ?? [0, 0];
  const marks = vocabulary ? Number(vocabulary.start !== null) + Number(vocabulary.end !== null) : 0;
  return {
    name: text.input,
    reads: READS[scheme] ?? "letters of words",
    known: vocabulary ? tokensOf(vocabulary, scheme) : scheme === "alphabet" ? [...alphabet].slice(1) : [],
    words: text.words - wordMarks - (scheme === "words" ? marks : 0),
    characters: text.characters - characterMarks - (scheme === "words" ? 0 : marks),
    bytes: !vocabulary && scheme !== "alphabet",
    lower: Boolean(vocabulary?.lower),
    unknown: vocabulary && vocabulary.unknown !== null ? vocabulary.tokens[vocabulary.unknown] || "unknown" : "",
  };
}

/** The tokens of a vocabulary that a text can have. */
function tokensOf({ tokens, padding, unknown, start, end }, scheme) {
  const rules = [padding, unknown, start, end];
  return tokens.filter((token, id) =>
    scheme === "words"
      ? token && !rules.includes(id) && !SPECIAL_TOKEN.test(token)
      : [...token].length === 1 && !rules.includes(id),
  );
}

/** How much of a text is read, as part of a sentence. */
export function readPart({ reads, words, characters, bytes }) {
  if (reads === "words") return `the first ${words} words are read`;
  if (reads === "characters") return `the first ${characters} characters are read`;
  return `the first ${words} words of ${characters} ${bytes ? "bytes" : "characters"} are read`;
}

/** The tensor of a text. */
export function textTensor({ name }, text) {
  return { name, datatype: "BYTES", shape: [1], data: [text] };
}

/** The text with letters in the other case where only that has an id: networks may know upper case alone. */
export function inKnownCase({ reads, known, lower }, text) {
  if (!known.length || lower || reads === "words") return text;
  const letters = new Set(known);
  const other = (letter) => [letter.toUpperCase(), letter.toLowerCase()].find((one) => letters.has(one));
  return [...text].map((letter) => (letters.has(letter) ? letter : (other(letter) ?? letter))).join("");
}

/** What of a text the network does not read, as sentences. */
export function unreadParts(format, text) {
  const { reads, known, words, characters, bytes, unknown } = format;
  const found = wordsOf(format, text);
  const parts = partsOf(format, text);
  const ids = new Set(known);
  const isKnown = (part) => !known.length || ids.has(part);
  const strange = [...new Set(parts)].filter((part) => !isKnown(part));
  const named = strange.slice(0, MAX_NAMED).map((part) => (part.trim() ? part : JSON.stringify(part)));
  const more = strange.length > MAX_NAMED ? " …" : ".";
  const count = (all) => (unknown ? all.length : all.filter(isKnown).length);
  const length = (word) => (bytes ? new TextEncoder().encode(word).length : count([...word]));
  return [
    strange.length > 0 && `${unknown ? `Read as ${unknown}` : "Left out"}: ${named.join(" ")}${more}`,
    reads === "words" && count(parts) > words && `Only the first ${words} words are read.`,
    reads === "characters" && count(parts) > characters && `Only the first ${characters} characters are read.`,
    reads === "letters of words" && found.length > words && `Only the first ${words} words are read.`,
    reads === "letters of words" &&
      found.some((word) => length(word) > characters) &&
      `Only the first ${characters} ${bytes ? "bytes" : "characters"} of a word are read.`,
  ].filter(Boolean);
}

/** A text of random letters or words that are known. */
export function randomText({ reads, known, words, characters }, random = Math.random) {
  const upTo = (max) => 1 + Math.floor(random() * max);
  const any = (pool) => pool[Math.floor(random() * pool.length)];
  if (reads === "words") return Array.from({ length: upTo(Math.min(words, 8)) }, () => any(known)).join(" ");
  const some = known.filter((letter) => letter.trim());
  const pool = some.length ? some : LATIN;
  const letters = (max) => Array.from({ length: upTo(Math.min(max, 12)) }, () => any(pool)).join("");
  if (reads === "characters") return letters(characters);
  return Array.from({ length: upTo(Math.min(words, 8)) }, () => letters(characters)).join(" ");
}

/** The words of a text as the service finds them. */
function wordsOf({ lower }, text) {
  return (lower ? text.toLowerCase() : text).split(/\s+/).filter(Boolean);
}

/** The characters or words of a text that become ids. */
function partsOf(format, text) {
  const words = wordsOf(format, text);
  if (format.reads === "words") return words;
  return [...(format.reads === "characters" ? (format.lower ? text.toLowerCase() : text) : words.join(""))];
}
