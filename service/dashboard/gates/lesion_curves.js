// The lesion curves of the export: changed answers, accuracy and loss with each layer closed by itself.

import { drawLines } from "../charts/line_chart.js";
import { titledChart } from "../charts/titled_chart.js";
import { number, percent } from "../dom/number_format.js";

// share of changed answers below which a layer counts as hardly needed
const NEGLIGIBLE_CHANGE = 0.01;
// smallest range of the accuracy axis, so that a difference of a row or two does not look large
const MIN_ACCURACY_RANGE = 0.05;

/** One chart each for changed answers, accuracy and loss. */
export function lesionCurveCharts({ rows, accuracy, loss, layers }, height) {
  const removable = layers.filter(({ flipped }) => flipped < NEGLIGIBLE_CHANGE).length;
  const noun = layers.length === 1 ? "layer" : "layers";
  const chart = (title, caption, values, options) => {
    const { node, figure } = titledChart(title, caption);
    drawLines(figure, {
      label: `${title}, with each of ${layers.length} layers closed by itself.`,
      x: layers.map((layer) => String(layer.layer)),
      series: [{ name: options.yTitle, y: values, tone: options.tone, format: options.format }],
      xTitle: "closed layer",
      height,
      ...options,
    });
    return node;
  };
  const changedShares = layers.map(({ flipped }) => flipped);
  const accuracies = layers.map((layer) => layer.accuracy);
  return [
    chart(
      "Lesion curve: answers",
      `Each layer closed by itself, over ${number(rows)} rows. ${removable} of ${layers.length} ${noun} can be ` +
        `closed with less than ${percent(NEGLIGIBLE_CHANGE)} of the answers changing.`,
      changedShares,
      {
        yTitle: "answers changed",
        format: percent,
        yFormat: ".1~%",
        top: 2 * NEGLIGIBLE_CHANGE,
        tone: "--series-1",
      },
    ),
    chart("Lesion curve: accuracy", `With all layers as trained: ${percent(accuracy)}.`, accuracies, {
      yTitle: "accuracy",
      format: percent,
      yFormat: ".1~%",
      range: accuracyRange([...accuracies, accuracy]),
      levels: trainedLevel(accuracy),
      tone: "--series-4",
    }),
    chart(
      "Lesion curve: loss",
      `Mean cross entropy. With all layers as trained: ${number(loss)}.`,
      layers.map((layer) => layer.loss),
      { yTitle: "loss", format: number, levels: trainedLevel(loss), tone: "--series-3" },
    ),
  ];
}

function trainedLevel(y) {
  return [{ y, text: "as trained", tone: "--quiet" }];
}

function accuracyRange(shares) {
  const [lowest, highest] = [Math.min(...shares), Math.max(...shares)];
  const low = Math.min(lowest, highest - MIN_ACCURACY_RANGE);
  const padding = 0.08 * (highest - low);
  return [Math.max(0, low - padding), highest + 2 * padding];
}
