"use strict";
// Puts the content in anew. The reader keeps the place: scroll, focus and what is unfolded stay.
(() => {
  const status = document.getElementById("live");
  const main = document.getElementById("content");
  const every = Number(status.dataset.refresh);
  const open = () => new Set(
    [...main.querySelectorAll("details[open]")].map((details) => details.dataset.key));

  const renew = (text) => {
    const folded = open();
    const focused = main.contains(document.activeElement)
      ? [...main.querySelectorAll("a, summary")].indexOf(document.activeElement) : -1;
    const { scrollX, scrollY } = window;
    main.innerHTML = text;
    for (const details of main.querySelectorAll("details")) {
      details.open = folded.has(details.dataset.key);
    }
    const following = focused < 0 ? null : main.querySelectorAll("a, summary")[focused];
    if (following) following.focus({ preventScroll: true });
    window.scrollTo({ left: scrollX, top: scrollY, behavior: "instant" });
  };

  const ask = async () => {
    try {
      if (!document.hidden) {
        const answer = await fetch("content", { cache: "no-store" });
        if (!answer.ok) throw new Error(await answer.text());
        renew(await answer.text());
        status.className = "";
        status.textContent = `live, ${new Date().toLocaleTimeString()}`;
      }
    } catch (error) {
      status.className = "failed";
      status.textContent = `no news: ${error.message}`;
    }
    setTimeout(ask, every);
  };
  setTimeout(ask, every);
})();
