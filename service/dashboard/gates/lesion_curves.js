// The lesion curves of the export: changed answers, accuracy and loss, or R² and mean absolute error, with each
// layer closed by itself.

import { drawLines } from "../charts/line_chart.js";
import { titledChart } from "../charts/titled_chart.js";
import { number, percent } from "../dom/number_format.js";
import { metricName, metricText } from "../models/metric_text.js";

// share of changed answers below which a layer counts as hardly needed
const NEGLIGIBLE_CHANGE = 0.01;
// smallest range of the accuracy axis, so that a difference of a row or two does not look large
const MIN_ACCURACY_RANGE = 0.05;

/** One chart each for changed answers, accuracy and loss; for a predicted number, R² and mean absolute error. */
export function lesionCurveCharts(certificate, { rows, accuracy, loss, layers }, height) {
  const isNumber = certificate.task === "number";
  const [metric, lossName] = [metricName(certificate), isNumber ? "mean absolute error" : "loss"];
  const change = isNumber ? "moving by more than the mean absolute error" : "changing";
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
        `closed with less than ${percent(NEGLIGIBLE_CHANGE)} of the answers ${change}.`,
      changedShares,
      {
        yTitle: "answers changed",
        format: percent,
        yFormat: ".1~%",
        top: 2 * NEGLIGIBLE_CHANGE,
        tone: "--series-1",
      },
    ),
    chart(`Lesion curve: ${metric}`, `With all layers as trained: ${metricText(certificate, accuracy)}.`, accuracies, {
      yTitle: metric,
      format: (value) => metricText(certificate, value),
      yFormat: isNumber ? ".2~f" : ".1~%",
      // R² may be below 0
      range: metricRange([...accuracies, accuracy], isNumber ? -Infinity : 0),
      levels: trainedLevel(accuracy),
      tone: "--series-4",
    }),
    chart(
      `Lesion curve: ${lossName}`,
      `${isNumber ? "" : "Mean cross entropy. "}With all layers as trained: ${number(loss)}.`,
      layers.map((layer) => layer.loss),
      { yTitle: lossName, format: number, levels: trainedLevel(loss), tone: "--series-3" },
    ),
  ];
}

function trainedLevel(y) {
  return [{ y, text: "as trained", tone: "--quiet" }];
}

function metricRange(values, bottom) {
  const [lowest, highest] = [Math.min(...values), Math.max(...values)];
  const low = Math.min(lowest, highest - MIN_ACCURACY_RANGE);
  const padding = 0.08 * (highest - low);
  return [Math.max(bottom, low - padding), highest + 2 * padding];
}
