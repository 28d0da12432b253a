// Plotly, fetched when the first chart is drawn, and made to live under the page's policy for content.

import { el } from "../dom/element.js";

let loading = null;

/** The library, fetched once; after a failure the next who asks has it fetched again. */
export function loadPlotly() {
  loading ??= fetched().catch((error) => {
    loading = null;
    throw error;
  });
  return loading;
}

function fetched() {
  return new Promise((resolve, reject) => {
    const { head } = document;
    const version = document.querySelector("meta[name=plotly]")?.content ?? "";
    const plain = head.appendChild;
    // it brings the sheet of a map library, which our policy forbids, and we draw no maps
    head.appendChild = (node) => (node.localName === "style" ? node : plain.call(head, node));
    const script = el("script", {
      src: `dashboard/plotly.js?v=${encodeURIComponent(version)}`,
      on: {
        load: () => {
          delete head.appendChild;
          resolve(window.Plotly);
        },
        error: () => {
          delete head.appendChild;
          script.remove();
          reject(new Error("expected its library from the server, and it cannot be fetched"));
        },
      },
    });
    plain.call(head, script);
  });
}

// it writes style attributes, which our policy forbids to markup and allows to scripts
const plainSet = Element.prototype.setAttribute;
Element.prototype.setAttribute = function setAttribute(name, value) {
  if (name === "style") this.style.cssText = value;
  else plainSet.call(this, name, value);
};
