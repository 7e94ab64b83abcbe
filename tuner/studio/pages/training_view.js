// How the training page shows a prediction besides its charts: figures, legends, tables, notes.
import { h, headRow } from "./dom.js";
import { formatCount, formatRatio, formatSize, formatTime, sentence } from "./format.js";
import { hue } from "./palette.js";
import { swatch } from "./swatch.js";
import { MIN_GAIN, leastOf } from "./training_answer.js";
import { PARTS, algorithmsName, formatThroughput, partColour, variantLook } from "./training_charts.js";
import { formatSetting } from "./training_question.js";

const PHASE_HUES = { forward: 3, backward: 0, update: 5, copy: 8, communication: 1, computation: 0 };
const MIN_HELP = 1.005; // times as fast, below which something helps nothing
const MAX_CALLS = 12; // rows of the table of calls

export function headline(answer) {
  const { detail, outline, limits } = answer;
  const ranks = `${formatCount(detail.ranks)} rank${detail.ranks > 1 ? "s" : ""}`;
  return (
    `${outline.model} on ${ranks} of ${outline.machine}: ${formatThroughput(answer.rate(detail))} ${outline.unit} per second, ` +
    `${(100 * detail.efficiency).toFixed(1)}% of ideal scaling.${limits ? ` ${helpSentence(limits, outline)}` : ""}`
  );
}

/** Say which one thing would help most if it was twice as fast. */
function helpSentence(limits, outline) {
  const [[name, gain] = ["", 1]] = sortedGains(limits);
  if (gain < MIN_HELP) return "No one thing twice as fast would help.";
  return `What would help most is ${outline.limits[name] ?? name} twice as fast: ${formatRatio(gain)}.`;
}

/** Return [name, times as fast] of what would help if it was twice as fast, the most first. */
function sortedGains({ limits }) {
  return Object.entries(limits).sort((a, b) => b[1] - a[1]);
}

/** Return the figures of the ranks in detail; `prices` are {gpuHour, epoch}, the latter in samples. */
export function figures(answer, { gpuHour, epoch }) {
  const { detail, outline } = answer;
  const [parts, rate] = [answer.parts(detail), answer.rate(detail)];
  const share = (seconds) => `${((100 * seconds) / detail.seconds).toFixed(1)}%`;
  const found = [
    figure(`${outline.unit} per second`, formatThroughput(rate), `${formatThroughput(rate / detail.ranks)} each`),
    figure("iteration", formatTime(detail.seconds), `${formatTime(detail.compute)} computation`),
    figure("exposed communication", shortTime(parts.exposed), share(parts.exposed)),
    figure("hidden communication", shortTime(parts.overlapped), share(parts.overlapped)),
    figure("waiting", shortTime(parts.waiting), share(parts.waiting)),
    figure(`cost per million ${outline.unit}`, formatMoney(answer.costOfMillion(detail, gpuHour)),
      `${formatMoney(answer.hourly(detail, gpuHour))} per hour, in the currency of the GPU hour's price`),
  ];
  if (detail.servers) {
    const { servers, busiest, bound, shared_link: link } = detail.servers;
    const limit = link ? `; the link ${link}, which they share, limits them all` : "";
    found.push(figure("parameter servers", formatCount(servers), `server ${busiest} is the busiest, bounded by ${bound}${limit}`));
  }
  if (epoch) {
    const { seconds, cost } = answer.epoch(detail, epoch, gpuHour);
    found.push(figure("epoch", formatDuration(seconds), `costs ${formatMoney(cost)}`));
  }
  return found;
}

function figure(name, value, more) {
  return h("div.figure", {}, h("dt", {}, name), h("dd", {}, value, h("small", {}, more)));
}

export function scalingLegend(answer) {
  return [
    legendItem(hue(0), "predicted", "round"),
    legendItem("var(--muted)", "ideal, dashed"),
    hasPublished(answer) && legendItem(hue(1), "published"),
    h("li.muted", {}, "Choose a number of ranks in a chart."),
  ];
}

export function partsLegend() {
  return PARTS.toReversed().map((part) => legendItem(partColour(part), part[1]));
}

