"use strict";
// Refreshes the content of a page. The scroll position, the focus and unfolded details are kept.
// A badge shows the age of the content. It is amber if there is no response or the server reports
// an error, and red if the server can't be reached.
(() => {
  const badge = document.getElementById("live");
  const [word, age] = badge.querySelectorAll("span");
  age.setAttribute("aria-hidden", "true");
  const main = document.getElementById("content");
  const every = Number(badge.dataset.refresh);
  const source = badge.dataset.source;
  const FOCUSABLE = "a, summary, button, input, select";
  const GIVE_UP = 12; // times `every`: a request that takes longer is abandoned
  const LATE = 2; // times `every`: a response that takes longer is late
  // performance.now() is monotonic: a change of the system clock does not change the shown age.
  let updated = performance.now(), awake = updated, asked = updated, waiting = false, timer = 0, why = "";

  const span = (ms) => {
    const s = Math.max(0, Math.round(ms / 1000));
    if (s < 120) return `${s} s`;
    return s < 7200 ? `${Math.round(s / 60)} min` : `${Math.round(s / 3600)} h`;
  };
  const set = (state, words, tail) => {
    if (badge.dataset.state !== state) badge.dataset.state = state;
    if (word.textContent !== words) word.textContent = words;
    age.textContent = tail;
  };
  const showBadge = () => {
    const now = performance.now();
    const ageText = span(now - updated);
    if (why === "gone") set("gone", "disconnected", `the server does not respond, last update ${ageText} ago`);
    else if (why) set("late", "error", `${why}, last update ${ageText} ago`);
    else if (waiting && now - Math.max(asked, awake) > LATE * every) {
      set("late", "late", `no response, last update ${ageText} ago`);
    } else set("live", "live", `${ageText} ago`);
  };

  const replaceContent = (text) => {
    const unfolded = new Set(
      [...main.querySelectorAll("details[open]")].map((details) => details.dataset.key));
    const focused = main.contains(document.activeElement)
      ? [...main.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement) : -1;
    const { scrollX, scrollY } = window;
    main.innerHTML = text; // the browser runs no scripts in it, so enhance() is called here
    sparklog.enhance(main);
    for (const details of main.querySelectorAll("details")) {
      details.open = unfolded.has(details.dataset.key);
    }
    const following = focused < 0 ? null : main.querySelectorAll(FOCUSABLE)[focused];
    if (following) following.focus({ preventScroll: true });
    window.scrollTo({ left: scrollX, top: scrollY, behavior: "instant" });
  };

  const schedule = () => {
    clearTimeout(timer);
    timer = setTimeout(refresh, every);
  };
  const refresh = async () => {
    // A hidden tab sends no requests: many open tabs must not load the server.
    if (!document.hidden && !waiting) {
      waiting = true;
      asked = performance.now();
      try {
        const response = await fetch(
          source, { cache: "no-store", signal: AbortSignal.timeout(GIVE_UP * every) });
        const text = await response.text();
        if (response.ok) {
          replaceContent(text);
          updated = performance.now() - 1000 * (Number(response.headers.get("Age")) || 0);
          why = "";
        } else why = text.slice(0, 200) || `HTTP ${response.status}`;
      } catch (error) {
        why = error.name === "TimeoutError" ? "no response" : "gone";
      }
      waiting = false;
      showBadge();
    }
    schedule();
  };
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) {
      awake = performance.now();
      refresh();
    }
  });
  showBadge();
  setInterval(showBadge, Math.min(1000, every));
  schedule();
})();
