"use strict";
// Topics are filtered as one types; without it the form does. What was typed outlives new content.
(() => {
  let typed = null;

  const filter = (input) => {
    const wanted = input.value.trim().toLowerCase();
    for (const row of document.querySelectorAll("main tbody tr")) {
      const name = row.querySelector("th").textContent.toLowerCase();
      row.hidden = !name.includes(wanted);
    }
  };
  const attend = (root) => {
    const input = root.querySelector("[data-filter]");
    if (!input) return;
    if (typed !== null && input.value !== typed) input.value = typed;
    if (typed !== null) filter(input);
    input.addEventListener("input", () => {
      typed = input.value;
      filter(input);
    });
  };
  const enhance = sparklog.enhance;
  sparklog.enhance = (root) => {
    enhance(root);
    attend(root);
  };
  attend(document);

  // Times without a zone are meant in the viewer's: it is put behind them before the form is sent.
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
    // What is empty has no place in a URL that one may want to share.
    for (const input of event.target.querySelectorAll("form[method=get] input")) {
      if (!input.value) input.disabled = true;
    }
    setTimeout(() => {
      for (const input of event.target.querySelectorAll(":disabled")) input.disabled = false;
    });
  });
})();
