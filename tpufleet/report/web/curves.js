// Curves of many runs over one pair of axes, for the board (live) and the report (as they came home).
//
//   const shown = tpufleetCurves(element, {main: "test_loss"});
//   shown.set(runs, curves)         runs: {run: {job, state, person, params: {}, mark}}, curves: {run: {metric: [[steps], [values]]}}
//   shown.add(runs, curves, anew, left)   points to append, the runs that begin anew, those that are gone
//   shown.pick(run), shown.onpick = run => {}
//
// A page needs uPlot.iife.min.js, curves_numbers.js, curves_picture.js and this, in that order, and uPlot.min.css and
// curves.css. `mark` is the index of the run's own colour and shape, null is grey; runs without any are given theirs.
"use strict";

window.tpufleetCurves = (() => {
  const { MARKED, Picture, higherIsBetter, keyOf, make, number, ranks, thin } = window.tpufleetPlot;
  const MOST = 2000; // points of a curve; then it is thinned to half of that
  const KEYS = "Plus and minus zoom, arrow keys move, 0 shows all.";
  const WIDE = 960; // pixels, from which on the list has room beside the picture; curves.css has it too
  let made = 0;

  class Curves {
    constructor(element, { main = null } = {}) {
      this.onpick = null;
      this._main = main;
      this._runs = new Map(); // run → {about, mark, words, shown, row}
      this._curves = new Map(); // run → Map(metric → {x, y, smoothed})
      this._metric = this._best = this._log = this._near = this._picked = null;
      this._amount = 0;
      this._free = firstMarks(); // marks that no run has
      this._listed = this._lines = [];
      this._lit = new Set();
      this._build(element);
      this._picture = new Picture(this._plot, {
        near: (run) => this._light(run, this._picked),
        pick: (run) => { this._light(this._near, run); this.onpick?.(run); },
        zoom: () => this._later(),
      });
      this._later();
    }

    // ------------------------------------------------------------------------------------------------ what comes in

    set(runs, curves) {
      this._before = new Map(this._runs); // whom somebody has hidden stays so when all is told again
      this._runs.clear();
      this._curves.clear();
      this._free = firstMarks();
      this._list.replaceChildren();
      this._anew = true;
      this.add(runs, curves);
    }

    add(runs, curves, anew = [], left = []) {
      for (const run of left) this._forget(run);
      for (const run of anew || []) this._curves.delete(run);
      for (const [run, about] of Object.entries(runs || {})) this._know(run, about);
      for (const [run, metrics] of Object.entries(curves || {})) {
        if (!this._runs.has(run)) this._know(run, {});
        for (const [metric, points] of Object.entries(metrics)) this._append(run, metric, points);
      }
      this._news = true;
      this._later();
    }

    pick(run) {
      this._light(this._near, run);
    }

    _know(run, about) {
      const params = Object.entries(about.params || {}).map(([name, value]) => `${name}=${value}`);
      const words = [run, about.job, about.person, about.state, ...params].filter(Boolean).join(" ").toLowerCase();
      const known = this._runs.get(run) || this._first(this._before?.get(run));
      if (about.mark !== undefined) known.mark = about.mark;
      this._runs.set(run, Object.assign(known, { about, words }));
    }

    _first(before) {
      return { shown: before ? before.shown : true, mark: this._free.shift() ?? null, row: null };
    }

    _forget(run) {
      const known = this._runs.get(run);
      if (!known) return;
      known.row?.item.remove();
      if (known.mark !== null) this._free.push(known.mark);
      this._runs.delete(run);
      this._curves.delete(run);
      this._sift();
    }

    _append(run, metric, [steps, values]) {
      if (!this._curves.has(run)) this._curves.set(run, new Map());
      const metrics = this._curves.get(run), curve = metrics.get(metric) || { x: [], y: [] };
      for (let i = 0; i < steps.length; i++)
        if (Number.isFinite(values[i])) { curve.x.push(steps[i]); curve.y.push(values[i]); }
      metrics.set(metric, curve.x.length > MOST ? thin(curve, MOST / 2) : curve);
      metrics.get(metric).smoothed = null;
    }

    // ------------------------------------------------------------------------------------------------ the controls

    _build(element) {
      made += 1;
      this._plot = make("div", { className: "tc-plot", tabIndex: 0, role: "group", ariaLabel: "Curves" });
      this._none = make("p", { className: "tc-none" }, "No curve yet.");
      this._said = make("p", { className: "tc-said" });
      const side = this._side(), main = make("div", { className: "tc-main" }, this._plot, this._none, this._said);
      const root = make("div", { className: "tc" }, make("div", { className: "tc-in" }, this._bar(), main, side));
      element.append(root);
      let wide = null;
      new ResizeObserver(() => {
        if (wide !== (wide = root.clientWidth >= WIDE)) side.open = wide;
        this._later();
      }).observe(root);
      for (const query of ["(prefers-color-scheme: dark)", "(min-width: 100rem)", "print"])
        matchMedia(query).addEventListener("change", () => { this._picture.forgetInks(); this._later(); });
    }

    _bar() {
      this._select = make("select", { id: `tc-metric-${made}` });
      this._select.addEventListener("change", () => { this._metric = this._select.value; this._log = null; this._show(null); });
      this._range = make("input", { type: "range", id: `tc-smooth-${made}`, min: "0", max: "0.98", step: "0.02", value: "0" });
      this._range.addEventListener("input", () => { this._amount = +this._range.value; this._later(); });
      this._box = make("input", { type: "checkbox" });
      this._box.addEventListener("change", () => { this._log = this._box.checked; this._show(null); });
      this._reset = button("Reset", "Show all again", () => this._picture.zoomTo(null));
      return make("div", { className: "tc-bar" },
        make("label", { htmlFor: this._select.id, className: "tc-field" }, make("span", {}, "Metric"), this._select),
        make("label", { className: "tc-check" }, this._box, "log axis"),
        make("label", { htmlFor: this._range.id, className: "tc-field tc-smooth" }, make("span", {}, "Smoothing"), this._range),
        make("span", { className: "tc-zoom", role: "group", ariaLabel: "Zoom" },
          button("−", "Zoom out", () => this._picture.zoomBy(1.6)), button("+", "Zoom in", () => this._picture.zoomBy(1 / 1.6)), this._reset));
    }

    _side() {
      this._filter = make("input", { type: "search", className: "tc-filter", placeholder: "name, job, lr=0.001 …", ariaLabel: "Filter the runs" });
      this._filter.addEventListener("input", () => { this._sift(); this._show(); });
      this._all = make("input", { type: "checkbox", checked: true });
      this._all.addEventListener("change", () => {
        for (const known of this._listed) known.shown = known.row.box.checked = this._all.checked;
        this._show();
      });
      this._list = make("ul", { className: "tc-runs" });
      this._title = make("span", {}, "Runs");
      return make("details", { className: "tc-side" }, make("summary", {}, this._title),
        make("div", { className: "tc-tools" }, this._filter, make("label", { className: "tc-check" }, this._all, "all")), this._list);
    }

    /** Something else is to be seen; with `zoom` null the whole of it. */
    _show(zoom) {
      this._news = true;
      if (zoom === null) this._picture.zoomTo(null);
      this._later();
    }

    _light(near, picked) {
      this._near = near;
      this._picked = picked;
      for (const item of this._lit) item.classList.remove("near");
      this._lit = new Set([near, picked].map((run) => this._runs.get(run)?.row?.item).filter(Boolean));
      for (const item of this._lit) item.classList.add("near");
      this._picture.light(near, picked);
    }

    // ---------------------------------------------------------------------------------------- once a frame at most

    _later() {
      if (this._waiting) return;
      this._waiting = true;
      requestAnimationFrame(() => { this._waiting = false; this._frame(); });
    }

    _frame() {
      const fresh = this._news;
      if (fresh) this._takeNews();
      const lines = this._lines;
      this._none.hidden = lines.length > 0;
      this._plot.hidden = !lines.length;
      if (lines.length && this._plot.clientWidth) {
        this._picture.draw(lines, { amount: this._amount, log: this._log, fresh });
        this._box.checked = this._picture.isLog;
      }
      this._reset.disabled = !this._picture.zoomed;
      this._tell(lines);
    }

    /** Which metrics there are, which one is shown, who is best by it, the list's rows, and the lines to draw. */
    _takeNews() {
      this._news = false;
      this._offer([...new Set([...this._curves.values()].flatMap((metrics) => [...metrics.keys()]))]);
      const ranked = ranks(this._metric || "") ? this._ranked() : [];
      this._best = ranked.length ? ranked[0] : null;
      if (this._anew && this._runs.size > MARKED && ranked.length) this._markBest(ranked);
      this._anew = false;
      let added = false;
      for (const [run, known] of this._runs) added = this._write(run, known) || added;
      if (added) this._sift();
      this._lines = this._ordered();
    }

    _offer(metrics) {
      if (metrics.join("\0") !== this._offered) {
        this._offered = metrics.join("\0");
        this._select.replaceChildren(...metrics.map((metric) => make("option", { value: metric }, metric)));
      }
      if (!metrics.includes(this._metric))
        this._metric = metrics.includes(this._main) ? this._main : metrics.find((metric) => /loss/i.test(metric)) || metrics[0] || null;
      if (this._metric !== null) this._select.value = this._metric;
    }

    /** The runs that have the metric, the best last value first. */
    _ranked() {
      const sign = higherIsBetter(this._metric) ? -1 : 1;
      const found = [...this._runs.keys()].flatMap((run) => (this._curve(run) ? [[run, sign * this._curve(run).y.at(-1)]] : []));
      return found.sort((a, b) => a[1] - b[1]).map(([run]) => run);
    }

    /** Of more runs than can be told apart, those that are best now come first, and have the marks. */
    _markBest(ranked) {
      if ([...this._runs.values()].some((known) => known.about.mark !== undefined)) return;
      const order = new Map([...ranked, ...this._runs.keys()].map((run) => [run, this._runs.get(run)]));
      let index = 0;
      for (const known of order.values()) known.mark = index < MARKED ? index++ : null;
      this._runs = order;
    }

    _curve(run) {
      const curve = this._curves.get(run)?.get(this._metric);
      return curve && curve.x.length ? curve : undefined;
    }

    /** Writes a run's row in the list, and says whether it is a new one. */
    _write(run, known) {
      const added = !known.row;
      const row = (known.row ??= this._row(run, known));
      const value = this._curve(run)?.y.at(-1), best = run === this._best;
      if (row.last !== value) { row.last = value; row.value.textContent = value === undefined ? "" : number(value); }
      if (row.best !== best) { row.best = best; row.item.classList.toggle("best", best); }
      if (row.mark !== known.mark) { row.mark = known.mark; row.key.replaceChildren(keyOf(known.mark)); }
      return added;
    }

    _row(run, known) {
      const box = make("input", { type: "checkbox", checked: known.shown }), key = make("span", {}), value = make("b", {});
      const item = make("li", {}, make("label", { title: run }, box, key, make("span", { className: "tc-name" }, run), value));
      box.addEventListener("change", () => { known.shown = box.checked; this._show(); });
      for (const [kind, near] of [["pointerenter", run], ["pointerleave", null], ["focusin", run], ["focusout", null]])
        item.addEventListener(kind, () => this._light(near, this._picked));
      this._list.append(item);
      return { item, box, key, value };
    }

    _sift() {
      const words = this._filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      this._listed = [];
      for (const known of this._runs.values()) {
        const fits = words.every((word) => known.words.includes(word));
        if (fits) this._listed.push(known);
        if (known.row) known.row.item.hidden = !fits;
      }
    }

    /** What is to be drawn, grey ones first, so that the others lie above them, and the best above all. */
    _ordered() {
      const kept = new Set(this._listed), layers = [[], [], []];
      for (const [run, known] of this._runs) {
        const curve = known.shown && kept.has(known) ? this._curve(run) : undefined, best = run === this._best;
        if (curve) layers[best ? 2 : known.mark === null ? 0 : 1].push({ run, mark: known.mark, best, curve });
      }
      return layers.flat();
    }

    _tell(lines) {
      const count = (amount) => amount.toLocaleString("en");
      const of = this._runs.size, listed = this._listed.length, shown = this._listed.filter((known) => known.shown).length;
      write(this._title, listed === of ? `Runs (${count(of)})` : `Runs (${count(listed)} of ${count(of)})`);
      this._all.checked = shown === listed && listed > 0;
      this._all.indeterminate = shown > 0 && shown < listed;
      const best = lines.find((line) => line.best), grey = lines.filter((line) => line.mark === null).length;
      const words = [
        best && `Best ${this._metric}: ${number(best.curve.y.at(-1))}, ${best.run}.`,
        grey && `${count(grey)} of ${count(lines.length)} curves are grey.`,
        this._picture.zoomed && "A part is shown.",
      ];
      write(this._said, words.filter(Boolean).join(" "));
      this._plot.ariaLabel = `${this._metric || "Curves"} over steps, ${count(lines.length)} curves. ${KEYS}`;
    }
  }

  function button(text, title, act) {
    const element = make("button", { type: "button", title, className: "tc-button", ariaLabel: title }, text);
    element.addEventListener("click", act);
    return element;
  }

  function firstMarks() {
    return Array.from({ length: MARKED }, (_, mark) => mark);
  }

  function write(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  return (element, options) => new Curves(element, options);
})();
