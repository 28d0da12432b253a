// Which part of the page one reads: it is marked in the head, and a link there leads to it.

// a part is read from where its top has come so far up the window
const READ_FROM = 0.4;

/** Links within the page leave the address alone, since that names the chosen model. */
export function startSectionLinks() {
  const links = new Map();
  let wanted = null;
  let planned = 0;
  for (const link of document.querySelectorAll("a[href^='#']")) {
    const section = document.querySelector(link.getAttribute("href"));
    if (link.closest("nav")) links.set(section, link);
    link.addEventListener("click", (event) => {
      event.preventDefault();
      wanted = links.has(section) ? section : null;
      section.scrollIntoView();
      focusOn(section);
      mark();
    });
  }
  // a part that was asked for stays marked, even where the window cannot go so far, until one goes on
  const onward = () => (wanted = null);
  for (const way of ["wheel", "touchmove", "keydown"]) addEventListener(way, onward, { passive: true });
  addEventListener("scroll", soon, { passive: true });
  // parts grow when they have something to show
  new ResizeObserver(soon).observe(document.querySelector("main"));

  function soon() {
    cancelAnimationFrame(planned);
    planned = requestAnimationFrame(mark);
  }

  function mark() {
    const current = wanted ?? read([...links.keys()]);
    for (const [section, link] of links) {
      if (section === current) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }
}

/** The lowest part whose top is high enough; of those side by side the first. */
function read(sections) {
  let [found, height] = [sections[0], -Infinity];
  for (const section of sections) {
    const { top } = section.getBoundingClientRect();
    if (top <= READ_FROM * innerHeight && top > height + 1) [found, height] = [section, top];
  }
  return found;
}

function focusOn(section) {
  if (!section.hasAttribute("tabindex")) section.setAttribute("tabindex", "-1");
  section.focus({ preventScroll: true });
}
