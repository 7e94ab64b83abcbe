// What a version of a table changed since another one.
import { h, headRow } from "./dom.js";
import { formatRange, humanize, plural } from "./format.js";
import { algorithmSwatch } from "./swatch.js";
import { choiceName, shapeOf } from "./table_model.js";
import { gainCell } from "./table_panel.js";

const MAX_UNSCROLLED = 8; // rows of a list that is shown whole

/** Return the changes of a diff, the largest difference first. */
export function changesOfDiff(diff) {
  const choice = (chosen) => ({ algorithm: chosen.algorithm, name: choiceName(chosen) });
  const weight = ({ gain }) => Math.abs(Math.log(gain ?? 1));
  return diff.changes
    .map((one) => ({
      ...one, ...rangeOf(one), before: choice(one.before), after: choice(one.after), interval: one.gain_ci95,
    }))
    .sort((a, b) => weight(b) - weight(a));
}

/** Return the gain of a change in a row of the map, with its interval; null where it is not known. */
export function gainOfChange(changes, row, { start, after }) {
  const found = changes.filter(
    (one) => one.collective === row.collective && one.nodes === row.nodes && one.ppn === row.ppn &&
      one.memory === row.memory && one.start === start && one.after.name === after.name,
  );
  const { gain, interval } = found.find((one) => one.operators === row.operators) ?? found[0] ?? {};
  return gain ? { gain, interval } : null;
}

/** Return the section about the changes; `onShow` gets the part of the page's state that shows one. */
export function changesParts({ diff, changes, before, view }, onShow) {
  const inView = (one) => !view.collective || one.collective === view.collective;
  const shown = changes.filter(inView);
  const anew = diff.evidence_changes.filter(inView);
  const others = anew.filter((one) => one.basis !== one.basis_before);
  const show = (change) => onShow(stateOfChange(change));
  return [
    h("h2", {}, `What changed since version ${before.version}`),
    h("p", {}, changesSentence(diff, changes, shown, view)),
    shown.length > 0 && scrolled("Changes", shown, changesTable(shown, show)),
    others.length > 0 && h("h3.bases", {}, "Decided alike on another basis"),
    others.length > 0 && scrolled("Other bases", others, basesTable(others, show)),
    anew.length > others.length &&
      h("p.muted", {}, `${plural(anew.length - others.length, "range")} decided alike on other times.`),
  ];
}

function changesSentence({ calls, calls_kept: kept, gain }, changes, shown, view) {
  if (!changes.length) return `Both versions decide alike, for all of ${plural(calls, "call")}.`;
  const part = shown.length < changes.length ? `, ${shown.length} of them of ${view.collective}` : "";
  return [
    `${calls - kept} of ${plural(calls, "call")} decided otherwise at some size, in ${plural(changes.length, "range")}${part}.`,
    gain && `Where both versions have evidence, calls become ${gain.toFixed(2)} times as fast.`,
    "The largest difference comes first.",
  ].filter(Boolean).join(" ");
}

/** Return the part of the page's state that shows the call of a change. */
function stateOfChange(change) {
  return {
    call: `${change.collective}/${shapeOf(change)}`, at: change.start_bytes, collective: "",
    operators: change.operators === "any" ? "" : change.operators,
    memory: change.memory, placement: change.placement ?? "",
  };
}

function scrolled(name, changes, table) {
  return h(`div.scroll${changes.length > MAX_UNSCROLLED ? ".tall" : ""}`,
    { tabindex: 0, role: "region", "aria-label": name }, table);
}

function changesTable(changes, onShow) {
  const hasKinds = changes.some((change) => kindOf(change));
  const rows = changes.map((change) =>
    h("tr", {},
      callCell(change, onShow),
      hasKinds && h("td", {}, kindOf(change)),
      h("td", {}, formatRange(change.start, change.stop)),
      h("td", {}, algorithmSwatch(change.before.algorithm), change.before.name),
      h("td", {}, algorithmSwatch(change.after.algorithm), change.after.name),
      h("td.number", {}, gainCell(change.gain, change.interval)),
      h("td", {}, change.gain === null ? "no size here speaks for both choices" : humanize(change.why))));
  const heads = ["call", hasKinds && "kind", "sizes", "before", "now", "gain (95 %)", "why"];
  return h("table.changes", {}, headRow(heads), h("tbody", {}, rows));
}

/** Return the table of ranges that two versions decide alike, on another basis. */
function basesTable(changes, onShow) {
  const rows = changes.map((change) => {
    const { start, stop } = rangeOf(change);
    return h("tr", {},
      callCell(change, onShow),
      h("td", {}, formatRange(start, stop)),
      h("td", {}, algorithmSwatch(change.choice.algorithm), choiceName(change.choice)),
      h("td", {}, humanize(change.why)));
  });
  return h("table.changes", {}, headRow(["call", "sizes", "choice", "why"]), h("tbody", {}, rows));
}

function callCell(change, onShow) {
  return h("th", { scope: "row" },
    h("button.plain", { type: "button", click: () => onShow(change) }, `${change.collective} ${change.nodes}×${change.ppn}`));
}

function rangeOf({ start_bytes: start, stop_bytes: stop }) {
  return { start, stop: stop === "inf" ? Infinity : stop };
}

/** Return what distinguishes a call from the usual: its operators, its memory, its placement. */
function kindOf({ operators, memory, placement = "consecutive" }) {
  const usual = ["any", "host", "consecutive"];
  return [operators, memory, placement].filter((word) => !usual.includes(word)).join(", ");
}
