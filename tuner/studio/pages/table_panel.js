// The evidence for one rule, and what is known at each size of its call.
import { h, headRow } from "./dom.js";
import { formatRange, formatRatio, formatSize, formatTime, plural } from "./format.js";
import { algorithmSwatch } from "./swatch.js";
import { BASES, DEFAULT } from "./table_model.js";

const MAX_OTHERS = 3; // candidates that are named at one size

export function formatInterval(interval) {
  if (!interval) return "";
  const [low, high] = interval.map((gain) => (gain === null ? "∞" : gain.toFixed(2)));
  return `${low} to ${high}`;
}

/** Return the contents of the panel about a rule.
 *
 * told     {why, points, heldout, validations} as far as they have arrived; why is null before that
 */
export function rulePanel(row, rule, told) {
  const { evidence } = rule;
  const isDefault = rule.algorithm === DEFAULT;
  const own = told.points.filter((point) => point.rule === rule);
  return [
    h("p.region-call", {}, `${row.collective} on ${row.nodes} × ${row.ppn} ranks, ${formatRange(rule.start, rule.stop)}`),
    h("p.choice", {}, algorithmSwatch(rule.algorithm), isDefault ? "the library's default" : rule.name,
      h(`span.basis.${evidence.basis}`, {}, BASES[evidence.basis] ?? evidence.basis)),
    !isDefault && evidence.nbytes.length > 0 && h("p.gain", {},
      h("strong", {}, formatRatio(evidence.gain)), " as fast as the default"),
    h("p", {}, h("strong", {}, isDefault ? "Why the default stays: " : "Why: "), told.why ?? "…"),
    own.length > 0 && h("div.scroll", { tabindex: 0, role: "region", "aria-label": "Evidence by size" }, evidenceTable(rule, own)),
    own.length > 0 && h("p.muted", {}, sampleSentence(own, told)),
    ...told.validations.map(validationLine),
  ].filter(Boolean);
}

function evidenceTable(rule, points) {
  const isDefault = rule.algorithm === DEFAULT;
  const hasSimulated = points.some((point) => point.simulated > 0);
  const heads = ["size", "default", !isDefault && "chosen", !isDefault && "gain", hasSimulated && "simulated"];
  const rows = points.map((point) =>
    h("tr", {},
      h("th.number", { scope: "row" }, formatSize(point.nbytes)),
      h("td.number", {}, time(point.defaultSeconds)),
      !isDefault && h("td.number", {}, time(point.seconds)),
      !isDefault && h("td.number", {}, point.gain ? formatRatio(point.gain) : ""),
      hasSimulated && h("td.number", {}, time(point.simulated))));
  return h("table", {}, headRow(heads), h("tbody", {}, rows));
}

function time(seconds) {
  return seconds > 0 ? formatTime(seconds) : "";
}

function sampleSentence(points, told) {
  const known = points.filter((point) => point.samples);
  if (told.isAccepted) return "Timed in a C program when the rule was accepted.";
  if (!known.length) return told.hasProbe ? "No samples of this choice at these sizes." : "The service does not have the probe of this version, so samples and intervals by size are not known.";
  const samples = known.reduce((sum, point) => sum + point.samples, 0);
  const launches = Math.max(...known.map((point) => point.launches));
  return `${plural(samples, "sample")} of the choice at ${plural(known.length, "size")}, in ${launches === 1 ? "1 launch" : `up to ${launches} launches`}.`;
}

function validationLine({ nbytes, executed, expected, confirmed, reason }) {
  return confirmed
    ? h("p.sure", {}, `Validated: at ${formatSize(nbytes)} the library executed ${executed || expected}.`)
    : h("p.caution", {}, `Not confirmed at ${formatSize(nbytes)}: ${reason || `the library executed ${executed}`}.`);
}

/** Return the validations of a rule. */
export function validationsOf(row, rule, validations) {
  return validations.filter(
    (one) => one.collective === row.collective && one.p === row.nodes * row.ppn &&
      rule.start <= one.nbytes && one.nbytes < rule.stop,
  );
}

/** Return the table of what is known at every size of a row. */
export function sizesTable(points, candidates, selected, onSelect) {
  const sizes = [...new Set([...points.map((one) => one.nbytes), ...candidates.map((one) => one.nbytes)])].sort((a, b) => a - b);
  const hasSamples = points.some((point) => point.samples);
  const rows = sizes.map((nbytes) => {
    const point = points.find((one) => one.nbytes === nbytes);
    const tried = candidates.filter((one) => one.nbytes === nbytes);
    const others = tried.filter((one) => one.label !== point?.rule.name && one.algorithm !== DEFAULT);
    return h("tr", { "aria-current": nbytes === selected ? "true" : null },
      h("th", { scope: "row" }, h("button.plain", { type: "button", click: () => onSelect(nbytes) }, formatSize(nbytes))),
      h("td", {}, point && [algorithmSwatch(point.rule.algorithm), point.rule.name]),
      h("td.number", {}, time(point?.seconds)),
      h("td.number", {}, time(point?.defaultSeconds ?? tried.find((one) => one.algorithm === DEFAULT)?.seconds)),
      h("td.number", {}, gainCell(point?.rule.algorithm === DEFAULT ? null : point?.gain, point?.interval)),
      hasSamples && h("td.number", {}, point?.samples ? `${point.samples} in ${point.launches}` : ""),
      h("td", {}, othersText(others)));
  });
  const heads = ["size", "the table's choice", "time", "default", "times as fast (95 %)", hasSamples && "samples in launches", "also measured, times as fast as the default"];
  return h("table.sizes-table.tried", {}, headRow(heads), h("tbody", {}, rows));
}

export function gainCell(gain, interval) {
  return gain ? [formatRatio(gain), interval && h("small", {}, ` ${formatInterval(interval)}`)] : null;
}

/** Return the best of what else was measured, and how many more there are. */
function othersText(others) {
  const best = [...others].sort((a, b) => (b.gain ?? 0) - (a.gain ?? 0));
  const named = best.slice(0, MAX_OTHERS).map(({ label, gain }) => `${label}${gain === null ? "" : ` ${formatRatio(gain)}`}`);
  const rest = best.length - named.length;
  return named.join(", ") + (rest > 0 ? `, and ${rest} more` : "");
}
