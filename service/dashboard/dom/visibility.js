// Watches whether an element is visible, so that nothing is drawn or requested for what nobody sees.

/**
 * Call `listener` now and on each change: whether the node is in the window and the tab is shown.
 *
 * @param {Element} node
 * @param {(visible: boolean) => void} listener
 */
export function watchVisibility(node, listener) {
  let inside = false;
  /** @type {boolean|null} */
  let last = null;
  const update = () => {
    const visible = inside && !document.hidden;
    if (visible !== last) listener((last = visible));
  };
  new IntersectionObserver((entries) => {
    // of several changes since the last call, the latest counts
    for (const { isIntersecting } of entries) inside = isIntersecting;
    update();
  }).observe(node);
  document.addEventListener("visibilitychange", update);
}
