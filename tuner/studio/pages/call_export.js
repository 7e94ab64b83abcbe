// What a traced call becomes outside: tables as CSV, the shown part of the timeline as SVG.
import { COMPONENTS } from "./call_model.js";
import { svg } from "./dom.js";
import { csv, svgText } from "./export.js";
import { formatTime } from "./format.js";
import { inkOf } from "./palette.js";
import { FONT, label } from "./svg.js";
import { linearTicks } from "./ticks.js";

const [WIDTH, LEFT, TOP, ROW] = [1200, 90, 60, 22];
const COLOURS = { send: "#3a7fb5", receive: "#c77a13", work: "#2b8c5d", critical: "#b5123a" };
const INK = inkOf(true).text;

/** Return every transfer, one row each; times in seconds. */
export function transfersCsv(model) {
  const { transfers } = model;
  const whole = ["src", "dst", "round", "src_chunk", "dst_chunk", "count", "reduce", "nbytes"];
  const times = ["started", "flowing", "released", "arrived"];
  const seconds = (ticks) => Number(model.seconds(ticks).toPrecision(12));
  const rows = transfers.src.map((_, item) => [
    ...whole.map((name) => transfers[name][item]), ...times.map((name) => seconds(transfers[name][item])), model.onPath[item],
  ]);
  return csv([[...whole, ...times, "on_critical_path"], ...rows]);
}

/** Return one row for each round. */
export function roundsCsv(model) {
  const rows = model.rounds.map((row) => [
    row.number, row.transfers, row.bytes,
    ...[row.begin, row.end, row.longest, row.critical].map((ticks) => model.seconds(ticks)),
  ]);
  const head = ["round", "transfers", "bytes", "first_started", "last_arrived", "longest_transfer", "on_critical_path"];
  return csv([head, ...rows]);
}

/** Return what the timeline shows as the text of an SVG file: ranks from `first` on, at most `count`. */
export function timelineSvg(model, [from, to], first, count, title) {
  const ranks = Array.from({ length: Math.min(count, model.ranks - first) }, (_, at) => first + at);
  const x = (time) => LEFT + (Math.min(Math.max(time, from), to) - from) * ((WIDTH - LEFT - 20) / (to - from));
  const top = (rank) => TOP + (rank - first) * ROW;
  const height = TOP + ranks.length * ROW + 40;
  const lanes = ranks.flatMap((rank) => [
    label(LEFT - 8, top(rank) + 15, `rank ${rank}`, INK, "end"),
    lanePath(model.sends[rank], [from, to], x, top(rank) + 2, 9, COLOURS.send),
    lanePath(model.receives[rank], [from, to], x, top(rank) + 11, 9, COLOURS.receive),
    lanePath(model.work[rank], [from, to], x, top(rank) + 9, 4, COLOURS.work),
  ]);
  const ticks = linearTicks(model.seconds(from), model.seconds(to), 9).map((at) =>
    label(x(at / model.tick), height - 24, at ? formatTime(at) : "0", INK, "middle"));
  return svgText(
    svg("svg", { width: WIDTH, height, viewBox: `0 0 ${WIDTH} ${height}`, "font-family": FONT },
      label(LEFT, 22, title, INK, "start", { "font-size": 16, "font-weight": "bold" }),
      legend(), lanes, criticalPath(model, [from, to], x, top, ranks), ticks),
  );
}

/** Return the bars of a lane as one path; those less than a pixel apart become one. */
function lanePath(lane, [from, to], x, top, high, colour) {
  const [first, last] = lane.between(from, to);
  const runs = [];
  for (let at = first; at < last; at += 1) {
    if (lane.ends[at] < from) continue;
    const [x0, x1] = [x(lane.begins[at]), Math.max(x(lane.ends[at]), x(lane.begins[at]) + 0.5)];
    const before = runs.at(-1);
    if (before && x0 - before[1] < 1) before[1] = Math.max(before[1], x1);
    else runs.push([x0, x1]);
  }
  const path = runs.map(([x0, x1]) => `M${x0.toFixed(1)} ${top}H${x1.toFixed(1)}v${high}H${x0.toFixed(1)}z`);
  return path.length > 0 && svg("path", { fill: colour, d: path.join("") });
}

function criticalPath(model, [from, to], x, top, ranks) {
  const { path } = model;
  const points = [];
  path.begin.forEach((begin, at) => {
    const rank = path.rank[at];
    if (path.end[at] < from || begin > to || rank < ranks[0] || rank > ranks.at(-1)) return;
    const sends = path.transfer[at] >= 0 && model.transfers.src[path.transfer[at]] === rank;
    const y = top(rank) + (sends ? 6 : 15);
    points.push(`${x(begin).toFixed(1)} ${y}`, `${x(path.end[at]).toFixed(1)} ${y}`);
  });
  return points.length > 0 &&
    svg("path", { fill: "none", stroke: COLOURS.critical, "stroke-width": 2, d: `M${points.join("L")}` });
}

function legend() {
  const names = { send: "sending", receive: "receiving", work: "copying, reducing", critical: "critical path" };
  return Object.entries(names).flatMap(([name, words], place) => {
    const left = LEFT + place * 150;
    return [
      svg("rect", { x: left, y: 34, width: 12, height: 12, fill: COLOURS[name] }), label(left + 18, 45, words, INK),
    ];
  });
}

/** Return the components of the critical path with the largest first: [name, seconds, part of all]. */
export function componentParts(record) {
  return COMPONENTS.map((name) => [name, record.components[name], record.components[name] / (record.seconds || 1)])
    .filter(([, seconds]) => seconds > 0)
    .sort((a, b) => b[1] - a[1]);
}
