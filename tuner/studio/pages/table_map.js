// The map of a table: a row for each collective and shape, sizes to the right, coloured by algorithm.
import { svg } from "./dom.js";
import { formatRatio } from "./format.js";
import { dashOf } from "./palette.js";
import { label } from "./svg.js";
import { picture, sizeAxis, sizePlace } from "./table_drawing.js";
import { DEFAULT, changesOf, regionSentence } from "./table_model.js";

const ROW = 26;
const LANE = 20; // of a row that shows two versions
const HEAD = 28; // above the rows of a collective
const GAP = 4;
const LETTER = 6.7;

/** Return the drawing of rows of a table.
 *
 * view     {rows, limits, before (a table or null), selected {row, start, nbytes}, width, ink}
 * on       {show(row, rule), choose(row, rule)}, or null for a picture
 */
export function drawMap(table, view, on) {
  const { rows, limits, before, width, ink } = view;
  const left = width < 560 ? 46 : 64;
  const inner = width - left - 12;
  const lane = before ? LANE : ROW - GAP;
  const step = before ? 2 * LANE + 2 * GAP : ROW;
  const parts = [];
  const places = new Map(); // a row -> its top
  let y = 4;
  let last = null;
  for (const row of rows) {
    if (row.collective !== last) {
      parts.push(label(0, y + 17, row.collective, ink.text, "start", { "font-weight": 600, "font-size": 14 }));
      y += HEAD;
      last = row.collective;
    }
    places.set(row, y);
    y += step;
  }
  const heading = { left, inner, limits, ink };
  const regions = rows.flatMap((row) => drawRow(table, row, places.get(row), lane, heading, view, on));
  return picture(
    width, y + 26, "Algorithms by collective, shape and size",
    svg("defs", {}, pattern("learned", ink, "M0 6L6 0", 6), pattern("simulated", ink, "M1 3h2", 6)),
    ...sizeAxis(limits, left, HEAD, inner, y - HEAD, ink),
    ...parts,
    ...regions,
  );
}

/** Strokes over a region, which say that it was not measured everywhere. */
function pattern(id, ink, d, size) {
  return svg(
    "pattern", { id: `basis-${id}`, width: size, height: size, patternUnits: "userSpaceOnUse" },
    svg("path", { d, stroke: ink.text, "stroke-opacity": 0.45, "stroke-width": id === "learned" ? 1 : 1.6 }),
  );
}

function drawRow(table, row, y, lane, place, view, on) {
  const { left, ink } = place;
  const shape = label(left - 8, y + lane / 2 + 4, `${row.nodes}×${row.ppn}`, ink.muted, "end");
  const before = view.before;
  const lanes = before
    ? [
        ...before.rulesFor(row).flatMap((rule) => drawRegion(row, rule, y, lane, place, view, on, before.version)),
        ...table.rulesFor(row).flatMap((rule) => drawRegion(row, rule, y + lane + 1, lane, place, view, on)),
        ...changesOf(row, before, table).map((change) => drawChange(row, change, y, 2 * lane + 1, place, view)),
      ]
    : table.rulesFor(row).flatMap((rule) => drawRegion(row, rule, y, lane, place, view, on));
  return [shape, ...lanes];
}

/** Return the drawing of one rule, with its name beside the button, whose own name is whole.
 *
 * former   the version that the rule is of, if not the one that is shown
 */
function drawRegion(row, rule, y, lane, place, view, on, former = null) {
  const { left, inner, limits, ink } = place;
  const [x, end] = [rule.start, rule.stop].map((size) => sizePlace(size, limits, left, inner));
  const bar = { x, y, width: Math.max(1, end - x - 1), height: lane, rx: 2 };
  const isSelected = Boolean(on && former === null && view.selected.row === row && view.selected.start === rule.start);
  const contents = [...regionBars(rule, bar, place), ...(isSelected ? selectionMarks(bar, place, view) : [])];
  const isUntold = rule.algorithm === DEFAULT && rule.evidence.basis === "none";
  const name = fitted(isUntold ? "" : rule.algorithm, bar.width - 8);
  const region = on ? regionButton(row, rule, former, isSelected, view, on, contents) : svg("g", {}, ...contents);
  return [region, ...(name ? [textOf(name, x + 5, y + lane / 2 + 4, ink, isDoubted(rule))] : [])];
}

function isDoubted({ algorithm, evidence }) {
  return algorithm !== DEFAULT && ["learned", "simulated"].includes(evidence.basis);
}

