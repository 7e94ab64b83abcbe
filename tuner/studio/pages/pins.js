// Machines that are pinned, so that they are compared with the one of the controls.
import { Chart } from "./charts.js";
import { focusedElement, h } from "./dom.js";
import { AXIS_LABELS } from "./controls.js";
import { formatPercent, formatRatio, formatSize, formatTime } from "./format.js";
import { isDark } from "./palette.js";
import { swatch } from "./swatch.js";

const HERE = "this machine";
const LIGHT = ["#1d1f24", "#b4451f", "#1b6ca8", "#2e7d32", "#8e3b9e"];
const DARK = ["#eceef2", "#ff9d73", "#7fc1f5", "#7fd483", "#dd9aee"];

/** Return for each question what distinguishes its machine from those of the others. */
export function machineLabels(questions, titles) {
  const machines = questions.map(({ topology, axes }) => ({ ...axes, topology: titles.get(topology) ?? topology }));
  const names = [...new Set(machines.flatMap((one) => Object.keys(one)))].filter(
    (name) => new Set(machines.map((one) => one[name])).size > 1);
  return machines.map((one) => names.map((name) => part(name, one[name])).join(", ") || "the same machine");
}

function part(name, value) {
  if (name === "topology") return value;
  if (value === undefined) return `${AXIS_LABELS[name]} as built`;
  return typeof value === "number" ? `${AXIS_LABELS[name]}: ${value}` : `${value} ${AXIS_LABELS[name]}`;
}

/** Say from which difference on the times of two machines tell something. */
function errorSentence({ median_errors: errors }, { predictedBy }) {
  const error = errors[predictedBy];
  return error === undefined
    ? "Predictions of this kind were not compared with measurements on this machine: small differences are not significant."
    : `Predictions of this kind were off by ${formatPercent(error)} in the median: smaller differences are not significant.`;
}

/**
 * The fastest times of several machines, in the form of an answer that a chart draws.
 *
 * An answer that still grows has none: its fastest so far may be far from the fastest.
 */
class Comparison {
  constructor(sizes, machines) {
    this.sizes = sizes;
    this.curves = new Map(
      machines.map(({ label, answer }) => [label, sizes.map((_, at) => (answer?.ended && answer.best(at)) || null)]),
    );
    this.labels = machines.map(({ label }) => label);
    this.winners = this.labels;
  }

  incumbentSeconds(_, at) {
    return this.curves.get(HERE)[at]?.seconds ?? null;
  }

  colourOf(label) {
    return (isDark() ? DARK : LIGHT)[this.labels.indexOf(label)];
  }

  dashOf(label) {
    return [[], [8, 3], [3, 3], [10, 3, 2, 3], [1, 3]][this.labels.indexOf(label)];
  }
}

/** The card of the pinned machines. `onShow` and `onRemove` are called with the number of a pin. */
export class Pins {
  constructor(onSelect, onShow, onRemove) {
    this.onShow = onShow;
    this.onRemove = onRemove;
    const place = h("div.chart");
    this.list = h("div.scroll", { tabindex: 0, role: "region", "aria-label": "Pinned machines" });
    this.element = h(
      "section.card", { hidden: true },
      h("h2", {}, "Pinned machines: their fastest time relative to this machine's"), place, this.list,
    );
    this.chart = new Chart(place, "ratio", onSelect);
  }

  /** Draw `pins`, each {label, answer, problem}, beside the answer of the controls. */
  draw(here, pins, selected) {
    this.element.hidden = pins.length === 0;
    if (!pins.length) return;
    const machines = [{ label: HERE, answer: here }, ...pins.map((pin, n) => ({ ...pin, label: `${n + 1}: ${pin.label}` }))];
    const compared = new Comparison(here.sizes, machines);
    this.chart.draw(compared, { incumbent: HERE, hidden: new Set(), focus: null, selected });
    const focused = focusedElement()?.dataset.pin;
    this.list.replaceChildren(
      h("table.pins", {},
        h("thead", {}, h("tr", {}, ["machine", "fastest", `time at ${formatSize(here.sizes[selected])}`, "relative", ""].map(
          (text) => (text ? h("th", { scope: "col" }, text) : h("td"))))),
        h("tbody", {}, machines.map((machine, n) => this.#row(compared, machine, selected, n)))),
      h("p.muted", {}, errorSentence(here.outline, here.best(selected))),
    );
    if (focused) this.list.querySelector(`[data-pin="${focused}"]`)?.focus();
  }

  #row(compared, { label, problem }, at, n) {
    const call = compared.curves.get(label)[at];
    const base = compared.incumbentSeconds(HERE, at);
    const button = (text, action, name) =>
      h("button.plain", { type: "button", "data-pin": `${name}${n}`, "aria-label": `${text} ${label}`, click: () => action(n - 1) }, text);
    return h("tr", {},
      h("th", { scope: "row" }, swatch(compared.colourOf(label)), label),
      h("td", {}, problem ?? call?.candidate ?? "…"),
      h("td.number", {}, call ? formatTime(call.seconds) : "…"),
      h("td.number", {}, call && base ? formatRatio(call.seconds / base) : "…"),
      h("td.number", {}, n > 0 && [button("Show", this.onShow, "show"), button("Unpin", this.onRemove, "unpin")]));
  }
}
