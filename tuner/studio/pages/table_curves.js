// The curves of one collective on one shape: time relative to the default, and time.
import { svg } from "./dom.js";
import { formatRatio, formatTime } from "./format.js";
import { dashOf } from "./palette.js";
import { label } from "./svg.js";
import { picture, sizeAxis, sizePlace } from "./table_drawing.js";
import { DEFAULT } from "./table_model.js";
import { logTicks, ratioTicks } from "./ticks.js";

const MARGIN = { left: 58, right: 12, top: 10, bottom: 26 };
const TRIED_RANGE = [0.4, 1.6]; // what candidates that the table does not choose may ask for
const RATIO_RANGE = [0.04, 3]; // beyond it a curve leaves the chart

/** Return the curves of the candidates that a probe measured: {name, algorithm, points}. */
export function candidateCurves(candidates) {
  const found = new Map();
  for (const each of candidates) {
    if (each.algorithm === DEFAULT) continue;
    if (!found.has(each.label)) found.set(each.label, { name: each.label, algorithm: each.algorithm, points: [] });
    found.get(each.label).points.push(each);
  }
  return [...found.values()];
}

/** Return the drawing of a chart.
 *
 * kind     "ratio" or "time"
 * data     {points (of the table), candidates (curves), heldout, rules}
 * view     {width, height, limits, selected (a size or null), ink}
 */
export function drawCurves(kind, data, view) {
  const { width, height, limits, ink } = view;
  const inner = [width - MARGIN.left - MARGIN.right, height - MARGIN.top - MARGIN.bottom];
  const range = kind === "ratio" ? ratioRange(data) : timeRange(data);
  const scale = {
    x: (size) => sizePlace(size, limits, MARGIN.left, inner[0]),
    y: (value) => {
      const share = Math.log(value / range[0]) / Math.log(range[1] / range[0]);
      return MARGIN.top + (1 - share) * inner[1];
    },
  };
  const clip = `curves-${kind}`;
  const title = kind === "ratio" ? "Time relative to the default by size" : "Time by size";
  return picture(
    width, height, title,
    svg("defs", {}, svg("clipPath", { id: clip },
      svg("rect", { x: MARGIN.left, y: MARGIN.top, width: inner[0], height: inner[1] }))),
    ...sizeAxis(limits, MARGIN.left, MARGIN.top, inner[0], inner[1], ink),
    ...valueAxis(kind, range, scale, inner[0], ink),
    view.selected && drawMark(scale.x(view.selected), inner[1], ink),
    svg("g", { "clip-path": `url(#${clip})` },
      ...data.candidates.map((curve) => drawCandidate(kind, curve, scale, ink)),
      kind === "ratio" ? drawBands(data, scale, ink) : drawDefault(data, scale, ink),
      ...drawTable(kind, data, scale, ink),
      ...(kind === "ratio" ? drawHeldout(data, scale, ink) : [])),
  );
}

function ratioRange({ points, candidates, heldout }) {
  const known = points.flatMap((point) => (point.gain ? [1 / point.gain, ...bounds(point.interval)] : []));
  const tried = candidates.flatMap((curve) => curve.points.map((one) => 1 / (one.gain ?? 1)));
  const proved = heldout.flatMap((one) => [1 / one.ci95[0], 1 / one.ci95[1]]);
  const low = Math.min(0.9, ...known, ...tried.map((ratio) => Math.max(ratio, TRIED_RANGE[0])), ...proved);
  const high = Math.max(1.15, ...known, ...tried.map((ratio) => Math.min(ratio, TRIED_RANGE[1])), ...proved);
  return [Math.max(low * 0.94, RATIO_RANGE[0]), Math.min(high * 1.06, RATIO_RANGE[1])];
}

function bounds(interval) {
  return interval ? interval.filter((gain) => gain > 0 && Number.isFinite(gain)).map((gain) => 1 / gain) : [];
}

function timeRange({ points, candidates }) {
  const known = points.flatMap((point) => [point.seconds, point.defaultSeconds]);
  const tried = candidates.flatMap((curve) => curve.points.map((one) => one.seconds));
  const times = [...known, ...tried].filter((seconds) => seconds > 0);
  return times.length ? [Math.min(...times) * 0.8, Math.max(...times) * 1.25] : [1e-6, 1e-3];
}

function valueAxis(kind, range, scale, width, ink) {
  const ticks = kind === "ratio" ? ratioTicks(...range) : logTicks(...range);
  return ticks.flatMap((value) => {
    const isOne = kind === "ratio" && value === 1;
    const y = scale.y(value);
    return [
      svg("path", {
        d: `M${MARGIN.left} ${y}h${width}`, stroke: isOne ? ink.text : ink.line, "stroke-width": isOne ? 2 : 1,
      }),
      label(MARGIN.left - 8, y + 4, kind === "ratio" ? formatRatio(value) : formatTime(value), ink.muted, "end"),
    ];
  });
}

