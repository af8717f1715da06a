// What the models write: chosen by prompt, by who wrote it, by step; new texts wait while somebody reads.
"use strict";

window.tpufleetPieces = (placeAgain) => {
  const container = document.getElementById("pieces"), news = document.getElementById("pieces-new");
  const [prompt, who, step] = ["prompt", "who", "step"].map((name) => document.getElementById(`pieces-${name}`));
  let waiting = null, asked = false;

  document.querySelector(".of-pieces .tools").hidden = false;
  for (const choice of [prompt, who, step]) choice.addEventListener("change", sift);
  news.addEventListener("click", () => {
    showNow();
    container.querySelector("article:not([hidden]) blockquote")?.focus();
  });
  for (const kind of ["pointerleave", "focusout"])
    container.addEventListener(kind, () => setTimeout(() => waiting && !isRead() && showNow(), 200));

  function showNow() {
    asked = true;
    placeAgain("pieces");
    asked = false;
    sift();
  }

  /** Whether somebody reads: points into the texts, stands in them, has marked some, or has scrolled down into them. */
  function isRead() {
    const selection = getSelection();
    const marked = !selection.isCollapsed && selection.anchorNode && container.contains(selection.anchorNode);
    const { top, bottom } = container.getBoundingClientRect();
    return container.matches(":hover, :focus-within") || marked || (top < 0 && bottom > 0);
  }

  function arrange(ids) {
    const known = new Set([...container.children].map((child) => child.id));
    const fresh = ids.filter((id) => !known.has(id)).length;
    waiting = !asked && known.size > 0 && fresh > 0 && isRead() ? fresh : null;
    news.hidden = !waiting;
    if (waiting) news.textContent = waiting === 1 ? "1 new text" : `${waiting.toLocaleString("en")} new texts`;
    return waiting ? null : ids;
  }

  function offer(choice, all, values) {
    const wanted = [...new Set(values)].filter(Boolean).sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    const said = wanted.join("\0");
    if (choice.offered === said) return;
    choice.offered = said;
    const chosen = choice.value;
    choice.replaceChildren(new Option(all, ""), ...wanted.map((value) => new Option(value.length > 60 ? `${value.slice(0, 59)}…` : value, value)));
    choice.value = wanted.includes(chosen) ? chosen : "";
  }

  const promptOf = (piece) => piece.querySelector(".prompt")?.textContent || "";

  function sift() {
    const all = [...container.children];
    offer(prompt, "All prompts", all.map(promptOf));
    offer(who, "All runs and people", all.map((piece) => piece.dataset.who));
    const newest = new Map();
    for (const piece of all) newest.set(writer(piece), Math.max(newest.get(writer(piece)) ?? -1, Number(piece.dataset.step)));
    for (const piece of all) {
      const fits = (!prompt.value || promptOf(piece) === prompt.value) && (!who.value || piece.dataset.who === who.value) &&
        (step.value !== "newest" || Number(piece.dataset.step) === newest.get(writer(piece)));
      if (piece.hidden === fits) piece.hidden = !fits;
    }
  }

  const writer = (piece) => `${piece.dataset.who}\0${piece.dataset.run}`;

  return { arrange, sift };
};
