// The lesion curve of the export: each layer closed in its turn, against the network as it is.

import { number, percent } from "../dom/number_format.js";
import { drawLines } from "../charts/line_chart.js";
import { titledChart } from "../charts/titled_chart.js";

// a layer whose lesion changes fewer answers than this is one that the network hardly needs
const FEW = 0.01;
// of an axis of accuracy at least, so that a row or two look as little as they are
const SPAN = 0.05;

/** Answers changed, accuracy and loss, a chart each. */
export function lesionCurveCharts({ rows, accuracy, loss, layers }, height) {
  const idle = layers.filter(({ flipped }) => flipped < FEW).length;
  const layer = layers.length === 1 ? "layer" : "layers";
  const chart = (title, words, y, options) => {
    const { node, figure } = titledChart(title, words);
    drawLines(figure, {
      label: `${title}, with each of ${layers.length} layers closed by itself.`,
      x: layers.map((one) => String(one.layer)),
      series: [{ name: options.yTitle, y, tone: options.tone, format: options.format }],
      xTitle: "closed layer",
      height,
      ...options,
    });
    return node;
  };
  const flips = layers.map(({ flipped }) => flipped);
  const rights = layers.map((one) => one.accuracy);
  return [
    chart(
      "Lesion curve: answers",
      `Each layer closed by itself, over ${number(rows)} rows: ${idle} of ${layers.length} ${layer} can ` +
        `be closed with fewer than ${percent(FEW)} of answers changed.`,
      flips,
      { yTitle: "answers changed", format: percent, yFormat: ".1~%", top: 2 * FEW, tone: "--series-1" },
    ),
    chart(
      "Lesion curve: accuracy",
      `With all layers as they are it is ${percent(accuracy)}.`,
      rights,
      {
        yTitle: "accuracy",
        format: percent,
        yFormat: ".1~%",
        range: aroundAccuracy([...rights, accuracy]),
        levels: asItIs(accuracy),
        tone: "--series-4",
      },
    ),
    chart(
      "Lesion curve: loss",
      `The mean cross entropy; with all layers as they are it is ${number(loss)}.`,
      layers.map((one) => one.loss),
      { yTitle: "loss", format: number, levels: asItIs(loss), tone: "--series-3" },
    ),
  ];
}

function asItIs(y) {
  return [{ y, text: "as it is", tone: "--quiet" }];
}

function aroundAccuracy(shares) {
  const [least, most] = [Math.min(...shares), Math.max(...shares)];
  const low = Math.min(least, most - SPAN);
  const room = 0.08 * (most - low);
  return [Math.max(0, low - room), most + 2 * room];
}
