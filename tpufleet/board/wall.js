// One text at a time, as large as it fits; it goes on by itself, what is new comes first, and everybody has a turn.
"use strict";

(() => {
  const STAY_MS = 12_000;
  const LARGEST = 9, LEAST = 2.6; // of a letter, in hundredths of the wall's height
  const container = document.getElementById("pieces"), wall = document.getElementById("wall"), said = document.getElementById("wall-said");
  const pause = document.getElementById("wall-pause"), keys = document.getElementById("wall-keys");
  const stage = Object.assign(document.createElement("article"), { id: "stage" });
  const bar = Object.assign(document.createElement("div"), { id: "wall-bar" });
  const times = new Map(); // id → how often it was shown
  const turns = new Map(); // who → when last
  let trail = [], at = -1, turn = 0, timer = null, stays = false;

  container.hidden = true;
  keys.hidden = false;
  wall.append(stage);
  document.body.append(bar);

  const shown = () => document.getElementById(trail[at]);

  /** What comes next: what nobody has seen before what was shown, who waits longest first, and of theirs the newest. */
  function next() {
    const all = [...container.children];
    const fewest = Math.min(...all.map((piece) => times.get(piece.id) || 0));
    const rare = all.filter((piece) => (times.get(piece.id) || 0) === fewest);
    const wait = (piece) => turns.get(piece.dataset.who) ?? -1;
    return rare.reduce((best, piece) => (best && wait(best) <= wait(piece) ? best : piece), null);
  }

  function forward() {
    if (at < trail.length - 1) at += 1;
    else {
      const piece = next();
      if (!piece) return show();
      trail = [...trail.slice(-50), piece.id];
      at = trail.length - 1;
      times.set(piece.id, (times.get(piece.id) || 0) + 1);
      turns.set(piece.dataset.who, turn++);
    }
    show();
  }

  function back() {
    if (at > 0) at -= 1;
    show();
  }

  function show() {
    const piece = shown();
    stage.replaceChildren(...(piece ? [piece.querySelector("blockquote").cloneNode(true)] : []));
    stage.firstChild?.removeAttribute("tabindex");
    said.replaceChildren(...(piece ? [...piece.querySelector(".help").childNodes].map((node) => node.cloneNode(true)) : ["Nothing is written yet."]));
    fit();
    run();
  }

  /** The largest letters with which the text has room; where even the least are too large, its end is cut. */
  function fit() {
    const quote = stage.firstChild;
    if (!quote) return;
    const unit = innerHeight / 100, fits = () => quote.scrollHeight <= stage.clientHeight && quote.scrollWidth <= stage.clientWidth;
    const set = (size) => { quote.style.fontSize = `${size * unit}px`; return fits(); };
    let low = LEAST, high = Math.min(LARGEST, (innerWidth / innerHeight) * 9);
    if (set(high)) return;
    if (!set(low)) return cut(quote, fits);
    while (high - low > 0.05) {
      const middle = (low + high) / 2;
      if (set(middle)) low = middle; else high = middle;
    }
    set(low);
  }

  function cut(quote, fits) {
    const text = quote.lastChild, whole = text.textContent;
    let low = 0, high = whole.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      text.textContent = `${whole.slice(0, middle).trimEnd()} …`;
      if (fits()) low = middle; else high = middle;
    }
    text.textContent = `${whole.slice(0, low).trimEnd()} …`;
  }

  function run() {
    clearTimeout(timer);
    bar.className = "";
    if (stays || !shown()) return;
    void bar.offsetWidth; // begins the line anew
    bar.className = "runs";
    timer = setTimeout(forward, STAY_MS);
  }

  function stay() {
    stays = !stays;
    pause.textContent = stays ? "▶\ufe0e" : "❚❚";
    pause.ariaLabel = pause.title = stays ? "Go on (space)" : "Stay with this one (space)";
    document.body.classList.toggle("stays", stays);
    run();
  }

  function full() {
    if (document.fullscreenElement) document.exitFullscreen();
    else document.documentElement.requestFullscreen?.();
  }

  const acts = { ArrowRight: forward, ArrowLeft: back, " ": stay, f: full };
  addEventListener("keydown", (event) => {
    const onButton = event.target.localName === "button" || event.target.localName === "a";
    if (!acts[event.key] || event.ctrlKey || event.metaKey || event.altKey || (onButton && event.key === " ")) return;
    event.preventDefault();
    acts[event.key]();
  });
  for (const [id, act] of [["wall-next", forward], ["wall-back", back], ["wall-pause", stay], ["wall-full", full]])
    document.getElementById(id).addEventListener("click", act);
  addEventListener("resize", fit);

  let moved = null;
  const wake = () => {
    document.body.classList.add("awake");
    clearTimeout(moved);
    moved = setTimeout(() => document.body.classList.remove("awake"), 3000);
  };
  for (const kind of ["pointermove", "pointerdown", "keydown"]) addEventListener(kind, wake);

  window.tpufleetLive({ lists: ["pieces"], changed: (lists) => { if (lists.has("pieces") && !shown()) forward(); } });
  document.fonts.ready.then(fit);
  forward();
})();
