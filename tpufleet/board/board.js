// The board, live: its lists, the curves, and moments that grow older.
"use strict";

(() => {
  let shown = null;
  const placeAgain = (list) => { live.place(list); sift(list); };
  const runs = window.tpufleetRuns(placeAgain), pieces = window.tpufleetPieces((list) => live.place(list));
  const section = document.querySelector(".of-curves");
  const drawer = window.tpufleetDrawer({ opened: (run) => shown?.pick(run), closed: () => shown?.pick(null) });

  function sift(list) {
    if (list === "runs") runs.sift();
    if (list === "pieces") pieces.sift();
  }

  /** News for the curves, whose place shows once there are any. */
  function draw(message, whole) {
    if (!shown && !Object.keys(message.curves || {}).length && !whole) return;
    if (!shown) {
      section.hidden = false;
      shown = window.tpufleetCurves(document.getElementById("curves"), { main: "test_loss" });
    }
    if (whole) shown.set(message.runs || {}, message.curves || {});
    else shown.add(message.runs || {}, message.curves || {}, message.anew || [], message.left || []);
  }

  const live = window.tpufleetLive({
    lists: ["hosts", "runs", "pieces", "happenings"],
    arrange: { runs: (ids) => runs.arrange(ids, (id) => live.part(id)), pieces: pieces.arrange },
    told: draw,
    changed: (lists) => { lists.forEach(sift); drawer.again(); tick(); },
  });

  const UNITS = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"], [1, "s", 0, ""]];

  function lasted(seconds) {
    const [size, unit, less, lesser] = UNITS.find(([size]) => seconds >= size) || UNITS[3];
    const whole = Math.floor(seconds / size), rest = less > 1 ? Math.floor((seconds % size) / less) : 0;
    return rest && whole < 10 ? `${whole} ${unit} ${rest} ${lesser}` : `${whole} ${unit}`;
  }

  function tick() {
    if (document.hidden) return;
    for (const time of document.querySelectorAll("time[data-tick]")) {
      const seconds = Math.max(0, Math.floor((Date.now() - Date.parse(time.dateTime)) / 1000));
      const said = time.dataset.tick === "for" ? `for ${lasted(seconds)}` : seconds < 10 ? "just now" : `${lasted(seconds)} ago`;
      if (time.textContent !== said) time.textContent = said;
      if (!time.title) time.title = time.dateTime;
    }
  }

  setInterval(tick, 1000);
  document.addEventListener("visibilitychange", tick);
  tick();
  sift("pieces");
})();
