// Levers: how far layers are closed or opened by the user. A layer without a lever is as trained.

/**
 * @typedef {"closed"|"open"|number} Lever  a number is added to what T is the sigmoid of
 *
 * @typedef {Map<number, Lever>} Levers  by layer
 */

// added at most: with so much, nearly every gate is closed or open
const MAX_SHIFT = 10;
// share of a slider's half at either end that closes or opens the layer, and in its middle that resets it
const [END, MIDDLE] = [0.03, 0.04];

/** The fields of a request that closes and opens these layers. */
export function leverFields(levers) {
  const layersThatAre = (state) => [...levers.keys()].filter((layer) => levers.get(layer) === state);
  const shift = Object.fromEntries([...levers].filter(([, lever]) => typeof lever === "number"));
  return {
    close: layersThatAre("closed"),
    open: layersThatAre("open"),
    ...(Object.keys(shift).length ? { shift } : {}),
  };
}

/** Whether both move the same layers by the same amount. */
export function sameLevers(a, b) {
  return a.size === b.size && [...a].every(([layer, lever]) => b.get(layer) === lever);
}

/** The levers as text: "layers 0, 2 closed and layer 5 moved by −1.5". */
export function leversText(levers) {
  const layersBySetting = new Map();
  for (const layer of [...levers.keys()].sort((a, b) => a - b)) {
    const setting = leverText(levers.get(layer));
    layersBySetting.set(setting, [...(layersBySetting.get(setting) ?? []), layer]);
  }
  return [...layersBySetting]
    .map(([setting, layers]) => `${layers.length > 1 ? "layers" : "layer"} ${layers.join(", ")} ${setting}`)
    .join(" and ");
}

/** One lever as text; undefined is a layer without one. */
export function leverText(lever) {
  if (typeof lever !== "number") return lever ?? "as trained";
  return `moved by ${lever < 0 ? "−" : "+"}${Math.abs(lever)}`;
}

/** The lever at a position of a slider from -1, closed, to 1, open; "as trained" in the middle. */
export function leverAt(position) {
  if (position <= END - 1) return "closed";
  if (position >= 1 - END) return "open";
  return Math.abs(position) < MIDDLE ? "as trained" : Number((MAX_SHIFT * position).toFixed(1));
}

/** The position of a lever on such a slider. */
export function leverPosition(lever) {
  if (typeof lever === "number") return Math.max(-1, Math.min(1, lever / MAX_SHIFT));
  return { closed: -1, open: 1 }[lever] ?? 0;
}

/** What a reading is of: "drawn", or "drawn, with layer 3 closed". */
export function readingTitle({ row, levers }) {
  return levers ? `${row.title}, with ${leversText(levers)}` : row.title;
}
