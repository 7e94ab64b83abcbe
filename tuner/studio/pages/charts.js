// The two charts of the what-if page: time relative to the incumbent, and time, over the size.
import uPlot from "./vendor/uPlot.esm.js";
import { formatRatio, formatSize, formatTime } from "./format.js";
import { colourOf, css, dashOf } from "./palette.js";
import { ratioTicks } from "./ticks.js";

const RATIO_RANGE = [0.1, 4]; // beyond it a curve leaves the chart
const HEIGHT = { ratio: 320, time: 300 };

function sizeTicks(sizes, width) {
  const every = Math.max(1, Math.ceil((sizes.length * 58) / Math.max(width - 80, 1)));
  return sizes.map((_, at) => at).filter((at) => at % every === 0);
}

/** Keep the powers of ten; uPlot draws neither grid nor text where a tick is null. */
function decades(_, ticks) {
  return ticks.map((tick) => (Math.abs(Math.log10(tick) % 1) < 1e-6 ? tick : null));
}

/** Return the rows of a chart: {label, colour, dash, width, values} for each curve. */
export function chartRows(answer, kind, view) {
  const colour = (name) => answer.colourOf?.(name) ?? colourOf(name); // curves may be no algorithms
  const dash = (name) => answer.dashOf?.(name) ?? dashOf(name);
  const winners = new Set(answer.winners);
  const names = [...answer.curves.keys()].filter((name) => !view.hidden.has(name));
  names.sort((a, b) => rank(a) - rank(b));
  function rank(name) {
    return name === view.focus ? 2 : winners.has(name) ? 1 : 0;
  }
  return names.map((name) => {
    const strong = rank(name) > 0;
    const values = answer.curves.get(name).map((call, at) => {
      if (!call) return null;
      if (kind === "time") return call.seconds;
      const base = answer.incumbentSeconds(view.incumbent, at);
      return base ? call.seconds / base : null;
    });
    return {
      label: name,
      values,
      colour: strong ? colour(name) : css("--faint"),
      dash: strong ? dash(name) : [],
      width: name === view.focus ? 3.5 : strong ? 2 : 1,
    };
  });
}

/**
 * Return the range of the ratio axis: what the fastest curves need, at most RATIO_RANGE.
 *
 * @returns {[number, number]}
 */
export function ratioRange(answer, view) {
  let [low, high] = [0.9, 1.2];
  for (const name of answer.winners) {
    answer.curves.get(name).forEach((call, at) => {
      const base = answer.incumbentSeconds(view.incumbent, at);
      if (!call || !base) return;
      low = Math.min(low, call.seconds / base);
      high = Math.max(high, call.seconds / base);
    });
  }
  return [Math.max(low * 0.92, RATIO_RANGE[0]), Math.min(high * 1.08, RATIO_RANGE[1])];
}

/** Return whether a curve has times above the range of the ratio axis. */
export function leavesChart(answer, view) {
  const [, high] = ratioRange(answer, view);
  return chartRows(answer, "ratio", view).some(({ values }) => values.some((value) => value > high));
}

/** A chart that is drawn anew for every answer and follows the width of its place. */
export class Chart {
  onHover;

  constructor(place, kind, onSelect) {
    this.place = place;
    this.kind = kind;
    this.onSelect = onSelect;
    this.plot = null;
    new ResizeObserver(() => {
      if (this.plot) this.draw(this.answer, this.view);
    }).observe(place);
  }

  draw(answer, view) {
    this.answer = answer;
    this.view = view;
    const rows = chartRows(answer, this.kind, view);
    const data = [answer.sizes.map((_, at) => at), ...rows.map((row) => row.values)];
    const width = Math.max(260, this.place.clientWidth);
    const shape = JSON.stringify([
      width, answer.sizes, view.selected, ratioRange(answer, view),
      rows.map((row) => [row.label, row.colour, row.width]),
    ]);
    if (shape === this.shape) {
      this.plot.setData(data);
      return;
    }
    this.shape = shape;
    this.plot?.destroy();
    this.plot = new uPlot(this.#options(answer, rows, width, view), data, this.place);
  }

  /** @returns {uPlot.Options} */
  #options(answer, rows, width, view) {
    const axis = {
      stroke: css("--muted"),
      grid: { stroke: css("--line"), width: 1 },
      ticks: { stroke: css("--line"), width: 1 },
      font: "12px system-ui, sans-serif",
    };
    const ratio = this.kind === "ratio";
    const range = ratioRange(answer, view);
    return {
      width,
      height: HEIGHT[this.kind],
      padding: [8, 28, 0, 0], // so that the last size is not cut off
      legend: { show: false },
      cursor: { x: true, y: false, points: { size: 7 }, drag: { x: false, y: false } },
      scales: {
        x: { time: false, range: () => [-0.4, answer.sizes.length - 0.6] },
        y: ratio ? { distr: 3, log: 2, range: () => range } : { distr: 3, log: 10 },
      },
      axes: [
        {
          ...axis,
          splits: () => sizeTicks(answer.sizes, width),
          values: (_, ticks) => ticks.map((at) => formatSize(answer.sizes[at])),
        },
        {
          ...axis,
          size: 64,
          ...(ratio
            ? {
                splits: () => ratioTicks(...range),
                filter: (_, ticks) => ticks,
                values: (_, ticks) => ticks.map(formatRatio),
              }
            : {
                filter: decades,
                grid: { ...axis.grid, filter: decades },
                ticks: { ...axis.ticks, filter: decades },
                values: (_, ticks) => ticks.map((tick) => (tick ? formatTime(tick) : "")),
              }),
        },
      ],
      series: [
        {},
        ...rows.map((row) => ({
          label: row.label,
          stroke: row.colour,
          width: row.width,
          dash: row.dash,
          points: { show: false },
          spanGaps: false,
        })),
      ],
      hooks: {
        drawClear: [(plot) => this.#drawMarks(plot, view, ratio)],
        ready: [(plot) => plot.over.addEventListener("click", () => {
          if (plot.cursor.idx != null) this.onSelect(plot.cursor.idx);
        })],
        setCursor: [(plot) => this.onHover?.(plot.cursor.idx ?? null)],
      },
    };
  }

  /** Draw the selected size, and on the chart of ratios the incumbent's line. */
  #drawMarks(plot, view, ratio) {
    const { ctx, bbox } = plot;
    ctx.save();
    const x = plot.valToPos(view.selected, "x", true);
    ctx.fillStyle = css("--mark");
    ctx.fillRect(x - 6, bbox.top, 12, bbox.height);
    if (ratio) {
      const y = plot.valToPos(1, "y", true);
      ctx.strokeStyle = css("--text");
      ctx.lineWidth = 2 * devicePixelRatio;
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
    }
    ctx.restore();
  }
}
