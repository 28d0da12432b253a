// The tabs of the page, each with one or two sections. The address names the tab, so that a reload, a shared link
// and the back button of the browser lead to it.

import { tabIn, withTab } from "../state/page_address.js";

const FIRST_TAB = "try";

/** Show the tab of the address. Links to a section, such as `<a href="#live">`, show its tab. */
export function startTabs() {
  const sections = [...document.querySelectorAll("main > section")].filter((node) => node instanceof HTMLElement);
  const links = [...document.querySelectorAll("nav a")];
  const sectionOf = (link) => document.querySelector(link.getAttribute("href"));
  addEventListener("click", followLink);
  // the back button, and an address that the user changed
  addEventListener("popstate", showAddress);
  showAddress();

  function followLink(event) {
    const link = event.target.closest("a[href^='#']");
    // the browser opens another window for these
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const target = sectionOf(link);
    const tab = target.dataset.tab;
    if (tab && tab !== shownTab()) {
      history.pushState(null, "", withTab(location.hash, tab === FIRST_TAB ? null : tab));
      show(tab);
    }
    scrollTo({ top: 0, behavior: "instant" });
    focusOn(target);
  }

  function showAddress() {
    // an address may also be that of a link: /#live
    const linked = sections.find(({ id }) => location.hash === `#${id}`)?.dataset.tab;
    if (linked) history.replaceState(null, "", withTab("", linked));
    const tab = tabIn(location.hash);
    show(sections.some((section) => section.dataset.tab === tab) ? tab : FIRST_TAB);
  }

  function shownTab() {
    return sections.find(({ hidden }) => !hidden)?.dataset.tab;
  }

  function show(tab) {
    for (const section of sections) section.hidden = section.dataset.tab !== tab;
    for (const link of links) {
      if (sectionOf(link).dataset.tab === tab) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }
}

function focusOn(section) {
  if (!section.hasAttribute("tabindex")) section.setAttribute("tabindex", "-1");
  section.focus({ preventScroll: true });
}
