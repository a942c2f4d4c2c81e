"use strict";
// Puts the content in anew. The reader keeps the place: scroll, focus and what is unfolded stay.
// The badge tells how old the content is; amber: no answer, or no report; red: nobody is there.
(() => {
  const badge = document.getElementById("live");
  const [word, age] = badge.querySelectorAll("span");
  const main = document.getElementById("content");
  const every = Number(badge.dataset.refresh);
  const source = badge.dataset.source;
  const FOCUSABLE = "a, summary, button, input, select";
  const GIVE_UP = 12; // times `every`: a connection that hangs is made anew
  const LATE = 2; // times `every`: so long an answer may take
  let news = performance.now(), awake = news, asked = news, waiting = false, timer = 0, why = "";

  const span = (ms) => {
    const s = Math.max(0, Math.round(ms / 1000));
    if (s < 120) return `${s} s`;
    return s < 7200 ? `${Math.round(s / 60)} min` : `${Math.round(s / 3600)} h`;
  };
  const show = (state, words, tail) => {
    if (badge.dataset.state !== state) badge.dataset.state = state;
    if (word.textContent !== words) word.textContent = words;
    age.textContent = tail;
  };
  const tell = () => {
    const now = performance.now();
    const old = span(now - news);
    if (why === "gone") show("gone", "gone", `nobody answers, last news ${old} ago`);
    else if (why) show("late", "no report", `${why}, last news ${old} ago`);
    else if (waiting && now - Math.max(asked, awake) > LATE * every) {
      show("late", "late", `no answer, last news ${old} ago`);
    } else show("live", "live", `${old} ago`);
  };

  const renew = (text) => {
    const folded = new Set(
      [...main.querySelectorAll("details[open]")].map((details) => details.dataset.key));
    const focused = main.contains(document.activeElement)
      ? [...main.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement) : -1;
    const { scrollX, scrollY } = window;
    main.innerHTML = text;
    sparklog.enhance(main);
    for (const details of main.querySelectorAll("details")) {
      details.open = folded.has(details.dataset.key);
    }
    const following = focused < 0 ? null : main.querySelectorAll(FOCUSABLE)[focused];
    if (following) following.focus({ preventScroll: true });
    window.scrollTo({ left: scrollX, top: scrollY, behavior: "instant" });
  };

  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(ask, every);
  };
  const ask = async () => {
    if (!document.hidden && !waiting) {
      waiting = true;
      asked = performance.now();
      try {
        const answer = await fetch(
          source, { cache: "no-store", signal: AbortSignal.timeout(GIVE_UP * every) });
        const text = await answer.text();
        if (answer.ok) {
          renew(text);
          news = performance.now() - 1000 * (Number(answer.headers.get("Age")) || 0);
          why = "";
        } else why = text.slice(0, 200) || `HTTP ${answer.status}`;
      } catch (error) {
        why = error.name === "TimeoutError" ? "no answer" : "gone";
      }
      waiting = false;
      tell();
    }
    later();
  };
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) {
      awake = performance.now();
      ask();
    }
  });
  tell();
  setInterval(tell, Math.min(1000, every));
  later();
})();
