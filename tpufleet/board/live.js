// What the board's server tells, put in place: parts of the page, the order of its lists, news for the curves.
//
//   tpufleetLive({lists: ["runs"], arrange: {runs: ids => ids or null}, changed: names => {}, told: (message, whole) => {}})
//
// `arrange` may give a list another order, or null: not now; place(list) asks it again. Parts of other lists are passed over.
"use strict";

window.tpufleetLive = ({ lists, arrange = {}, changed = () => {}, told = () => {} }) => {
  const SILENT_MS = 40_000; // after which the line is dead, though nobody has said so: the server speaks every 15 s
  const HIDDEN_MS = 20_000; // for which a page that nobody sees stays on the line
  const RETRY_MS = 3_000, LONGEST_MS = 60_000; // a refusal (too many look) isn't tried again by browsers, but by us
  const parts = new Map(); // id → {element, markup}
  const orders = new Map(); // list → ids
  const box = document.createElement("template");
  const line = document.getElementById("line");
  let source = null, leaving = null, silent = null, pause = RETRY_MS;

  function built(markup) {
    box.innerHTML = markup; // made by the server, where every text in it was escaped; scripts in it would not run
    return box.content.firstElementChild;
  }

  function take(message, whole) {
    const touched = new Set();
    for (const [id, markup] of Object.entries(message.parts || {})) put(id, markup, touched);
    const gone = whole ? [...parts.keys()].filter((id) => !(id in message.parts)) : message.gone || [];
    for (const id of gone) {
      parts.get(id)?.element.remove();
      parts.delete(id);
      touched.add(listOf(id));
    }
    for (const [list, ids] of Object.entries(message.lists || {})) {
      orders.set(list, ids);
      touched.add(list);
    }
    for (const list of lists) if (touched.has(list)) place(list);
    told(message, whole);
    changed(touched);
  }

  const listOf = (id) => id.slice(0, id.lastIndexOf("-"));

  function put(id, markup, touched) {
    if (id !== "head" && !lists.includes(listOf(id))) return;
    const known = parts.get(id);
    if (known?.markup === markup) return;
    const element = built(markup), shown = known ? known.element : document.getElementById(id);
    touched.add(listOf(id));
    if (id === "head" && shown) {
      shown.replaceChildren(...element.childNodes); // its root stays: it is what a screen reader listens to
      parts.set(id, { element: shown, markup });
      return;
    }
    if (shown) exchange(shown, element);
    parts.set(id, { element, markup });
  }

  /** Puts `element` in the place of `shown`; whoever is in there stays there. */
  function exchange(shown, element) {
    element.hidden = shown.hidden;
    const tag = shown.contains(document.activeElement) ? document.activeElement.localName : null;
    const scrolled = shown.querySelector("blockquote")?.scrollTop;
    shown.replaceWith(element);
    if (scrolled) element.querySelector("blockquote").scrollTop = scrolled;
    if (tag) element.querySelector(tag)?.focus({ preventScroll: true });
  }

  /** Puts a list's elements in order, moving only those that aren't where they should be. */
  function place(list) {
    const known = orders.get(list), container = document.getElementById(list);
    if (!known || !container) return;
    const wanted = arrange[list] ? arrange[list](known) : known;
    if (!wanted) return;
    const elements = wanted.map((id) => parts.get(id)?.element).filter(Boolean);
    const kept = new Set(elements);
    for (const child of [...container.children]) if (!kept.has(child)) child.remove();
    let next = container.firstElementChild;
    for (const element of kept) {
      if (element === next) next = next.nextElementSibling;
      else container.insertBefore(element, next);
    }
  }

  function say(state, words) {
    document.body.classList.toggle("stale", state === "lost");
    if (!line) return;
    line.className = `line ${state}`;
    if (line.textContent !== words) line.textContent = words;
  }

  function heard() {
    say("on", "live");
    clearTimeout(silent);
    silent = setTimeout(() => { say("lost", "not live"); open(); }, SILENT_MS);
  }

  function open() {
    close();
    source = new EventSource("/live");
    source.addEventListener("open", () => { pause = RETRY_MS; heard(); });
    source.addEventListener("alive", heard);
    for (const kind of ["all", "news"])
      source.addEventListener(kind, (event) => { heard(); take(JSON.parse(event.data), kind === "all"); });
    source.addEventListener("error", () => {
      say("lost", "not live");
      if (source?.readyState !== EventSource.CLOSED) return;
      setTimeout(() => source?.readyState === EventSource.CLOSED && open(), pause * (1 + Math.random()));
      pause = Math.min(2 * pause, LONGEST_MS);
    });
  }

  function close() {
    clearTimeout(silent);
    source?.close();
    source = null;
  }

  document.addEventListener("visibilitychange", () => {
    clearTimeout(leaving);
    if (document.hidden) leaving = setTimeout(close, HIDDEN_MS);
    else if (!source) open();
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => { if (event.persisted) open(); });
  open();
  return { place, part: (id) => parts.get(id)?.element, order: (list) => orders.get(list) || [] };
};
