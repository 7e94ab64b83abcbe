// The charts of the training page: scaling, parts of an iteration, and variants.
import { svg } from "./dom.js";
import { svgText } from "./export.js";
import { formatTime } from "./format.js";
import { inkOf } from "./palette.js";
import { FONT, Frame, label } from "./svg.js";
import { linearTicks, logTicks } from "./ticks.js";
import { formatSetting } from "./training_question.js";

/** Parts of an iteration from the bottom of a bar to its top: name, title, colour. */
export const PARTS = [
  ["computing", "computation alone", 0],
  ["overlapped", "computation with hidden communication", 3],
  ["exposed", "exposed communication", 1],
  ["waiting", "waiting", null],
];
const ALGORITHM_NAMES = { default: "NCCL's own choice", best: "the fastest known" };

export function partColour(part, ink = inkOf(false)) {
  return part[2] === null ? ink.border : ink.hue(part[2]);
}

export function algorithmsName(algorithms) {
  return ALGORITHM_NAMES[algorithms] ?? algorithms;
}

/** Return images or tokens per second such as 57.6k or 1.2M. */
export function formatThroughput(rate) {
  for (const [unit, scale] of /** @type {[string, number][]} */ ([["G", 1e9], ["M", 1e6], ["k", 1e3]])) {
    if (rate >= scale * 0.9995) return `${Number((rate / scale).toPrecision(3))}${unit}`;
  }
  return String(Number(rate.toPrecision(3)));
}

/** Return a time with four figures, as ticks may be close to one another. */
function tickTime(seconds) {
  return seconds >= 1 ? `${Number(seconds.toPrecision(4))}s` : `${Number((seconds * 1e3).toPrecision(4))}ms`;
}

function percent(share) {
  return `${Number((100 * share).toPrecision(4))}%`;
}

function ranksAxis(answer, label) {
  const ranks = [...answer.outline.ranks].filter((one) => answer.points.has(one) || one === answer.outline.detail);
  return {
    low: ranks[0] / 1.25, high: ranks.at(-1) * 1.25, log: true, ticks: ranks, label,
    format: String,
  };
}

/** The published points: {ranks, rate, efficiency, source}. */
function published(answer) {
  const rate = answer.alone;
  return answer.curve
    .filter((point) => point.published)
    .map((point) => ({
      ranks: point.ranks,
      efficiency: point.published.efficiency,
      rate: point.published.efficiency * point.ranks * rate,
      source: point.published.source,
    }));
}

/** Draw images or tokens per second over the number of ranks. */
export function rateChart(answer, view, size, ink) {
  const { unit } = answer.outline;
  const known = published(answer);
  const curve = answer.curve.map((point) => [point.ranks, answer.rate(point), point]);
  const ideal = curve.map(([ranks]) => [ranks, ranks * answer.alone]);
  const rates = [...curve, ...ideal].map(([, rate]) => rate).concat(known.map((one) => one.rate));
  const [low, high] = [Math.min(...rates) / 1.2, Math.max(...rates) * 1.2];
  const frame = new Frame({
    ...size, ink, mark: answer.outline.detail, title: `${unit} per second`,
    x: ranksAxis(answer, "ranks"),
    y: { low, high, log: true, ticks: logTicks(low, high), format: formatThroughput },
  });
  frame.curve(ideal, { colour: ink.muted, dash: [5, 4], width: 1.5 });
  frame.curve(curve, { colour: ink.hue(0) });
  for (const [ranks, rate, point] of curve) {
    frame.marker(ranks, rate, {
      colour: ink.hue(0), click: () => view.choose(ranks),
      title: `${ranks} ranks: ${formatThroughput(rate)} ${unit}/s, ${percent(point.efficiency)}`,
    });
  }
  for (const one of known) {
    frame.marker(one.ranks, one.rate, {
      colour: ink.hue(1), shape: "diamond", size: 5, title: `published for ${one.ranks} ranks: ${formatThroughput(one.rate)} ${unit}/s; ${one.source}`,
    });
  }
  return frame.root;
}

/** Draw the scaling efficiency over the number of ranks. */
export function efficiencyChart(answer, view, size, ink) {
  const known = published(answer);
  const curve = answer.curve.map((point) => [point.ranks, point.efficiency]);
  const shares = [...curve.map(([, share]) => share), ...known.map((one) => one.efficiency)];
  const low = Math.max(0, Math.floor((Math.min(...shares) - 0.03) * 20) / 20);
  const high = Math.max(1.01, Math.max(...shares) + 0.02);
  const frame = new Frame({
    ...size, ink, mark: answer.outline.detail, title: "scaling efficiency",
    x: ranksAxis(answer, "ranks"),
    y: { low, high, ticks: linearTicks(low, high, 5), format: percent },
  });
  frame.curve([[frame.x.low, 1], [frame.x.high, 1]], { colour: ink.muted, dash: [5, 4], width: 1.5 });
  frame.curve(curve, { colour: ink.hue(0) });
  for (const [ranks, share] of curve) {
    frame.marker(ranks, share, { colour: ink.hue(0), click: () => view.choose(ranks), title: `${ranks} ranks: ${percent(share)}` });
  }
  for (const one of known) {
    frame.marker(one.ranks, one.efficiency, {
      colour: ink.hue(1), shape: "diamond", size: 5, title: `published for ${one.ranks} ranks: ${percent(one.efficiency)}; ${one.source}`,
    });
  }
  return frame.root;
}

