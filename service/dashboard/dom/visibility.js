// Watches whether an element is visible, so that nothing is drawn or requested for what nobody sees.

/** Call `listener` now and on each change: whether the node is in the window and the tab is shown. */
export function watchVisibility(node, listener) {
  let inside = false;
  let last = null;
  const update = () => {
    const visible = inside && !document.hidden;
    if (visible !== last) listener((last = visible));
  };
  new IntersectionObserver((entries) => {
    inside = entries.at(-1).isIntersecting;
    update();
  }).observe(node);
  document.addEventListener("visibilitychange", update);
}
