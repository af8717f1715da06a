// The picture: axes, curves, cursor and zoom; the second of the three scripts that make the curves.
//
// uPlot draws axes and keeps cursor and zoom. The curves are drawn here, into its canvas: each run has steps of its own,
// and to put a thousand of them side by side in one table, as uPlot wants its data, would cost more than to draw them.
"use strict";

window.tpufleetPlot.Picture = (() => {
  const { COLOURS, before, clamp, keyOf, logTicks, make, number, shapeOf, smooth, spanOf, tick } = window.tpufleetPlot;
  const REACH = 48; // pixels from a curve within which it is meant
  const LOG_RATIO = 30; // what falls further than this is unreadable at its end on a linear axis
  const SPIKE = 0.02; // air beside the last step, in which the marks of ends have room
  const ENOUGH = 4; // points of a curve after its first, on average

  return class Picture {
    /** In `element`; `on` has `near(run)`, `pick(run)` and `zoom()`, which are called when somebody does so here. */
    constructor(element, on) {
      this._element = element;
      this._on = on;
      this._lines = []; // of {run, mark, best, curve}: the later ones lie above
      this._zoom = null; // {x: [low, high], y: [low, high]} or null: all
      this._near = this._picked = null;
      this._amount = 0;
      this._above = make("canvas", { className: "tc-above" });
      this._hint = make("div", { className: "tc-hint", hidden: true, ariaHidden: "true" });
      element.addEventListener("keydown", (event) => this._press(event));
    }

    get zoomed() {
      return this._zoom !== null;
    }

    get isLog() {
      return this._log === true;
    }

    /** The colours and letters of the page are others now. */
    forgetInks() {
      this._inks = null;
    }

    /** Draws `lines`; smoothed by `amount`, on a logarithmic axis if `log`, and if it is null as the values need it. */
    draw(lines, { amount, log, fresh }) {
      this._lines = lines;
      this._amount = amount;
      this._inks ??= this._readInks();
      if (fresh || !this._whole || this._wanted !== log) this._whole = this._spans(log);
      this._wanted = log;
      const look = `${this._whole.log} ${this._inks.font}`;
      if (look !== this._look) this._plant(look);
      const { x, y } = this._zoom || this._whole;
      const [width, height] = [this._element.clientWidth, this._element.clientHeight];
      this._plot.batch(() => {
        if (this._plot.width !== width || this._plot.height !== height) this._plot.setSize({ width, height });
        this._plot.setScale("x", { min: x[0], max: x[1] });
        this._plot.setScale("y", { min: y[0], max: y[1] });
      });
      this._plot.redraw(false, true);
      this._point();
    }

    /** Which run is pointed at elsewhere, and which is picked. */
    light(near, picked) {
      this._near = near;
      this._picked = picked;
      this._point();
    }

    // ----------------------------------------------------------------------------------------------------- zoom

    zoomTo(zoom) {
      this._zoom = zoom;
      this._on.zoom();
    }

    zoomBy(times) {
      this._turned((low, high) => {
        const middle = (low + high) / 2, half = ((high - low) / 2) * times;
        return [middle - half, middle + half];
      });
    }

    _moveBy(across, up) {
      this._turned((low, high, axis) => {
        const by = ((high - low) / 8) * (axis === "x" ? across : up);
        return [low + by, high + by];
      });
    }

    /** The part of both axes that is seen, each end moved by `moved(low, high)`; on a log axis in its logarithms. */
    _turned(moved) {
      if (!this._plot) return;
      const { x, y } = this._plot.scales;
      const on = this._log ? [Math.log10(y.min), Math.log10(y.max)] : [y.min, y.max];
      const turned = moved(...on, "y");
      this.zoomTo({ x: moved(x.min, x.max, "x"), y: this._log ? turned.map((value) => 10 ** value) : turned });
    }

    _press(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const turn = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
      if (turn && this._zoom) this._moveBy(...turn);
      else if (event.key === "+" || event.key === "=") this.zoomBy(1 / 1.6);
      else if (event.key === "-") this.zoomBy(1.6);
      else if (event.key === "0" || event.key === "Home") this.zoomTo(null);
      else return;
      event.preventDefault();
    }

    _selected(u) {
      const { left, top, width, height } = u.select;
      if (width < 4 && height < 4) return;
      const { x, y } = u.scales;
      const across = width < u.over.clientWidth - 1, down = height < u.over.clientHeight - 1;
      this.zoomTo({
        x: across ? [u.posToVal(left, "x"), u.posToVal(left + width, "x")] : [x.min, x.max],
        y: down ? [u.posToVal(top + height, "y"), u.posToVal(top, "y")] : [y.min, y.max],
      });
      u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    }

    // ----------------------------------------------------------------------------------------------------- axes

    /** The ranges in which all lines have room, and whether the axis of values is logarithmic. */
    _spans(wanted) {
      let first = Infinity, last = -Infinity, low = Infinity, high = -Infinity, count = 0;
      for (const { curve: { x } } of this._lines) {
        first = Math.min(first, x[0]);
        last = Math.max(last, x[x.length - 1]);
        count += x.length;
      }
      const values = new Float64Array(count);
      let at = 0;
      for (const { curve: { y } } of this._lines) { values.set(y, at); at += y.length; }
      for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
      if (first >= 0 && first <= last * 0.2) first = 0;
      const log = wanted ?? (low > 0 && high / low > LOG_RATIO);
      const shown = log ? values : this._trained(low, high) ?? values;
      return { x: [first, last > first ? last + (last - first) * SPIKE : first + 1], y: spanOf(shown, log), log };
    }

    /** All values but each curve's first, mostly that of an untrained model, where the first ones take more than half
     * of the height from `low` to `high`: the curves come in from above then. Else undefined. (As in report/svg.py.) */
    _trained(low, high) {
      const later = this._lines.map(({ curve: { y } }) => y.slice(1));
      const values = Float64Array.from({ length: later.reduce((sum, { length }) => sum + length, 0) });
      let at = 0, least = Infinity, most = -Infinity;
      for (const y of later) { values.set(y, at); at += y.length; }
      for (const value of values) { if (value < least) least = value; if (value > most) most = value; }
      const enough = values.length >= ENOUGH * later.length && least === low;
      return enough && high - low > 2 * (most - least) ? values : undefined;
    }

    _readInks() {
      const style = getComputedStyle(this._element);
      const ink = (name) => style.getPropertyValue(name).trim() || style.color;
      const size = Math.max(11, parseFloat(style.fontSize) * 0.8);
      const colours = Array.from({ length: COLOURS }, (_, i) => ink(`--c${i}`));
      const named = Object.fromEntries(["ink", "soft", "line", "paper", "grey"].map((name) => [name, ink(`--${name}`)]));
      return { ...named, colours, size, font: `${size}px ${style.fontFamily}` };
    }

    _plant(look) {
      this._plot?.destroy();
      this._look = look;
      const { x, y, log } = this._whole, inks = this._inks;
      this._log = log;
      const axis = (more) => ({
        font: inks.font, stroke: () => this._inks.soft, grid: { stroke: () => this._inks.line, width: 1 }, ticks: { show: false },
        gap: 6, values: (u, marks) => marks.map(tick), ...more,
      });
      const wide = (u, marks) => Math.ceil(inks.size * 0.62 * Math.max(3, ...(marks || []).map((mark) => mark.length)) + 12);
      const marked = {
        splits: (u, i, low, high) => logTicks(low, high, u.over.clientHeight / (inks.size * 4)),
        filter: (u, marks) => marks,
      };
      this._plot = new uPlot({
        width: this._element.clientWidth, height: this._element.clientHeight, legend: { show: false },
        padding: [10, inks.size * 1.4, 0, 0], series: [{}, {}],
        scales: { x: { time: false, auto: false, min: x[0], max: x[1] }, y: { auto: false, distr: log ? 3 : 1, min: y[0], max: y[1] } },
        axes: [
          axis({ size: inks.size * 1.9, space: inks.size * 6, grid: { show: false } }),
          axis({ size: wide, space: inks.size * 3.2, ...(log ? marked : {}) }),
        ],
        cursor: {
          y: false, points: { show: false }, drag: { x: true, y: true, uni: 24, setScale: false },
          bind: { dblclick: () => () => { this.zoomTo(null); return null; } },
        },
        hooks: { draw: [(u) => this._paint(u)], setCursor: [() => this._hover()], setSelect: [(u) => this._selected(u)] },
      }, [[0, 1], [null, null]], this._element);
      this._plot.over.append(this._above, this._hint);
      let pressed = 0;
      this._plot.over.addEventListener("pointerdown", (event) => { pressed = event.clientX; });
      this._plot.over.addEventListener("click", (event) => {
        if (Math.abs(event.clientX - pressed) < 4) this._on.pick(this._near === this._picked ? null : this._near);
      });
    }

    // --------------------------------------------------------------------------------------------------- curves

    /** Where a step and a value lie, in pixels of a plot `width` by `height`. */
    _place(width, height) {
      const { x, y } = this._plot.scales, of = this._log ? Math.log10 : (value) => value;
      const across = width / (x.max - x.min), base = of(y.min), up = height / (of(y.max) - base);
      return [(step) => (step - x.min) * across, (value) => height - (of(value) - base) * up];
    }

    _paint(u) {
      const { ctx, bbox } = u, ratio = devicePixelRatio, place = this._place(bbox.width, bbox.height);
      const air = this._zoom ? 0 : 8 * ratio; // for the marks of ends
      ctx.save();
      ctx.translate(bbox.left, bbox.top);
      ctx.beginPath();
      ctx.rect(0, -air, bbox.width + air, bbox.height + air);
      ctx.clip();
      ctx.lineJoin = ctx.lineCap = "round";
      for (const line of this._lines) this._stroke(ctx, place, line, ratio);
      for (const line of this._lines) this._end(ctx, place, line, ratio);
      ctx.restore();
    }

    _stroke(ctx, place, { mark, best, curve }, ratio) {
      const grey = mark === null && !best;
      ctx.strokeStyle = this._colour(mark, best);
      ctx.lineWidth = ratio * (best ? 2.6 : grey ? 1 : 1.5);
      ctx.setLineDash(dashes(mark, ratio));
      if (this._amount) {
        ctx.globalAlpha = 0.22;
        trace(ctx, place, curve.x, curve.y);
      }
      ctx.globalAlpha = grey ? 0.6 : 1;
      trace(ctx, place, curve.x, this._values(curve));
      ctx.globalAlpha = 1;
      ctx.setLineDash([]);
    }

    _end(ctx, place, { mark, best, curve }, ratio) {
      if (mark === null) return;
      ctx.save();
      ctx.translate(place[0](curve.x.at(-1)), place[1](this._values(curve).at(-1)));
      ctx.scale(ratio * 1.15, ratio * 1.15);
      const shape = new Path2D(shapeOf(mark));
      ctx.lineWidth = 2.4;
      ctx.strokeStyle = this._inks.paper;
      ctx.stroke(shape);
      ctx.fillStyle = this._colour(mark, best);
      ctx.fill(shape);
      ctx.restore();
    }

    _colour(mark, strong) {
      return mark === null ? this._inks[strong ? "ink" : "grey"] : this._inks.colours[mark % COLOURS];
    }

    _values(curve) {
      if (!this._amount || curve.x.length < 2) return curve.y;
      if (curve.smoothed?.amount !== this._amount) curve.smoothed = { amount: this._amount, y: smooth(curve, this._amount) };
      return curve.smoothed.y;
    }

    // --------------------------------------------------------------------------------------- what is pointed at

    _hover() {
      if (!this._plot) return; // uPlot is still being made
      const { left, top } = this._plot.cursor;
      const near = left >= 0 ? this._nearest(left, top) : null;
      if (near !== this._near) this._on.near(near);
      else this._point();
    }

    _nearest(left, top) {
      const u = this._plot, step = u.posToVal(left, "x"), [across, up] = this._place(u.over.clientWidth, u.over.clientHeight);
      let nearest = null, least = REACH;
      for (const { run, curve } of this._lines) {
        const y = this._values(curve), i = before(curve.x, step), j = Math.min(i + 1, curve.x.length - 1), k = Math.max(i, 0);
        const x0 = across(curve.x[k]), y0 = up(y[k]), width = across(curve.x[j]) - x0, height = up(y[j]) - y0;
        const along = width > 0 ? clamp((left - x0) / width, 0, 1) : 0;
        const far = Math.hypot(left - x0 - along * width, top - y0 - along * height);
        if (far <= least) { least = far; nearest = run; }
      }
      return nearest;
    }

    /** Draws the run that is pointed at, or picked, once more above all others, and says its name, step and value. */
    _point() {
      const u = this._plot;
      if (!u) return;
      const ratio = devicePixelRatio, width = Math.round(u.over.clientWidth * ratio), height = Math.round(u.over.clientHeight * ratio);
      if (this._above.width !== width) this._above.width = width;
      if (this._above.height !== height) this._above.height = height;
      const ctx = this._above.getContext("2d"), place = this._place(width, height);
      ctx.clearRect(0, 0, width, height);
      ctx.lineJoin = ctx.lineCap = "round";
      for (const run of new Set([this._picked, this._near])) {
        const line = this._lines.find((one) => one.run === run);
        if (line) this._again(ctx, place, line, ratio);
      }
      this._hintAt(ctx, place, this._lines.find((one) => one.run === this._near), ratio);
    }

    _again(ctx, place, line, ratio) {
      for (const [colour, wide] of [[this._inks.paper, 6.5], [this._colour(line.mark, true), 3]]) {
        ctx.strokeStyle = colour;
        ctx.lineWidth = wide * ratio;
        trace(ctx, place, line.curve.x, this._values(line.curve));
      }
      this._end(ctx, place, line, ratio);
    }

    _hintAt(ctx, place, line, ratio) {
      const u = this._plot, { left } = u.cursor;
      this._hint.hidden = !line || !(left >= 0);
      if (this._hint.hidden) return;
      const { run, mark, curve } = line, step = u.posToVal(left, "x");
      const i = Math.max(0, before(curve.x, step)), j = Math.min(i + 1, curve.x.length - 1);
      const at = curve.x[j] - step < step - curve.x[i] ? j : i;
      const x = place[0](curve.x[at]), y = place[1](this._values(curve)[at]);
      ctx.fillStyle = this._colour(mark, true);
      ctx.beginPath();
      ctx.arc(x, y, 4.5 * ratio, 0, 7);
      ctx.fill();
      this._hint.replaceChildren(
        make("span", {}, keyOf(mark), run),
        make("b", {}, `step ${curve.x[at].toLocaleString("en")} · ${number(curve.y[at])}`),
      );
      this._beside(x / ratio, y / ratio);
    }

    _beside(x, y) {
      const { over } = this._plot, { offsetWidth: width, offsetHeight: height } = this._hint;
      const left = x > over.clientWidth / 2 ? x - width - 12 : x + 12;
      this._hint.style.left = `${clamp(left, 0, Math.max(0, over.clientWidth - width))}px`;
      this._hint.style.top = `${y < height + 16 ? y + 12 : y - height - 10}px`;
    }
  };

  function dashes(mark, ratio) {
    return mark !== null && mark >= COLOURS ? [6 * ratio, 4 * ratio] : [];
  }

  function trace(ctx, [across, up], x, y) {
    ctx.beginPath();
    for (let i = 0; i < x.length; i++) ctx.lineTo(across(x[i]), up(y[i]));
    if (x.length === 1) ctx.lineTo(across(x[0]) + 0.01, up(y[0])); // a point is a line that hardly moves
    ctx.stroke();
  }
})();
