// Creates DOM elements from text and nodes only, so that names from model files are never parsed as markup.

const SVG = "http://www.w3.org/2000/svg";
// characters with which a name could turn the direction of the text around it
const DIRECTION_CONTROLS = /[\u202a-\u202e\u2066-\u2069]/g;

/**
 * @typedef {{[Event in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[Event]) => void}} Listeners
 *
 * @typedef {{on?: Listeners, [name: string]: unknown}} Attributes
 *
 * @typedef {Node|string|number|false|null|undefined} Leaf
 *
 * @typedef {Leaf|readonly (Leaf|readonly (Leaf|readonly (Leaf|readonly Leaf[])[])[])[]} Content
 */

/**
 * An element with attributes and children. `on` maps events to listeners; attributes that are false, null or
 * undefined are left out, and true ones are set without a value. Children are nodes, strings, numbers, nested
 * lists of these, or null, undefined or false for nothing.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} attributes
 * @param {...Content} children
 */
export function el(tag, attributes = {}, ...children) {
  return withContent(document.createElement(tag), attributes, children);
}

/**
 * The same for an SVG element.
 *
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} attributes
 * @param {...Content} children
 */
export function svg(tag, attributes = {}, ...children) {
  return withContent(document.createElementNS(SVG, tag), attributes, children);
}

/**
 * Replace the children of a node.
 *
 * @template {Element} Parent
 * @param {Parent} node
 * @param {...Content} children
 */
export function setChildren(node, ...children) {
  node.replaceChildren(...flattened(children));
  return node;
}

/**
 * The text with escapes such as \\u202e for characters that change its direction.
 *
 * @param {string} text
 */
export function showControls(text) {
  return text.replace(DIRECTION_CONTROLS, (character) => `\\u${character.charCodeAt(0).toString(16)}`);
}

/**
 * @template {Element} Parent
 * @param {Parent} node
 * @param {Attributes} attributes
 * @param {Content[]} children
 */
function withContent(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(attributes.on ?? {}))
        node.addEventListener(event, /** @type {EventListener} */ (listener));
    } else if (value === true) {
      node.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      node.setAttribute(name, String(value));
    }
  }
  node.append(...flattened(children));
  return node;
}

/**
 * @param {readonly Content[]} children
 * @returns {(Node|string)[]}
 */
function flattened(children) {
  /** @type {readonly unknown[]} */
  const lists = children;
  const leaves = /** @type {Leaf[]} */ (lists.flat(Infinity));
  return leaves.flatMap((child) => {
    if (child === null || child === undefined || child === false) return [];
    return child instanceof Node ? child : showControls(String(child));
  });
}
