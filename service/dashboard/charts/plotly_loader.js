// Loads Plotly when the first chart is drawn, and adapts it to the page's Content-Security-Policy.

import { el } from "../dom/element.js";

let loading = null;

/** Load Plotly once; after a failure the next call tries again. */
export function loadPlotly() {
  loading ??= addScript().catch((error) => {
    loading = null;
    throw error;
  });
  return loading;
}

function addScript() {
  return new Promise((resolve, reject) => {
    const { head } = document;
    const version = document.querySelector("meta[name=plotly]")?.getAttribute("content") ?? "";
    // Plotly adds the style sheet of a map library, which the policy forbids and no chart here needs
    Object.defineProperty(head, "appendChild", { configurable: true, value: appendUnlessStyle });
    const script = el("script", {
      src: `dashboard/plotly.js?v=${encodeURIComponent(version)}`,
      on: {
        load: () => {
          Reflect.deleteProperty(head, "appendChild");
          resolve(globalThis.Plotly);
        },
        error: () => {
          Reflect.deleteProperty(head, "appendChild");
          script.remove();
          reject(new Error("the chart library could not be loaded from the server"));
        },
      },
    });
    head.append(script);
  });
}

/**
 * @this {Node}
 * @param {Node} node
 */
function appendUnlessStyle(node) {
  return node.nodeName === "STYLE" ? node : Node.prototype.appendChild.call(this, node);
}

// Plotly sets style attributes; the policy forbids those in markup and allows setting them from a script
const originalSetAttribute = Element.prototype.setAttribute;
Element.prototype.setAttribute = function setAttribute(name, value) {
  if (name === "style" && (this instanceof HTMLElement || this instanceof SVGElement)) this.style.cssText = value;
  else originalSetAttribute.call(this, name, value);
};