/** Return the algorithms that were tried; `setting` is the one that was varied, if any. */
export function variantsLegend(answer, setting) {
  return [...answer.variantsByAlgorithms].map(([name, own]) => {
    const least = leastOf(own);
    const at = setting ? ` at ${formatSetting(setting, least.settings[setting.name])}` : "";
    return legendItem(hue(variantLook(answer, name)[0]), `${algorithmsName(name)}: ${formatTime(least.seconds)}${at}`, "round");
  });
}

/** Return the phases of the bars of a timeline. */
export function phasesLegend(phases) {
  return [
    ...phases.map((phase) => legendItem(phaseColour(phase), phase === "communication" ? "collective calls" : phase)),
    h("li.muted", {}, "Drag to move, + and − zoom, Ctrl and wheel, too."),
  ];
}

export function phaseColour(phase) {
  return phase in PHASE_HUES ? hue(PHASE_HUES[phase]) : partColour(PARTS.at(-1));
}

function legendItem(colour, text, shape = "") {
  return h("li", {}, swatch(colour, shape), text);
}

/** Say which of the settings and algorithms that were tried is the fastest, with a button that takes it. */
export function bestParts(answer, setting, onApply) {
  const { bestVariant: best, detail, outline } = answer;
  if (!best) return [outline.detail === 1 ? "One rank alone exchanges nothing." : "Being predicted …"];
  const gain = detail.seconds / best.seconds;
  if (gain < MIN_GAIN) return ["Nothing that was tried is faster than the settings as they are."];
  const chosen = outline.setting
    ? `${outline.setting.replaceAll("_", " ")} ${formatSetting(setting, best.settings[outline.setting])} and `
    : "";
  return [
    `${answer.ended ? "The fastest is" : "So far the fastest is"} ${chosen}${algorithmsName(best.algorithms)}: ` +
      `${formatTime(best.seconds)}, ${gain.toFixed(3)} times as fast as now. `,
    h("button.plain.use", { type: "button", click: () => onApply(best) }, "Use it"),
  ];
}

export function barSentence(bar) {
  const call = bar.nbytes ? `, ${formatSize(bar.nbytes)}${bar.count > 1 ? ` × ${bar.count}` : ""}, ${bar.algorithm}` : "";
  return `${bar.name} (${bar.phase})${call}: ${formatTime(bar.seconds)}, from ${bar.start ? formatTime(bar.start) : "0"} on`;
}

/** Return what twice of one thing would gain. */
export function helpParts({ limits, outline }) {
  const rows = (limits ? sortedGains(limits) : []).map(([name, gain]) => {
    const title = outline.limits[name] ?? name;
    return h("tr", {}, h("th", { scope: "row" }, title),
      h("td", {}, h("meter", { min: 1, max: 2, value: Math.min(2, gain), "aria-label": title })),
      h("td.number", {}, gain < MIN_HELP ? "no faster" : formatRatio(gain)));
  });
  return [
    h("h2", {}, "What would help"),
    h("p", {}, limits ? `Scaling is limited by ${limits.limit}. Times as fast with one thing twice as fast:` : "Being predicted …"),
    h("table.help", {}, h("tbody", {}, rows)),
  ];
}

/** Return a table of the calls of an iteration, those that take longest first. */
export function callsTable({ detail, outline }) {
  if (!detail.calls.length) {
    return h("p.muted", {}, outline.detail === 1
      ? "One rank alone makes no calls: take more nodes."
      : "This framework makes no collective calls.");
  }
  const alike = new Map();
  for (const call of detail.calls) {
    const cells = [call.operation, formatSize(call.nbytes), String(call.group.size), call.algorithm.replace(" via schedule", "")];
    const own = alike.get(cells.join()) ?? { cells, count: 0, seconds: 0 };
    own.count += call.count;
    own.seconds += call.count * call.seconds;
    alike.set(cells.join(), own);
  }
  const rows = [...alike.values()].sort((a, b) => b.seconds - a.seconds).slice(0, MAX_CALLS);
  return h("table", {}, headRow(["call", "size", "ranks", "algorithm", "count", "all"]), h("tbody", {}, rows.map((row) =>
    h("tr", {}, row.cells.map((cell) => h("td", {}, cell)),
      h("td.number", {}, String(row.count)), h("td.number", {}, formatTime(row.seconds))))));
}

