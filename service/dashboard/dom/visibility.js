// Whether a part of the page can be seen: only then is it worth drawing and asking for.

/** Tell `listener`, now and at each change, whether the node is in the window and the page is shown. */
export function watchVisibility(node, listener) {
  let inside = false;
  let told = null;
  const tell = () => {
    const seen = inside && !document.hidden;
    if (seen !== told) listener((told = seen));
  };
  new IntersectionObserver((entries) => {
    inside = entries.at(-1).isIntersecting;
    tell();
  }).observe(node);
  document.addEventListener("visibilitychange", tell);
}
