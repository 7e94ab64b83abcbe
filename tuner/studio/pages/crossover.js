// The map of the fastest algorithm by number of nodes and size: one bar for each number of nodes.
import { focusedElement, h } from "./dom.js";
import { formatCount, formatSize } from "./format.js";
import { colourOf } from "./palette.js";

const MAX_MAP_NODES = 64; // beyond it an answer takes too long for a map

/** Return the numbers of nodes of the map: powers of two, and that of the controls. */
export function mapNodes(machine, here) {
  const most = Math.min(MAX_MAP_NODES, machine.max_nodes);
  const found = new Set([here]);
  for (let count = 2; count <= most; count *= 2) found.add(count);
  return [...found].sort((a, b) => a - b);
}

/** The card of the map. `onToggle` is called when it is opened, `onChoose` with nodes and size. */
export class CrossoverMap {
  constructor(onToggle, onChoose) {
    this.onChoose = onChoose;
    this.body = h("div.strip.crossover");
    this.details = h(
      "details", { toggle: () => onToggle(this.details.open) },
      h("summary", {}, "Fastest algorithm by nodes and size"), this.body,
    );
    this.element = h("section.card", {}, this.details);
  }

  open(isOpen) {
    if (this.details.open !== isOpen) this.details.open = isOpen;
  }

  /** Draw `rows`, each {nodes, answer, problem, isHere}. */
  draw(rows) {
    const focused = focusedElement()?.dataset.cell;
    this.body.replaceChildren(
      ...rows.map((row) => h("div.bar", {},
        h("span.bar-title", { "aria-current": row.isHere && "true" }, `${formatCount(row.nodes)} node${row.nodes > 1 ? "s" : ""}`),
        row.answer ? h("div.runs", {}, this.#runs(row)) : h("span.muted", {}, row.problem ?? "…"))),
      h("p.muted", {}, "A bar is a number of nodes, its parts are sizes. Choose a part to see its curves."),
    );
    if (focused) this.body.querySelector(`[data-cell="${focused}"]`)?.focus();
  }

  #runs({ nodes, answer }) {
    return answer.runs((at) => answer.best(at)?.algorithm ?? "…").map((run) => {
      const sizes = answer.sizeRange(run, formatSize);
      const element = h("button.run",
        { type: "button", title: `${run.value}: ${sizes}`, "data-cell": `${nodes}-${run.from}`,
          click: () => this.onChoose(nodes, answer.sizes[run.from]) },
        h("span", {}, run.value), h("small", {}, sizes));
      element.style.flexGrow = run.to - run.from + 1;
      element.style.borderTopColor = colourOf(run.value);
      return element;
    });
  }
}
