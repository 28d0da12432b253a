"use strict";
// Draws the charts with the colours that the page's style has just now: again when day turns to night, and for paper.

const charts = JSON.parse(document.getElementById("charts").textContent);
const night = matchMedia("(prefers-color-scheme: dark)");
const touched = matchMedia("(pointer: coarse)").matches;
const COLOURED = new Set(["color", "fillcolor", "bgcolor", "bordercolor", "gridcolor", "linecolor"]);

function coloured(value, key, style) {
  if (Array.isArray(value)) return value.map((one) => coloured(one, key, style));
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, coloured(one, name, style)]));
  }
  return COLOURED.has(key) && typeof value === "string" ? style.getPropertyValue("--" + value).trim() : value;
}

function dressed(layout) {
  const axis = (own) => ({
    gridcolor: "rule", linecolor: "edge", automargin: true, fixedrange: touched,
    ...own, title: { standoff: 8, ...own.title },
  });
  return {
    ...layout,
    xaxis: axis({ ...layout.xaxis, showgrid: false }),
    yaxis: axis(layout.yaxis),
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif", size: 13, color: "quiet" },
    hoverlabel: { bgcolor: "card", bordercolor: "edge", font: { color: "ink" } },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { color: "ink" } },
    margin: { l: 10, r: 16, t: 10, b: 10 },
    dragmode: touched ? false : "zoom",
  };
}

function draw() {
  const root = document.documentElement;
  const style = getComputedStyle(root);
  for (const chart of charts) {
    const place = document.getElementById("chart-" + chart.name);
    const layout = coloured(dressed(chart.layout), "", style);
    // paper does not resize: what is drawn has to have its size by now
    const size = root.classList.contains("printed") ? { width: place.clientWidth, height: place.clientHeight } : {};
    Plotly.react(
      place, coloured(chart.data, "", style), { ...layout, ...size }, { displayModeBar: false, responsive: true },
    );
  }
}

draw();
night.addEventListener("change", draw);
for (const [event, printed] of [["beforeprint", true], ["afterprint", false]]) {
  addEventListener(event, () => {
    document.documentElement.classList.toggle("printed", printed);
    draw();
  });
}
