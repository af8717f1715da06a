// What the curves are reckoned with, and the small elements around them; the first of the three scripts that make them.
"use strict";

window.tpufleetPlot = (() => {
  const COLOURS = 8;
  const MARKED = 2 * COLOURS; // more runs than this can't be told apart at a glance; the others stay grey
  const LARGEST = 300; // of a power of ten; what is beyond would be infinite once air is added
  const DECIMALS = [0, 1, 2, 3].map((digits) => new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
  const SHAPES = [ // as report/marks.py has them
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "M-3.6-3.6h7.2v7.2h-7.2z",
    "M0-4.8L4.6 3.6H-4.6z",
    "M0-5.2L5.2 0L0 5.2L-5.2 0z",
    "M0 4.8L4.6-3.6H-4.6z",
    "M-1.5-4.6h3v3.1h3.1v3h-3.1v3.1h-3v-3.1h-3.1v-3h3.1z",
    "M-4.8-2.4h9.6v4.8h-9.6z",
    "M-4.4-4.4L0-1.6L4.4-4.4L1.6 0L4.4 4.4L0 1.6L-4.4 4.4L-1.6 0z",
  ];

  // ------------------------------------------------------------------------------------------------ pure: numbers

  const shapeOf = (mark) => SHAPES[(mark + 3 * Math.floor(mark / COLOURS)) % SHAPES.length];
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
  const higherIsBetter = (metric) => /acc|f1|bleu|reward|score/i.test(metric);
  const ranks = (metric) => higherIsBetter(metric) || /loss|err|perplexity|ppl|bpb/i.test(metric);

  /** A measured value with three decimals or so: 1.787, 23.41, 1,280, 3.00e-4. */
  function number(value) {
    const size = Math.abs(value);
    if (Number.isInteger(value) && size < 1e7 && size >= 10) return value.toLocaleString("en").replace("-", "−");
    if (size !== 0 && (size >= 1e7 || size < 1e-3)) return value.toExponential(2).replace("e+", "e").replace(/-/g, "−");
    return DECIMALS[size < 10 ? 3 : size < 100 ? 2 : 1].format(value).replace("-", "−");
  }

  /** A mark of an axis, as short as it can be said: 0, 1.5, 500, 20k, 1.5M. */
  function tick(value) {
    const size = Math.abs(value);
    for (const [least, unit, letter] of [[1e9, 1e9, "G"], [1e6, 1e6, "M"], [1e4, 1e3, "k"]])
      if (size >= least && size < 1e12) return +(value / unit).toPrecision(6) + letter;
    return String(+value.toPrecision(6)).replace("-", "−");
  }

  /** The range that shows `values`: all of them with a little air, but for rare ones far above the rest. */
  function spanOf(values, log) {
    const ordered = Float64Array.from(log ? values.filter((value) => value > 0) : values).sort();
    if (!ordered.length) return log ? [0.1, 10] : [0, 1];
    const low = ordered[0];
    let high = ordered[ordered.length - 1];
    const most = ordered[Math.floor(0.98 * (ordered.length - 1))];
    const ceiling = most + 3 * (most - low);
    if (!log && ordered.length >= 20 && most > low && high > ceiling) high = ceiling;
    if (log) {
      const air = high > low ? (Math.log10(high) - Math.log10(low)) * 0.05 : 0.3;
      return [low, high].map((value, end) => 10 ** clamp(Math.log10(value) + (end ? air : -air), -LARGEST, LARGEST));
    }
    const air = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
    return [low >= 0 && low < air ? 0 : low - air, high + air];
  }

  /** The round values at which a logarithmic axis is marked; less than a decade is marked as a linear one is. */
  function logTicks(low, high, wanted) {
    if (high / low < 8) {
      const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
      const step = power * [1, 2, 5, 10].find((times) => times * power >= rough * (1 - 1e-9));
      return Array.from({ length: 40 }, (_, i) => (Math.ceil(low / step) + i) * step).filter((value) => value <= high);
    }
    const first = Math.floor(Math.log10(low)), powers = Math.ceil(Math.log10(high)) - first + 1;
    const stride = Math.max(1, Math.ceil(powers / 8)), marks = high / low < 2000 ? [1, 2, 5] : [1];
    const all = [];
    for (let i = 0; i < powers; i += stride) for (const mark of marks) all.push(mark * 10 ** (first + i));
    return all.filter((value) => value >= low && value <= high);
  }

  /** At most `limit` points: the first, the last, and the extremes of equal spans of steps, which keeps the spikes. */
  function thin(curve, limit) {
    const { x, y } = curve, last = x.length - 1;
    const spans = Math.floor((limit - 2) / 2), width = (x[last] - x[0]) / spans || 1;
    const low = new Array(spans).fill(-1), high = new Array(spans).fill(-1);
    for (let i = 0; i <= last; i++) {
      const span = Math.min(spans - 1, Math.floor((x[i] - x[0]) / width));
      if (low[span] < 0 || y[i] < y[low[span]]) low[span] = i;
      if (high[span] < 0 || y[i] > y[high[span]]) high[span] = i;
    }
    const kept = [...new Set([0, last, ...low, ...high])].filter((i) => i >= 0).sort((a, b) => a - b);
    return { x: kept.map((i) => x[i]), y: kept.map((i) => y[i]) };
  }

  /** The running mean of a curve's values that forgets by the distance of steps; `amount` 0 … 0.99 is what it keeps. */
  function smooth({ x, y }, amount) {
    const spacing = (x[x.length - 1] - x[0]) / (x.length - 1) || 1;
    let sum = 0, weight = 0;
    return y.map((value, i) => {
      const keep = amount ** (i ? (x[i] - x[i - 1]) / spacing : 1);
      sum = keep * sum + (1 - keep) * value;
      weight = keep * weight + (1 - keep);
      return sum / weight;
    });
  }

  /** The index of the last of the ascending `steps` that is not beyond `step`; -1 when all are. */
  function before(steps, step) {
    let low = -1, high = steps.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (steps[middle] <= step) low = middle; else high = middle;
    }
    return low;
  }

  // ----------------------------------------------------------------------------------------------- pure: elements

  function make(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties))
      if (name in element) element[name] = value; else element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  /** A run's mark as a small picture in front of its name. */
  function keyOf(mark) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "-6 -6 12 12");
    svg.setAttribute("aria-hidden", "true");
    svg.setAttribute("class", mark === null ? "tc-key grey" : `tc-key c${mark % COLOURS}`);
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", mark === null ? "M-5-.8h10v1.6h-10z" : shapeOf(mark));
    svg.append(path);
    return svg;
  }

  return { COLOURS, MARKED, SHAPES, before, clamp, higherIsBetter, keyOf, logTicks, make, number, ranks, shapeOf, smooth, spanOf, thin, tick };
})();
