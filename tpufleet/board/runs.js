// The table of runs: sorted by its headers, or on a phone by a choice; filtered by words.
"use strict";

window.tpufleetRuns = (placeAgain) => {
  const body = document.getElementById("runs"), filter = document.getElementById("runs-filter");
  const order = document.getElementById("runs-order"), count = document.getElementById("runs-count");
  const heads = [...body.closest("table").querySelectorAll("thead th")];
  const buttons = new Map();
  let column = null, down = false;

  document.querySelector(".of-runs .tools").hidden = false;
  order.append(new Option("In the fleet’s order", ""));
  for (const head of heads) {
    const name = head.dataset.label, button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.addEventListener("click", () => sortBy(column !== name ? name : down ? null : name, column === name && !down));
    head.replaceChildren(button);
    buttons.set(name, head);
    for (const [arrow, way] of [["↑", "up"], ["↓", "down"]]) order.append(new Option(`${name} ${arrow}`, `${name} ${way}`));
  }
  order.addEventListener("change", () => {
    const [name, way] = order.value.split(" ");
    sortBy(name || null, way === "down");
  });
  filter.addEventListener("input", sift);

  function sortBy(name, descending) {
    column = name;
    down = descending;
    for (const [label, head] of buttons) {
      if (label === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    order.value = column ? `${column} ${down ? "down" : "up"}` : "";
    placeAgain("runs");
  }

  /** Ids in the order that was asked for; what has no value comes last either way. */
  function arrange(ids, elementOf) {
    if (!column) return ids;
    const keyed = ids.map((id) => [id, valueOf(elementOf(id))]);
    const sign = down ? -1 : 1;
    keyed.sort(([, a], [, b]) => {
      if (a === "" || b === "") return (a === "") - (b === "");
      return sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
    });
    return keyed.map(([id]) => id);
  }

  function valueOf(row) {
    const said = [...(row?.children || [])].find((cell) => cell.dataset.label === column)?.dataset.value ?? "";
    return said !== "" && Number.isFinite(Number(said)) ? Number(said) : said;
  }

  function sift() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of body.children) {
      const text = words.length ? row.textContent.toLowerCase() : "";
      const fits = words.every((word) => text.includes(word));
      if (row.hidden === fits) row.hidden = !fits;
      shown += fits;
    }
    const said = words.length ? `${shown.toLocaleString("en")} of ${body.children.length.toLocaleString("en")}` : "";
    if (count.textContent !== said) count.textContent = said;
  }

  return { arrange, sift };
};