/** The predictions, a row for each number of ranks; `onChoose` gets the one that is chosen. */
export class RanksTable {
  constructor(onChoose) {
    this.onChoose = onChoose;
    this.element = h("div.scroll", { tabindex: 0, role: "region", "aria-label": "Prediction by ranks" });
  }

  draw(answer, prices) {
    const { unit } = answer.outline;
    const heads = [
      "ranks", "nodes", "iteration", "exposed", "waiting", `${unit}/s`, "efficiency",
      ...(hasPublished(answer) ? ["published"] : []), `cost per million ${unit}`, ...(prices.epoch ? ["epoch"] : []),
    ];
    const rows = answer.curve.map((point) => this.#row(answer, point, prices));
    const focused = document.activeElement?.closest?.("tr");
    const place = focused && this.element.contains(focused) ? focused.rowIndex - 1 : -1;
    this.element.replaceChildren(h("table", {}, headRow(heads), h("tbody", {}, rows)));
    if (place >= 0) rows[place]?.querySelector("button").focus();
  }

  #row(answer, point, { gpuHour, epoch }) {
    const number = (text) => h("td.number", {}, text);
    const choose = { type: "button", click: () => this.onChoose(point.ranks) };
    const parts = answer.parts(point);
    return h("tr", { "aria-current": point.ranks === answer.outline.detail ? "true" : null },
      h("th", { scope: "row" }, h("button.plain", choose, formatCount(point.ranks))),
      number(String(point.nodes)), number(formatTime(point.seconds)),
      number(shortTime(parts.exposed)), number(shortTime(parts.waiting)),
      number(formatThroughput(answer.rate(point))), number(formatPercentage(point.efficiency)),
      hasPublished(answer) && number(point.published ? formatPercentage(point.published.efficiency) : ""),
      number(formatMoney(answer.costOfMillion(point, gpuHour))),
      epoch ? number(formatDuration(answer.epoch(point, epoch, gpuHour).seconds)) : null);
  }
}

/** Return what is to be known about a prediction: cautions, what is missing, sources, how exact it is. */
export function noteParts(answer) {
  const { outline, problems, skipped } = answer;
  const alone = outline.rate_alone;
  const sources = new Set(answer.curve.filter((point) => point.published).map((point) => point.published.source));
  const ofRanks = problems.filter((one) => one.kind === "point").map((one) => `${one.ranks}: ${one.problem}`);
  const others = problems.filter((one) => one.kind !== "point").map((one) => one.problem);
  const omitted = answer.timeline?.omitted ?? 0;
  return [
    ...outline.cautions.map((text) => h("p.caution", {}, sentence(text))),
    folded(`${ofRanks.length} numbers of ranks cannot be predicted`, ofRanks),
    folded(`${others.length} variants or limits cannot be predicted`, [...new Set(others)]),
    answer.ended && folded(`${skipped.length} predictions are left out here, as they would take long`, skipped),
    omitted > 0 && h("p", {}, `The timeline leaves out ${formatCount(omitted)} bars at its end; the Chrome trace has all.`),
    ...[...sources].map((source) => h("p", {}, `Published: ${source}.`)),
    h("p", {}, `One rank alone: ${formatThroughput(alone.samples_per_second * outline.per_sample)} ${outline.unit} per second ` +
      `(${alone.certainty}: ${alone.source}); ${formatCount(outline.parameters)} parameters, ${outline.precision}.`),
    h("p", {}, sentence(outline.accuracy)),
  ];
}

function folded(title, items) {
  return items.length > 0 &&
    h("details", {}, h("summary", {}, title), items.map((text) => h("p", {}, sentence(text))));
}

function hasPublished(answer) {
  return answer.curve.some((point) => point.published);
}

function formatPercentage(share) {
  return `${(100 * share).toFixed(1)}%`;
}

/** Return a time, 0 where nothing but rounding is left of it. */
function shortTime(seconds) {
  return seconds > 1e-9 ? formatTime(seconds) : "0";
}

function formatMoney(amount) {
  return amount >= 100 ? formatCount(Math.round(amount)) : String(Number(amount.toPrecision(3)));
}

function formatDuration(seconds) {
  for (const [unit, length] of /** @type {[string, number][]} */ ([["d", 86400], ["h", 3600], ["min", 60]])) {
    if (seconds >= 2 * length) return `${Number((seconds / length).toPrecision(3))}${unit}`;
  }
  return formatTime(seconds);
}
