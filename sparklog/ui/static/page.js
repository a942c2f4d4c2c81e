"use strict";
// Shows times in the viewer's zone, adds a copy button to each command, and filters topics while
// the viewer types; the typed text is kept when the content is refreshed. Without JavaScript, times
// are in UTC, commands have no button, and the form filters topics.
const sparklog = (() => {
  const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
  const DAY_MS = 86400000;
  const two = (n) => String(n).padStart(2, "0");
  const day = (t) => `${String(t.getFullYear()).padStart(4, "0")}-${two(t.getMonth() + 1)}-${two(t.getDate())}`;
  const minute = (t) => `${two(t.getHours())}:${two(t.getMinutes())}`;
  const full = (t, seconds) => `${day(t)} ${minute(t)}${seconds ? `:${two(t.getSeconds())}` : ""}`;
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "the local zone";

  const inText = (words) => words.replace(
    /\b(\d{4}-\d\d-\d\d) (\d\d:\d\d)(:\d\d)?\b/g, (all, date, clock, seconds) => {
      const when = new Date(`${date}T${clock}${seconds ?? ":00"}Z`);
      return Number.isNaN(when.getTime()) ? all : full(when, seconds);
    });

  // A tick is at a round time in UTC. Move it to a round time in the viewer's zone.
  const tick = (mark, low, high) => {
    const step = Number(mark.dataset.step);
    const utc = new Date(mark.dateTime);
    const away = utc.getTimezoneOffset() * 60000;
    const at = utc.getTime() + (step < DAY_MS ? ((away % step) + step) % step : away);
    const share = (at - low) / (high - low);
    mark.hidden = share < 0 || share > 1;
    mark.style.setProperty("--at", String(share));
    mark.classList.toggle("first", share < 0.06);
    mark.classList.toggle("last", share > 0.94);
    const t = new Date(at);
    const midnight = t.getHours() === 0 && t.getMinutes() === 0 && t.getSeconds() === 0;
    const named = `${t.getDate()} ${MONTHS[t.getMonth()]}`;
    if (step >= 300 * DAY_MS) mark.textContent = String(t.getFullYear());
    else if (step >= 28 * DAY_MS) mark.textContent = `${MONTHS[t.getMonth()]} ${t.getFullYear()}`;
    else if (step >= DAY_MS || midnight) mark.textContent = named;
    else mark.textContent = step < 60000 ? `${minute(t)}:${two(t.getSeconds())}` : minute(t);
  };

  const labels = new WeakMap(); // button -> the timer that ends its present label
  const copy = async (button, words) => {
    try {
      await navigator.clipboard.writeText(words);
      button.textContent = "copied";
    } catch { // browsers allow the clipboard only over HTTPS and on localhost: select the text
      const range = document.createRange();
      range.selectNodeContents(button.previousElementSibling);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      button.textContent = "selected";
    }
    clearTimeout(labels.get(button));
    labels.set(button, setTimeout(() => { button.textContent = "copy"; }, 2000));
  };

  let typed = null;

  const filter = (input) => {
    const wanted = input.value.trim().toLowerCase();
    for (const row of document.querySelectorAll("main tbody tr")) {
      const name = row.querySelector("th").textContent.toLowerCase();
      row.hidden = !name.includes(wanted);
    }
  };
  const watchFilter = (root) => {
    const input = root.querySelector("[data-filter]");
    if (!input) return;
    if (typed !== null && input.value !== typed) input.value = typed;
    if (typed !== null) filter(input);
    input.addEventListener("input", () => {
      typed = input.value;
      filter(input);
    });
  };

  // Call this once per root, because a time must not be converted twice.
  const enhance = (root) => {
    for (const element of root.querySelectorAll(".zone")) element.textContent = zone;
    for (const axis of root.querySelectorAll(".axis[data-low]")) {
      const { low, high } = axis.dataset;
      for (const mark of axis.querySelectorAll("time")) tick(mark, Number(low), Number(high));
    }
    for (const element of root.querySelectorAll("time[data-as]")) {
      const when = new Date(element.dateTime);
      if (Number.isNaN(when.getTime())) continue;
      if (element.dataset.as === "ago") element.title = full(when, true);
      else if (element.dataset.as === "day") element.textContent = day(when);
      else element.textContent = full(when, element.dataset.as === "second");
    }
    for (const title of root.querySelectorAll("svg g > title")) {
      title.textContent = inText(title.textContent);
    }
    for (const command of root.querySelectorAll(".command")) {
      const code = command.querySelector("code");
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "copy";
      button.setAttribute("aria-label", `copy ${code.textContent}`);
      button.addEventListener("click", () => copy(button, code.textContent));
      command.append(button);
    }
    watchFilter(root);
  };
  // A time without a zone is in the viewer's zone, which is appended before the form is sent.
  const ZONELESS = /^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?$/;
  const zoned = (text) => {
    const at = new Date(text.length === 10 ? `${text}T00:00` : text.replace(" ", "T"));
    if (Number.isNaN(at.getTime())) return text;
    const minutes = -at.getTimezoneOffset();
    const two = (n) => String(Math.floor(Math.abs(n))).padStart(2, "0");
    const sign = minutes < 0 ? "-" : "+";
    const full = text.length === 10 ? `${text}T00:00` : text.replace(" ", "T");
    return `${full}${sign}${two(Math.trunc(minutes / 60))}:${two(minutes % 60)}`;
  };
  document.addEventListener("submit", (event) => {
    const from = event.target.elements.namedItem("from");
    if (from && ZONELESS.test(from.value.trim())) from.value = zoned(from.value.trim());
    // Leave empty fields out of the URL, which the viewer may share.
    for (const input of event.target.querySelectorAll("form[method=get] input")) {
      if (!input.value) input.disabled = true;
    }
    // Enable them again after the form was sent: the Back button may show this page from a cache.
    setTimeout(() => {
      for (const input of event.target.querySelectorAll(":disabled")) input.disabled = false;
    });
  });

  enhance(document);
  return { enhance };
})();
