// Moves the shares of the road from what is drawn to new values within a moment.

// milliseconds; shorter than the time between two rows while the user draws
const DURATION = 140;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

/** Create a transition. Returns `moveTo(shares)`, which calls `draw` with the shares of every frame. */
export function shareTransition(draw) {
  /** @type {(import("./road_layers.js").Shares|null)[][]} */
  let [from, to, now] = [[], [], []];
  let [start, frame] = [0, 0];

  function step(time) {
    const progress = Math.min(1, Math.max(0, time - start) / DURATION);
    now = to.map((target, n) => between(from[n], target, progress));
    draw(now);
    if (progress < 1) frame = requestAnimationFrame(step);
  }

  return (shares) => {
    cancelAnimationFrame(frame);
    [from, to, start] = [now, shares, performance.now()];
    if (calm.matches || document.hidden || from.length !== to.length) {
      now = to;
      draw(now);
    } else {
      frame = requestAnimationFrame(step);
    }
  };
}

/** Shares at this progress from 0 to 1; null is a road without lanes. */
function between(a, b, progress) {
  if (!a || !b) return b;
  const mix = (key) => a[key] + (b[key] - a[key]) * progress;
  return { carried: mix("carried"), transformed: mix("transformed") };
}
