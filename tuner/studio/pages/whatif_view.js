// How the what-if page shows an answer besides its charts: bars, legend, table, what would help, notes.
import { FASTEST } from "./answer.js";
import { callUrl } from "./call_question.js";
import { h, headRow } from "./dom.js";
import { formatRatio, formatSize, formatTime, sentence } from "./format.js";
import { colourOf } from "./palette.js";
import { algorithmSwatch, swatch } from "./swatch.js";
import { callSentence, gainText, incumbentName, modelOf, withLabels } from "./whatif_texts.js";

/** Return two bars over the sizes: the fastest algorithm, and what limits it. */
export function stripBars(answer, onSelect) {
  return [
    bar("Fastest", answer, (at) => answer.best(at).algorithm, colourOf, onSelect),
    bar("Limit", answer, (at) => answer.limit(at), () => null, onSelect),
  ];
}

function bar(title, answer, of, colour, onSelect) {
  const runs = answer.runs(of).map((run) => {
    const sizes = answer.sizeRange(run, formatSize);
    const name = run.value || "…";
    const element = h("button.run",
      { type: "button", title: `${name}: ${sizes}`, click: () => onSelect(run.from) },
      h("span", {}, name), h("small", {}, sizes));
    element.style.flexGrow = run.to - run.from + 1;
    if (colour(run.value)) element.style.borderTopColor = colour(run.value);
    return element;
  });
  return h("div.bar", {}, h("span.bar-title", {}, title), h("div.runs", {}, runs));
}

/** The algorithms, each with a box that takes it in. `onFocus` gets the one that is pointed at, or null. */
export class Legend {
  constructor(onFocus, onToggle) {
    this.onFocus = onFocus;
    this.onToggle = onToggle;
    this.element = h("ul.legend");
  }

  draw(answer, hidden) {
    const { winners } = answer;
    const others = [...new Set([...answer.curves.keys(), ...hidden])].filter((name) => !winners.includes(name)).sort();
    const key = JSON.stringify([winners, others, [...hidden], document.documentElement.dataset.theme]);
    if (key === this.key) return; // whoever is choosing in it keeps the focus
    this.key = key;
    const isOpen = this.element.querySelector("details")?.open;
    this.element.replaceChildren(
      ...winners.map((name) => this.#item(name, algorithmSwatch(name), hidden)),
      ...(others.length
        ? [h("li.others", {}, h("details", { open: isOpen },
            h("summary", {}, `${others.length} others, in grey`),
            h("ul.legend", {}, others.map((name) => this.#item(name, swatch("var(--faint)"), hidden)))))]
        : []),
    );
  }

  #item(name, mark, hidden) {
    const box = h("input", {
      type: "checkbox", checked: !hidden.has(name), change: () => this.onToggle(name, box.checked),
    });
    const [focus, leave] = [() => this.onFocus(name), () => this.onFocus(null)];
    return h("li", { mouseenter: focus, mouseleave: leave, focusin: focus, focusout: leave },
      h("label", {}, box, mark, name));
  }
}

/** Return what a faster resource would gain for the fastest call at a size. */
export function helpParts(answer, at, question) {
  const best = answer.best(at);
  const size = answer.sizes[at];
  const limits = answer.limits[at] ?? [];
  const rows = Object.entries(answer.outline.resources).map(([resource, title]) => {
    const gain = answer.gains.get(resource)?.[at];
    const meter = h("meter", { min: 1, max: 2, value: gain ?? 1, "aria-label": title });
    return h("tr", { class: limits.includes(resource) ? "limit" : null },
      h("th", { scope: "row" }, title), h("td", {}, meter), h("td.number", {}, gainText(gain)));
  });
  return [
    h("h2", {}, `What would help at ${formatSize(size)}`),
    h("p", {}, `${callSentence(best)}. Times as fast with one resource twice as fast; the limit is in bold:`),
    h("table.help", {}, h("tbody", {}, rows)),
    h("p", {}, h("a", { href: callUrl(question, best.candidate, size) }, "Inside this call")),
    h("p.muted", {}, "Choose another size in a chart or in the table."),
  ];
}

/** The table of the fastest calls, a row for each size. */
export class SizesTable {
  constructor(onSelect) {
    this.onSelect = onSelect;
    this.element = h("div.scroll", { tabindex: 0, role: "region", "aria-label": "Times by size" });
  }

  draw(answer, incumbent, selected) {
    const isCompared = incumbent !== FASTEST;
    const compared = isCompared ? [incumbentName(incumbent), "times as long"] : [];
    const heads = ["size", "fastest", "time", "predicted by", ...compared, "limit"];
    const rows = answer.sizes.map((_, at) => this.#row(answer, at, isCompared && incumbent, at === selected));
    const focused = document.activeElement?.closest?.("tr");
    const place = focused && this.element.contains(focused) ? focused.rowIndex - 1 : -1;
    this.element.replaceChildren(
      h("table.sizes-table", {},
        headRow(heads),
        h("tbody", {}, rows)),
    );
    if (place >= 0) rows[place].querySelector("button").focus();
  }

  #row(answer, at, incumbent, isSelected) {
    const best = answer.best(at);
    const base = incumbent && answer.incumbentSeconds(incumbent, at);
    return h("tr", { "aria-current": isSelected ? "true" : null },
      h("th", { scope: "row" },
        h("button.plain", { type: "button", click: () => this.onSelect(at) }, formatSize(answer.sizes[at]))),
      h("td", {}, algorithmSwatch(best.algorithm), best.candidate),
      h("td.number", {}, formatTime(best.seconds)),
      h("td", {}, modelOf(best)),
      incumbent && h("td.number", {}, base ? formatTime(base) : "…"),
      incumbent && h("td.number", {}, base ? formatRatio(base / best.seconds) : "…"),
      h("td", {}, answer.limit(at) || "…"));
  }
}

/** Return what is to be known about an answer: cautions, what was left out, how exact it is. */
export function noteParts(answer) {
  const { cautions, notes, accuracy } = answer.outline;
  const { skipped } = answer;
  return [
    ...cautions.map((text) => h("p.caution", {}, withLabels(sentence(text)))),
    answer.ended && skipped.length > 0 &&
      h("details", {}, h("summary", {}, `${skipped.length} candidates are not priced here, as that would take long`),
        h("p", {}, `${skipped.join(", ")}. The command prices all.`)),
    ...notes.map((text) => h("p", {}, sentence(text))),
    h("p", {}, sentence(accuracy)),
  ];
}
