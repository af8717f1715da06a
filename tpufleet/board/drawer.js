// What is known of one run, with the end of its log as it grows: opened from the run's name, closed by Escape.
"use strict";

window.tpufleetDrawer = ({ opened = () => {}, closed = () => {} } = {}) => {
  const EVERY_MS = 3_000;
  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const title = make("h2", { id: "drawer-title", tabIndex: -1 });
  const close = make("button", { type: "button", className: "again", textContent: "Close" });
  const facts = make("div", { className: "facts", tabIndex: 0, role: "region", ariaLabel: "What is known of it" });
  const said = make("p", { className: "help" });
  const log = make("pre", { className: "log", tabIndex: 0, role: "region", ariaLabel: "The end of the log" });
  const drawer = make("dialog", { id: "drawer" }, make("header", {}, title, close), facts, make("h3", { textContent: "Log" }), said, log);
  drawer.setAttribute("aria-labelledby", "drawer-title");
  document.body.append(drawer);
  let row = null, tag = null, timer = null, asking = null;

  close.addEventListener("click", () => drawer.close());
  drawer.addEventListener("click", (event) => { if (event.target === drawer) drawer.close(); }); // beside the drawer
  drawer.addEventListener("close", () => {
    clearTimeout(timer);
    asking?.abort();
    const from = row;
    row = null;
    document.getElementById(from)?.querySelector("a")?.focus(); // the row may have been exchanged meanwhile
    closed();
  });

  function open(element) {
    row = element.id;
    tag = null;
    title.textContent = element.dataset.run;
    log.textContent = "";
    said.textContent = "Asking …";
    show(element);
    if (!drawer.open) drawer.showModal();
    title.focus();
    opened(element.dataset.run);
    if (element.querySelector("th a").pathname.startsWith("/log/")) follow(element.dataset.run);
    else said.textContent = "People’s logs are theirs alone.";
  }

  /** The row's cells once more, one below the other, and all that the row has no room for. */
  function show(element) {
    const list = make("dl");
    for (const cell of element.querySelectorAll("td[data-label]")) {
      const value = make("dd");
      value.append(...[...cell.childNodes].map((node) => node.cloneNode(true)));
      list.append(make("dt", { textContent: cell.dataset.label }), value);
    }
    facts.replaceChildren(list, ...[...element.querySelectorAll(".about > dl")].map((more) => more.cloneNode(true)));
  }

  async function follow(run) {
    clearTimeout(timer);
    asking = new AbortController();
    try {
      const headers = tag ? { "If-None-Match": tag } : {};
      const answer = await fetch(`/log/${encodeURIComponent(run)}`, { headers, cache: "no-store", signal: asking.signal });
      if (answer.status === 200) {
        tag = answer.headers.get("ETag");
        const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
        log.textContent = await answer.text();
        if (atEnd) log.scrollTop = log.scrollHeight;
        const meaning = answer.headers.get("X-Tpufleet-Meaning");
        said.textContent = meaning ? `It says that ${meaning}` : log.textContent ? "The end of it, as it grows." : "Nothing yet.";
      } else if (answer.status !== 304) said.textContent = "The log can’t be had at the moment.";
    } catch (error) {
      if (error.name === "AbortError") return;
      said.textContent = "The log can’t be had at the moment.";
    }
    if (drawer.open && title.textContent === run) timer = setTimeout(follow, EVERY_MS, run);
  }

  document.getElementById("runs").addEventListener("click", (event) => {
    const link = event.target.closest("th a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open(link.closest("tr"));
  });

  return { again: () => { const element = row && document.getElementById(row); if (element && drawer.open) show(element); } };
};
