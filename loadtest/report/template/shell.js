"use strict";
// Draws the charts in the colours of the page's style. Draws them again when the theme changes, and for printing.

const charts = JSON.parse(document.getElementById("charts").textContent);
const darkTheme = matchMedia("(prefers-color-scheme: dark)");
const touchScreen = matchMedia("(pointer: coarse)").matches;
const COLOUR_KEYS = new Set(["color", "fillcolor", "bgcolor", "bordercolor", "gridcolor", "linecolor"]);

// Replaces names of colours ("blue") by the values of the style's variables ("--blue"), in all nested values.
function withColours(value, key, style) {
  if (Array.isArray(value)) return value.map((item) => withColours(item, key, style));
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, withColours(item, name, style)]));
  }
  return COLOUR_KEYS.has(key) && typeof value === "string" ? style.getPropertyValue("--" + value).trim() : value;
}

function withDefaults(layout) {
  const axis = (own) => ({
    gridcolor: "rule", linecolor: "edge", automargin: true, fixedrange: touchScreen,
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
    dragmode: touchScreen ? false : "zoom",
  };
}

function draw() {
  const root = document.documentElement;
  const style = getComputedStyle(root);
  for (const chart of charts) {
    const element = document.getElementById("chart-" + chart.name);
    const layout = withColours(withDefaults(chart.layout), "", style);
    // a chart cannot resize while the page is printed, so it gets its size now
    const printed = root.classList.contains("printed");
    const size = printed ? { width: element.clientWidth, height: element.clientHeight } : {};
    Plotly.react(
      element, withColours(chart.data, "", style), { ...layout, ...size }, { displayModeBar: false, responsive: true },
    );
  }
}

draw();
darkTheme.addEventListener("change", draw);
for (const [event, printed] of [["beforeprint", true], ["afterprint", false]]) {
  addEventListener(event, () => {
    document.documentElement.classList.toggle("printed", printed);
    draw();
  });
}
