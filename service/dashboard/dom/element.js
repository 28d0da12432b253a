// Elements are made of text and nodes alone: nothing that a stranger wrote is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element with attributes and children; `on` is an object of listeners, false and null attributes are
 * left out, and true ones stand without a value. Children are nodes, texts, numbers, lists of these, or
 * nothing.
 */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for a picture. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** Put these children in the place of what a node has. */
export function setChildren(node, ...children) {
  node.replaceChildren(...wanted(children));
  return node;
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else if (value === true) {
      node.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      node.setAttribute(name, value);
    }
  }
  node.append(...wanted(children));
  return node;
}

function wanted(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}
