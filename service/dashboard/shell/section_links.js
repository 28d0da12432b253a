// Links to the sections: scrolls to a section and marks the one that is being read in the navigation. Sections
// above it may still grow, for example when their charts are drawn; the page then stays at the section.

// milliseconds for which the page stays at a linked section while others grow
const STAY = 4000;
// a section counts as read once its top is above this fraction of the window height
const READ_FROM = 0.4;

/** Links within the page do not change the address, which names the chosen model. */
export function startSectionLinks() {
  const links = new Map();
  let linked = null;
  let linkedAt = 0;
  let frame = 0;
  for (const link of document.querySelectorAll("a[href^='#']")) {
    const section = document.querySelector(link.getAttribute("href"));
    if (link.closest("nav")) links.set(section, link);
    link.addEventListener("click", (event) => {
      event.preventDefault();
      goTo(section);
    });
  }
  // an address such as /#live
  const target = [...links.keys()].find(({ id }) => location.hash === `#${id}`);
  if (target) goTo(target);
  // a section reached by its link stays marked and in place until the user does something else, even if the
  // window cannot scroll far enough to bring it to the top
  const forgetLinked = () => (linked = null);
  for (const input of ["wheel", "touchmove", "keydown", "pointerdown"])
    addEventListener(input, forgetLinked, { passive: true });
  addEventListener("scroll", markSoon, { passive: true });
  // sections grow as their data arrives
  new ResizeObserver(() => {
    if (performance.now() < linkedAt + STAY) linked?.scrollIntoView({ behavior: "instant" });
    markSoon();
  }).observe(document.querySelector("main"));

  function goTo(section) {
    linked = links.has(section) ? section : null;
    linkedAt = performance.now();
    section.scrollIntoView();
    focusOn(section);
    markCurrent();
  }

  function markSoon() {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(markCurrent);
  }

  function markCurrent() {
    const current = linked ?? sectionInView([...links.keys()]);
    for (const [section, link] of links) {
      if (section === current) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }
}

/** The lowest section whose top is high enough in the window; of two side by side, the first. */
function sectionInView(sections) {
  let [lowest, height] = [sections[0], -Infinity];
  for (const section of sections) {
    const { top } = section.getBoundingClientRect();
    if (top <= READ_FROM * innerHeight && top > height + 1) [lowest, height] = [section, top];
  }
  return lowest;
}

function focusOn(section) {
  if (!section.hasAttribute("tabindex")) section.setAttribute("tabindex", "-1");
  section.focus({ preventScroll: true });
}
