// The bound on the regret over the time that a probe has taken.
import { h, svg } from "./dom.js";
import { formatPercent, formatTime } from "./format.js";
import { logTicks } from "./ticks.js";

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [640, 240, 62, 20, 12, 30];
const MAX_TICKS = 6;

/** Return the chart of bounds {seconds, expected, upper}, with the target as a line, and its legend. */
export function boundChart(bounds, target) {
  const last = bounds.at(-1);
  const scale = scalesOf(bounds, target);
  const chart = svg(
    "svg",
    { class: "plot bound", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": "Bound on the mean regret over the time spent" },
    ticks(scale),
    svg("path", { class: "target", d: `M${LEFT} ${scale.y(target)}H${WIDTH - RIGHT}` }),
    curve(bounds, "expected", scale),
    curve(bounds, "upper", scale),
  );
  const entry = (kind, text) =>
    h("li", {}, svg("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" },
      svg("g", { class: kind }, svg("path", { d: "M0 5H26" }))), text);
  const legend = h(
    "ul.report-legend",
    {},
    entry("curve bound-upper", `with 95% certainty below ${formatPercent(last.upper)}`),
    entry("curve bound-expected", `expected ${formatPercent(last.expected)}`),
    entry("curve a-default", `target ${formatPercent(target)}`),
  );
  return [chart, legend];
}

function scalesOf(bounds, target) {
  const values = bounds.flatMap(({ expected, upper }) => [expected, upper]).concat(target);
  const low = Math.max(Math.min(...values.filter((value) => value > 0)) / 1.4, 1e-4);
  const high = Math.max(...values) * 1.4;
  const end = bounds.at(-1).seconds * 1.02;
  return {
    low,
    high,
    end,
    x: (seconds) => LEFT + (seconds / end) * (WIDTH - LEFT - RIGHT),
    y: (share) =>
      TOP + (Math.log(high / Math.max(share, low)) / Math.log(high / low)) * (HEIGHT - TOP - BOTTOM),
  };
}

function ticks({ low, high, end, x, y }) {
  const text = (at, height, content, anchor) =>
    svg("text", { class: "tick", x: at, y: height, "text-anchor": anchor }, content);
  const inside = logTicks(low, high);
  const every = Math.ceil(inside.length / MAX_TICKS);
  return [
    ...inside.filter((_, at) => at % every === 0).flatMap((tick) => [
      svg("path", { class: "grid", d: `M${LEFT} ${y(tick)}H${WIDTH - RIGHT}` }),
      text(LEFT - 6, y(tick) + 4, formatPercent(tick), "end"),
    ]),
    text(LEFT, HEIGHT - 8, "0", "middle"),
    ...[0.25, 0.5, 0.75, 1].map((share) =>
      text(x(share * end), HEIGHT - 8, formatTime(Math.max(1, Math.round(share * end))), "middle")),
  ];
}

function curve(bounds, name, { x, y }) {
  const points = bounds.map((one) => [x(one.seconds), y(one[name])]);
  return svg(
    "g",
    { class: `curve bound-${name}` },
    svg("path", { d: `M${points.map((point) => point.join(" ")).join("L")}` }),
    points.map(([cx, cy], at) =>
      svg("circle", { cx, cy, r: 2.6 },
        svg("title", {}, `${formatTime(bounds[at].seconds)}: ${formatPercent(bounds[at][name])}`))),
  );
}