function drawMark(x, height, ink) {
  return svg("rect", { x: x - 6, y: MARGIN.top, width: 12, height, fill: ink.muted, "fill-opacity": 0.14 });
}

function drawCandidate(kind, curve, scale, ink) {
  const values = curve.points
    .map((one) => [one.nbytes, kind === "time" ? one.seconds : one.gain ? 1 / one.gain : null])
    .filter(([, value]) => value !== null);
  const colour = ink.colour(curve.algorithm);
  return svg(
    "g", { class: "candidate", "data-name": curve.name, opacity: 0.62 },
    svg("path", { d: line(values, scale), fill: "none", stroke: colour, "stroke-width": 1.2, "stroke-dasharray": dashOf(curve.algorithm).join(" ") }),
    ...values.map(([size, value]) => svg("circle", { cx: scale.x(size), cy: scale.y(value), r: 2.2, fill: colour })),
  );
}

function line(values, scale) {
  return values.map(([size, value], at) => `${at ? "L" : "M"}${scale.x(size).toFixed(1)} ${scale.y(value).toFixed(1)}`).join("");
}

/** Neighbouring points of one rule. */
function runsOf(points) {
  const runs = [];
  for (const point of points) {
    if (runs.length && runs.at(-1)[0].rule === point.rule) runs.at(-1).push(point);
    else runs.push([point]);
  }
  return runs;
}

/** The intervals of the table's gains: a band over the sizes of a rule, a bar where there is one. */
function drawBands({ points }, scale, ink) {
  const known = points.filter((point) => point.interval && bounds(point.interval).length === 2);
  return svg("g", {}, ...runsOf(known).map((run) => {
    const colour = ink.colour(run[0].rule.algorithm);
    const ends = run.map((point) => [point.nbytes, ...bounds(point.interval)]);
    if (ends.length === 1) {
      const [size, low, high] = ends[0];
      return svg("path", {
        d: `M${scale.x(size)} ${scale.y(low)}V${scale.y(high)}`, stroke: colour, "stroke-opacity": 0.4, "stroke-width": 9,
      });
    }
    const upper = line(ends.map(([size, low]) => [size, low]), scale);
    const lower = line(ends.map(([size, , high]) => [size, high]).reverse(), scale).replace("M", "L");
    return svg("path", { d: `${upper}${lower}Z`, fill: colour, "fill-opacity": 0.25 });
  }));
}

function drawDefault({ points }, scale, ink) {
  const values = points.map((point) => [point.nbytes, point.defaultSeconds]).filter(([, value]) => value > 0);
  return svg("path", { d: line(values, scale), fill: "none", stroke: ink.text, "stroke-width": 1.6, "stroke-dasharray": "5 3" });
}

/** What the table chooses: a thick curve, in the colour of each rule's algorithm. */
function drawTable(kind, { points }, scale, ink) {
  const valued = points
    .map((point) => ({ ...point, value: kind === "time" ? point.seconds : point.gain ? 1 / point.gain : null }))
    .filter((point) => point.value > 0);
  return valued.flatMap((point, at) => {
    const next = valued[at + 1];
    const colour = ink.colour(point.rule.algorithm);
    const x = scale.x(point.nbytes);
    const y = scale.y(point.value);
    const parts = [];
    if (next) {
      const isSame = next.rule === point.rule;
      const d = line([[point.nbytes, point.value], [next.nbytes, next.value]], scale);
      parts.push(svg("path", {
        d, stroke: isSame ? colour : ink.muted, "stroke-width": isSame ? 3 : 1.5, "stroke-opacity": isSame ? 1 : 0.7,
        "stroke-dasharray": isSame ? null : "1 3", fill: "none",
      }));
    }
    const isMeasured = point.rule.evidence.basis === "measured";
    parts.push(svg("circle", {
      cx: x, cy: y, r: 4.2, fill: isMeasured ? colour : ink.card, stroke: colour, "stroke-width": 2,
    }));
    return parts;
  });
}

/** Held-out sizes, from which no decision was made: diamonds with their intervals. */
function drawHeldout({ heldout }, scale, ink) {
  return heldout.flatMap((one) => {
    const [x, y] = [scale.x(one.nbytes), scale.y(1 / one.ratio)];
    const colour = ink.colour(one.algorithm.split("(")[0]);
    return [
      svg("path", { d: `M${x} ${scale.y(1 / one.ci95[0])}V${scale.y(1 / one.ci95[1])}`, stroke: colour, "stroke-width": 1.5 }),
      svg("path", { d: `M${x} ${y - 5}l5 5l-5 5l-5 -5z`, fill: ink.card, stroke: colour, "stroke-width": 1.8 }),
    ];
  });
}

/** Return the size among these that is nearest to a place on the axis of a chart. */
export function sizeAtPlace(place, width, limits, sizes) {
  const inner = width - MARGIN.left - MARGIN.right;
  const distance = (size) => Math.abs(sizePlace(size, limits, MARGIN.left, inner) - place);
  return sizes.reduce((best, size) => (best === null || distance(size) < distance(best) ? size : best), null);
}