/** Draw a stacked bar of the parts of an iteration for each number of ranks. */
export function partsChart(answer, view, size, ink) {
  const curve = answer.curve;
  const high = Math.max(...curve.map((point) => point.seconds)) * 1.04;
  const at = curve.findIndex((point) => point.ranks === answer.outline.detail);
  const frame = new Frame({
    ...size, ink, title: "parts of an iteration", mark: at,
    x: { names: curve.map((point) => String(point.ranks)), label: "ranks" },
    y: { low: 0, high, ticks: linearTicks(0, high, 5), format: (t) => (t ? formatTime(t) : "0") },
  });
  curve.forEach((point, number) => {
    let bottom = 0;
    const parts = answer.parts(point);
    const width = Math.min(46, frame.band * 0.72);
    for (const part of PARTS) {
      const seconds = parts[part[0]];
      const [y0, y1] = [frame.atY(bottom), frame.atY(bottom + seconds)];
      bottom += seconds;
      if (y0 - y1 < 0.2) continue;
      const title = svg("title", {}, `${point.ranks} ranks, ${part[1]}: ${formatTime(seconds)}, ${percent(seconds / point.seconds)}`);
      frame.add(svg("rect", {
        x: frame.atX(number) - width / 2, y: y1, width, height: y0 - y1, fill: partColour(part, ink),
        class: "clickable", click: () => view.choose(point.ranks),
      }, title));
    }
  });
  return frame.root;
}

const LINES = [[0, []], [1, [7, 4]], [2, [2, 3]], [4, []], [5, [7, 4]], [6, [2, 3]]];

/** Return the colour number and the dashes of the variants of some algorithms. */
export function variantLook(answer, algorithms) {
  const place = [...answer.variantsByAlgorithms.keys()].indexOf(algorithms);
  return LINES[place % LINES.length];
}

/** Draw the time of an iteration over the main setting, a curve for each choice of algorithms. */
export function variantsChart(answer, view, size, ink) {
  const { setting } = answer.outline;
  const known = view.setting;
  const by = answer.variantsByAlgorithms;
  const values = [...new Set(answer.variants.map((one) => one.settings[setting]))].sort((a, b) => a - b);
  const times = answer.variants.map((one) => one.seconds);
  const spread = Math.max(...times) - Math.min(...times);
  const middle = Math.max(spread, Math.max(...times) * 0.002);
  const [low, high] = [Math.min(...times) - 0.1 * middle, Math.max(...times) + 0.1 * middle];
  const given = answer.outline.settings[setting];
  const frame = new Frame({
    ...size, ink, title: `iteration over ${setting.replaceAll("_", " ")}`, mark: values.indexOf(given),
    x: { names: values.map((value) => formatSetting(known, value)), label: setting.replaceAll("_", " ") },
    y: { low, high, ticks: linearTicks(low, high, 5), format: tickTime },
  });
  for (const [algorithms, own] of by) {
    const [number, dash] = variantLook(answer, algorithms);
    const points = own.map((one) => [values.indexOf(one.settings[setting]), one.seconds, one]).sort((a, b) => a[0] - b[0]);
    frame.curve(points, { colour: ink.hue(number), dash });
    for (const [at, seconds, one] of points) {
      frame.marker(at, seconds, {
        colour: ink.hue(number), size: 3.5, click: () => view.apply(one),
        title: `${formatSetting(known, one.settings[setting])}, ${algorithmsName(algorithms)}: ${formatTime(seconds)}`,
      });
    }
  }
  const best = answer.bestVariant;
  frame.marker(values.indexOf(best.settings[setting]), best.seconds, {
    colour: ink.text, size: 6.5, hollow: true, click: () => view.apply(best),
    title: `the least: ${formatSetting(known, best.settings[setting])}, ${algorithmsName(best.algorithms)}, ${formatTime(best.seconds)}`,
  });
  return frame.root;
}

/** Return all charts as one SVG text on white. */
export function chartsSvg(answer, view, title) {
  const size = { width: 560, height: 320 };
  const charts = [rateChart, efficiencyChart, partsChart];
  if (answer.outline.setting && answer.variants.length) charts.push(variantsChart);
  const ink = inkOf(true);
  const root = svg("svg", { width: 1140, height: 40 + 330 * 2, viewBox: "0 0 1140 700", "font-family": FONT, "font-size": 12 },
    label(16, 26, title, ink.text, "start", { "font-size": 16, "font-weight": 600 }));
  charts.forEach((draw, number) => {
    const chart = draw(answer, view, size, ink);
    chart.setAttribute("x", 10 + 570 * (number % 2));
    chart.setAttribute("y", 40 + 330 * Math.floor(number / 2));
    root.append(chart);
  });
  return svgText(root);
}
