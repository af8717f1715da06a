// What the report does where scripts run: curves to explore, tables to sort, completions to filter, one run found in all
// pictures, and long parts put in when they are wanted. Without it everything is there to read all the same.
"use strict";

(() => {
  const root = document.documentElement;
  if (typeof tpufleetCurves !== "function") return root.classList.remove("js");
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // ------------------------------------------------------------------------------------------- parts that came folded

  /** Puts in what a <noscript class="lazy"> holds: this page's own markup, kept as text until it is wanted. */
  function unfold(noscript) {
    const parsed = new DOMParser().parseFromString(noscript.textContent, "text/html");
    noscript.replaceWith(...parsed.body.childNodes);
  }

  const unfoldAll = (within) => all("noscript.lazy", within).forEach(unfold);

  // A click on the summary opens before `toggle` tells of it: the content has to be there by then.
  for (const section of all("details.run")) {
    const fill = () => unfoldAll(section);
    section.firstElementChild.addEventListener("click", fill);
    section.addEventListener("toggle", fill);
  }

  /** Opens the run that the address names, and goes there. */
  function open() {
    const run = decodeURIComponent(location.hash).replace(/^#run-/, "");
    const section = run && all("details.run").find((each) => each.dataset.run === run);
    if (!section) return;
    unfoldAll(section);
    section.open = true;
    section.scrollIntoView();
  }

  addEventListener("hashchange", open);

  /** A button after `place` that asks for all of it. */
  function offer(place, unfoldIt) {
    const more = document.createElement("button");
    more.type = "button";
    more.className = "more";
    more.textContent = "Show all";
    more.addEventListener("click", unfoldIt);
    place.after(more);
    return more;
  }

  for (const cards of all(".cards")) {
    if (!cards.querySelector("noscript.lazy")) continue;
    const more = offer(cards, () => { unfoldAll(cards); more.remove(); });
  }

  /** Makes one table of those whose second half came folded. */
  let wholeTable = () => {};
  const further = document.querySelector("#runs > noscript.lazy");
  if (further) {
    const more = offer(further, () => wholeTable());
    wholeTable = () => {
      if (!further.isConnected) return;
      unfold(further);
      const [table, second] = all("#runs table");
      table.tBodies[0].append(...second.tBodies[0].rows);
      second.closest(".frame").remove();
      more.remove();
    };
  }

  // ------------------------------------------------------------------------------------------------------------ tables

  /** What a cell is sorted by: a number where it is one, else its text; null where there is nothing. */
  function valueOf(cell) {
    const text = cell.dataset.v ?? cell.textContent.trim();
    if (text === "–" || text === "") return null;
    const number = Number(text);
    return Number.isNaN(number) ? text : number;
  }

  function compare(a, b) {
    if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
    return typeof a === "number" ? -1 : 1;
  }

  function sort(table, column, down) {
    wholeTable();
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [valueOf(row.cells[column]), row]);
    const known = rows.filter(([value]) => value !== null).sort(([a], [b]) => compare(a, b));
    if (down) known.reverse();
    body.append(...[...known, ...rows.filter(([value]) => value === null)].map(([, row]) => row));
  }

  for (const table of all("table.sortable")) {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      button.addEventListener("click", () => {
        const down = heading.getAttribute("aria-sort") === "ascending";
        for (const each of headings) each.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", down ? "descending" : "ascending");
        sort(table, column, down);
      });
      heading.append(button);
    });
  }

  // ------------------------------------------------------------------------------------------------------- completions

  const gallery = document.querySelector("#completions");
  if (gallery && all(".card", gallery).length > 3) {
    const label = document.createElement("label");
    const field = document.createElement("input");
    const said = document.createElement("span");
    label.className = "filter";
    field.type = "search";
    field.placeholder = "run, prompt or words …";
    said.setAttribute("role", "status");
    label.append("Show ", field, said);
    gallery.querySelector("h2").after(label);
    field.addEventListener("input", () => {
      unfoldAll(gallery);
      all("button.more", gallery).forEach((button) => button.remove());
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      const cards = all(".card", gallery);
      for (const card of cards) {
        const text = card.textContent.toLowerCase();
        card.hidden = !words.every((word) => text.includes(word));
      }
      for (const part of all("div.asked", gallery)) part.hidden = !part.querySelector(".card:not([hidden])");
      const left = cards.filter((card) => !card.hidden).length;
      said.textContent = words.length ? `${left} of ${cards.length}` : "";
    });
  }

  // ------------------------------------------------------------------------------------- one run, found in all pictures

  const sheet = document.querySelector("main");
  let picked = null;

  function pick(run) {
    if (run === picked) return;
    for (const each of all(".picked")) each.classList.remove("picked");
    picked = run;
    root.classList.toggle("picking", run !== null);
    if (run === null) return;
    const name = CSS.escape(run);
    for (const each of all(`g[data-run="${name}"], tr[data-run="${name}"]`, sheet)) each.classList.add("picked");
  }

  let live = null;
  const runUnder = (target) => target.closest?.("g[data-run], tr[data-run]")?.dataset.run ?? null;
  sheet.addEventListener("pointerover", (event) => { pick(runUnder(event.target)); live?.pick(picked); });
  sheet.addEventListener("click", (event) => {
    const run = event.target.closest?.("g[data-run]")?.dataset.run;
    if (run) location.hash = `#run-${run}`;
  });

  // ------------------------------------------------------------------------------------------------------------ curves

  function draw() {
    const place = document.querySelector("#live");
    if (!place) return;
    const told = JSON.parse(document.querySelector("#data").textContent);
    live = tpufleetCurves(place, { main: told.main });
    live.onpick = pick;
    live.set(told.runs, told.curves);
  }

  draw();
  open();
})();