/** The colour of an algorithm, strokes where it was not measured everywhere, dots at the sizes. */
function regionBars(rule, bar, { left, inner, limits, ink }) {
  const { x, y, width, height } = bar;
  const { basis, nbytes } = rule.evidence;
  const isDefault = rule.algorithm === DEFAULT;
  const isUntold = isDefault && basis === "none";
  const fill = ink.colour(rule.algorithm);
  const outline = isUntold ? { stroke: ink.border, "stroke-opacity": 0.5, "stroke-dasharray": "2 3" } : {};
  const dashes = dashOf(rule.algorithm).join(" ");
  return [
    svg("rect", { ...bar, fill, "fill-opacity": isUntold ? 0 : isDefault ? 0.14 : 0.38, ...outline }),
    isDoubted(rule) && svg("rect", { ...bar, fill: `url(#basis-${basis})` }),
    !isDefault && svg("path", { d: `M${x} ${y + 2}h${width}`, stroke: fill, "stroke-width": 4, "stroke-dasharray": dashes }),
    ...nbytes.map((size) =>
      svg("circle", { cx: sizePlace(size, limits, left, inner), cy: y + height - 3, r: 1.8, fill: ink.text })),
  ];
}

/** A frame around the selected rule, and a line at the selected size. */
function selectionMarks(bar, { left, inner, limits, ink }, view) {
  const at = sizePlace(view.selected.nbytes, limits, left, inner);
  const look = { fill: "none", stroke: ink.text, "stroke-width": 2.5 };
  return [
    svg("rect", { ...bar, ...look }),
    svg("path", { d: `M${at} ${bar.y - 3}v${bar.height + 6}`, ...look }),
  ];
}

function regionButton(row, rule, former, isSelected, view, on, contents) {
  const choose = () => on.choose(row, rule);
  const attributes = {
    class: "region", role: "button", tabindex: isSelected ? 0 : -1, "aria-pressed": String(isSelected),
    "aria-label": `${former === null ? "" : `version ${former}: `}${regionSentence(row, rule)}`,
    "data-row": view.rows.indexOf(row), "data-start": rule.start, "data-former": former ?? "",
    mouseenter: () => on.show(row, rule), mouseleave: () => on.show(null),
    focus: () => on.show(row, rule), blur: () => on.show(null),
    click: choose,
    keydown: (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      choose();
    },
  };
  return svg("g", attributes, ...contents);
}

/** The name of an algorithm; over strokes it gets a halo. */
function textOf(name, x, y, ink, isOverStrokes) {
  const halo = isOverStrokes
    ? { stroke: ink.card, "stroke-width": 3, "stroke-opacity": 0.8, "paint-order": "stroke" }
    : {};
  return label(x, y, name, ink.text, "start", { "pointer-events": "none", "aria-hidden": "true", ...halo });
}

function fitted(name, width) {
  const letters = Math.floor(width / LETTER);
  if (name.length <= letters) return name;
  return letters >= 5 ? `${name.slice(0, letters - 1)}…` : "";
}

/** A frame around what changed, with the gain: green where surely faster, red where surely slower. */
function drawChange(row, change, y, height, { left, inner, limits, ink }, view) {
  const [x, end] = [change.start, change.stop].map((size) => sizePlace(size, limits, left, inner));
  if (end - x < 4) return null;
  const told = view.gainOf?.(row, change) ?? null;
  const isSure = told?.gain && (told.interval[0] > 1 || told.interval[1] < 1);
  const colour = isSure ? (told.gain > 1 ? ink.gain : ink.loss) : ink.text;
  const text = told?.gain ? formatRatio(told.gain) : "";
  const room = text.length * LETTER + 10;
  return svg(
    "g", { "pointer-events": "none" },
    svg("rect", { x: x + 0.5, y, width: end - x - 2, height, fill: "none", stroke: colour, "stroke-width": 1.8, rx: 3 }),
    text && end - x > room + 4 && [
      svg("rect", { x: end - room - 4, y: y + 3, width: room, height: 15, rx: 3, fill: ink.card }),
      label(end - 9, y + 15, text, colour, "end", { "font-weight": 600 }),
    ],
  );
}

/** Move the focus from region to region with the arrow keys. */
export function followArrows(root, event) {
  const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  const move = moves[event.key];
  const from = event.target.closest?.(".region");
  if (!move || !from) return;
  event.preventDefault();
  const regions = [...root.querySelectorAll(".region")];
  const number = Number(from.dataset.row);
  const target = move[0] === 0
    ? regions[regions.indexOf(from) + move[1]]
    : nearest(regions.filter((one) => Number(one.dataset.row) === number + move[0]), from);
  if (target) {
    from.setAttribute("tabindex", -1);
    target.setAttribute("tabindex", 0);
    target.focus();
  }
}

function nearest(regions, from) {
  const middle = (one) => {
    const box = one.getBoundingClientRect();
    return box.left + box.width / 2;
  };
  const wanted = middle(from);
  return regions.sort((a, b) => Math.abs(middle(a) - wanted) - Math.abs(middle(b) - wanted))[0];
}
