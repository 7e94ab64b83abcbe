// The table page: a version as a map, the evidence for each rule, its curves, and its release.
import { allItems, getJson, problemText } from "./api.js";
import { commandLine, copyText, fill, h, saveFile } from "./dom.js";
import { svgText, svgToPng } from "./export.js";
import { formatRatio, formatSize, formatTime, humanize, plural } from "./format.js";
import { inkOf, setAlgorithms } from "./palette.js";
import { changesOfDiff, changesParts, gainOfChange } from "./table_changes.js";
import { alike, tableControls } from "./table_controls.js";
import { algorithmSwatch } from "./swatch.js";
import { candidateCurves, drawCurves, sizeAtPlace } from "./table_curves.js";
import { curlSelect, pointsCsv, rulesCsv, shellCommands } from "./table_export.js";
import { drawMap, followArrows } from "./table_map.js";
import {
  DEFAULT, Table, changesOf, mostChanged, pointsOf, regionSentence, rowsOf, ruleAt, shapeOf, sizeLimits,
} from "./table_model.js";
import { formatInterval, rulePanel, sizesTable, validationsOf } from "./table_panel.js";
import { stateOfUrl, urlOfState } from "./table_question.js";
import { exportSection, publicationSection } from "./table_release.js";

const NO_EVIDENCE = { rules: [], candidates: [], measurements_id: null };
const MAX_ROWS = 60; // of all collectives together; with more one is shown
const PICTURE_WIDTH = 1100;

export async function show(main) {
  const page = new TablePage(main);
  addEventListener("popstate", () => page.restore());
  addEventListener("themechange", () => page.draw());
  await page.start();
}

class TablePage {
  table;
  before;
  outcome;
  scopes;
  overview;
  diff;

  constructor(main) {
    this.main = main;
    this.state = stateOfUrl();
    this.tables = new Map(); // version -> Table
    this.checks = new Map(); // version -> its validations and held-out times
    this.calls = new Map(); // version and row -> evidence of a call, or the promise of it
  }

  async start() {
    const [catalogue, stored, publications, session] = await Promise.all([
      getJson("/v1/what-if/catalogue"), allItems("/v1/tables"), allItems("/v1/publications"), getJson("/studio/session"),
    ]);
    setAlgorithms(catalogue.algorithms);
    Object.assign(this, { stored, publications, scopes: session.scopes });
    this.state.version ??= publications.at(-1)?.version ?? stored.at(-1)?.version ?? null;
    if (this.state.version === null) {
      this.#showEmpty();
      return;
    }
    history.replaceState(null, "", urlOfState(this.state));
    this.#layOut();
    await this.#load();
  }

  async restore() {
    const before = this.state;
    this.state = stateOfUrl();
    this.state.version ??= before.version;
    if (before.version === this.state.version && before.against === this.state.against) this.#showAll();
    else await this.#load();
  }

  #showEmpty() {
    this.main.replaceChildren(
      h("h1", {}, "Table"),
      h("section.card.empty", {}, h("p", {}, "The service has no table yet. Make one and hand it to this service:"),
        commandLine("tuner quickstart"),
        commandLine(`tuner publish tuner-out/openmpi/table.json --service ${location.origin}`)),
    );
    this.main.dataset.state = "complete";
  }

  #layOut() {
    this.controls = h("section.controls.compact", { "aria-label": "Version and view" });
    this.headline = h("h1.headline");
    this.subtitle = h("p.subtitle");
    this.problem = h("p.error", { role: "alert", hidden: true });
    this.mapHover = h("p.hover.region-line");
    this.map = h("div.table-map", { keydown: (event) => followArrows(this.map, event) });
    this.mapNote = h("p.map-legend");
    this.panel = h("section.card.panel", { "aria-label": "Evidence" });
    this.ratio = h("div.curves", { "data-kind": "ratio" });
    this.time = h("div.curves", { "data-kind": "time" });
    this.curveTitle = h("h2");
    this.hover = h("p.hover", {}, "\u00a0");
    this.legend = h("p.map-legend");
    this.sizes = h("div.scroll", { tabindex: 0, role: "region", "aria-label": "Evidence at each size" });
    this.changesCard = h("section.card", { hidden: true });
    this.exports = h("section.card");
    this.releases = h("section.card");
    this.actions = h("div.actions", { inert: true });
    this.main.replaceChildren(
      h("div.columns", {}, this.controls,
        h("div.answer", {},
          this.problem, h("div", {}, this.headline, this.subtitle), this.actions,
          h("div.map-and-panel", {},
            h("section.card", {}, h("h2", {}, "Which algorithm runs"), this.mapHover, this.map, this.mapNote), this.panel),
          this.changesCard,
          h("section.card", {}, this.curveTitle,
            h("div.curve-pair", {}, h("div", {}, h("h3", {}, "Time relative to the default"), this.ratio),
              h("div", {}, h("h3", {}, "Time"), this.time)),
            this.hover, this.legend),
          h("section.card", {}, h("h2", {}, "By size"), this.sizes),
          h("div.pair.releases", {}, this.exports, this.releases))),
    );
    for (const place of [this.ratio, this.time]) this.#followPointer(place);
    this.#fillActions();
    new ResizeObserver(() => this.draw()).observe(this.map);
  }

  async #load() {
    this.main.dataset.state = "partial";
    this.problem.hidden = true;
    const { version, against } = this.state;
    const isLate = () => version !== this.state.version || against !== this.state.against;
    try {
      const found = await this.#versions(version, against);
      if (isLate()) return;
      Object.assign(this, found);
    } catch (error) {
      if (!isLate()) this.#refuse(error);
      return;
    }
    this.main.classList.remove("stale");
    this.limits = sizeLimits([this.table, this.before].filter(Boolean));
    this.#showAll();
    this.#fillReleases();
  }

  /** Offer files with the rules for the operators that are viewed. */
  async #fillExports() {
    const { operators } = this.view;
    const shown = `${this.table.version} ${operators}`;
    if (this.exported === shown) return;
    this.exported = shown;
    try {
      const forms = await getJson(`/v1/tables/${this.table.version}/formats?operators=${operators}`);
      if (this.exported !== shown) return;
      const open = [...this.exports.querySelectorAll("details[open]")].map((one) => one.id);
      fill(this.exports, exportSection(this.table, forms, operators, (value) => this.#change({ operators: value })));
      for (const one of this.exports.querySelectorAll("details")) one.open = open.includes(one.id);
    } catch (error) {
      if (this.exported === shown) this.#showProblem(error);
    }
  }

  /** Return a version and the one that it is compared with, and what is known of both. */
  async #versions(version, against) {
    const [[table, before = null], outcome, overview, diff] = await Promise.all([
      Promise.all([version, against].filter(Boolean).map((one) => this.#table(one))),
      this.#checks(version),
      getJson(`/v1/tables/${version}/overview`),
      against ? getJson(`/v1/tables/${version}?against=${against}`) : null,
    ]);
    return { table, before, outcome, overview, diff };
  }

  async #table(version) {
    if (!this.tables.has(version)) {
      this.tables.set(version, new Table(version, await getJson(`/v1/tables/${version}?format=tuner`)));
    }
    return this.tables.get(version);
  }

  async #checks(version) {
    if (!this.checks.has(version)) this.checks.set(version, await getJson(`/v1/tables/${version}/checks`));
    return this.checks.get(version);
  }

  #showAll() {
    clearTimeout(this.hoverTimer);
    this.hoverTimer = null;
    this.problem.hidden = true;
    this.actions.inert = false;
    this.#settle();
    this.#fillControls();
    this.#fillHeadline();
    this.#fillChanges();
    this.draw();
    this.#fillExports();
    this.#showCall();
  }

  /** Complete what the URL left open: the view, its rows, and the row and rule that are selected. */
  #settle() {
    const { state, table } = this;
    const first = (part, wanted) => {
      const known = table.valuesOf(part);
      return known.includes(wanted) ? wanted : known[0];
    };
    const operators = table.valuesOf("operators");
    this.view = {
      collective: table.valuesOf("collective").includes(state.collective) ? state.collective : "",
      operators: state.operators || (operators.includes("commutative") ? "commutative" : "any"),
      memory: first("memory", state.memory || "host") ?? "host",
      placement: first("placement", state.placement || "consecutive") ?? "consecutive",
    };
    const tables = this.before ? [table, this.before] : [table];
    if (!state.collective && rowsOf(tables, this.view).length > MAX_ROWS) {
      const named = state.call.split("/")[0];
      const known = table.valuesOf("collective");
      this.view.collective = known.includes(named) ? named : mostChanged(table, rowsOf(tables, this.view)).collective;
    }
    const every = rowsOf(tables, this.view);
    const changed = this.before ? every.filter((row) => changesOf(row, this.before, table).length) : [];
    this.rows = this.before && state.changed ? changed : every;
    const wanted = this.rows.find((row) => `${row.collective}/${shapeOf(row)}` === state.call);
    this.row = wanted ?? mostChanged(table, this.before && changed.length ? changed : this.rows);
    if (!this.row) return;
    const rules = table.rulesFor(this.row);
    if (!wanted) state.at = null;
    this.rule = state.at !== null ? ruleAt(rules, state.at) : largestGain(rules);
  }

  #fillControls() {
    tableControls(this.controls, this, this.row && this.#selectedSize(), {
      go: (changes) => this.#go(changes),
      change: (changes) => this.#change(changes),
      chooseSize: (nbytes) => this.#chooseSize(nbytes),
    });
  }

  #fillHeadline() {
    const { table } = this;
    const inForce = alike(this.publications, table).at(-1)?.version;
    this.headline.textContent = `Version ${table.version} for ${table.library} on ${table.cluster}`;
    fill(
      this.subtitle,
      h(`span.state${inForce === table.version ? ".good" : ""}`, {}, publicationState(table, inForce)),
      rulesSentence(table, this.overview),
    );
  }

  #fillChanges() {
    this.changesCard.hidden = !this.before;
    if (!this.before) return;
    this.changes = changesOfDiff(this.diff);
    fill(this.changesCard, ...changesParts(this, (changes) => this.#change(changes)));
  }

  /** Draw map and curves in the present width and theme. */
  draw() {
    if (!this.table || !this.row || !this.map.clientWidth) return;
    const focused = /** @type {SVGElement | null} */ (document.activeElement?.closest(".region"));
    const mark = focused && this.map.contains(focused) ? [focused.dataset.row, focused.dataset.start, focused.dataset.former] : null;
    this.map.replaceChildren(this.#drawMap(this.map.clientWidth, false));
    if (mark) this.map.querySelector(`.region[data-row="${mark[0]}"][data-start="${mark[1]}"][data-former="${mark[2]}"]`)?.focus();
    this.#fillMapNote();
    this.#drawCurves();
  }

  #drawMap(width, isPaper) {
    const view = {
      rows: this.rows, limits: this.limits, before: this.before, width, ink: inkOf(isPaper),
      selected: { row: this.row, start: this.rule.start, nbytes: this.#selectedSize() }, gainOf: (row, change) => gainOfChange(this.changes, row, change),
    };
    const on = { show: (row, rule) => this.#hoverRegion(row, rule), choose: (row, rule) => this.#choose(row, rule) };
    return drawMap(this.table, view, isPaper ? null : on);
  }

  #fillMapNote() {
    const names = new Set(this.rows.flatMap((row) => this.table.rulesFor(row).map((rule) => rule.algorithm)));
    fill(
      this.mapNote,
      ...[...names].sort().map((name) => h("span", {}, algorithmSwatch(name), name === DEFAULT ? "the library's default" : name)),
      h("span.key", {}, "dots: sizes with evidence"),
      h("span.key", {}, "strokes: learned from calls around it; points: simulated alone; dashed: no evidence, so the default"),
      this.before && h("span.key", {}, `upper lane: version ${this.before.version}, lower lane: version ${this.table.version}; framed: what changed, with the gain`),
    );
  }

  /** Show the evidence for the selected rule, and its curves. */
  async #showCall() {
    if (!this.row) {
      this.map.replaceChildren(h("p", {}, this.state.changed ? "Nothing changed in this view." : "The table has no rules in this view."));
      fill(this.panel);
      this.actions.inert = true;
      this.main.dataset.state = "complete";
      return;
    }
    this.main.dataset.state = "partial";
    this.told = null;
    this.#fillPanel(this.row, this.rule);
    this.#fillCall();
    const row = this.row;
    const told = await this.#evidence(row);
    if (this.row !== row) return;
    this.told = told;
    this.#fillPanel(this.row, this.rule);
    this.#fillCall();
    this.main.dataset.state = "complete";
  }

  /** Return the evidence of a call; an empty one where the service refuses it. */
  #evidence(row) {
    const query = new URLSearchParams({
      collective: row.collective, nodes: row.nodes, ppn: row.ppn, memory: row.memory, operators: row.operators, placement: row.placement,
    });
    const path = `/v1/tables/${this.table.version}/call?${query}`;
    if (!this.calls.has(path)) this.calls.set(path, this.#fetchEvidence(path));
    return this.calls.get(path);
  }

  async #fetchEvidence(path) {
    try {
      const told = await getJson(path);
      for (const one of told.candidates) one.label = humanize(one.name);
      return told;
    } catch (error) {
      this.calls.delete(path); // so that it is asked for again
      this.#showProblem(error);
      return NO_EVIDENCE;
    }
  }

  #fillPanel(row, rule, told = this.told) {
    this.mapHover.textContent = regionSentence(row, rule);
    const why = told && (told.rules.find((one) => one.start_bytes === rule.start)?.why ?? "not known.");
    const points = pointsOf(this.table.rulesFor(row), told?.candidates ?? [], this.table.isAccepted);
    fill(this.panel, h("h2", {}, "Evidence"), ...rulePanel(row, rule, {
      why, points, isAccepted: this.table.isAccepted, hasProbe: told?.measurements_id !== null,
      validations: validationsOf(row, rule, this.outcome.validations),
    }));
  }

  #fillCall() {
    const { row } = this;
    const candidates = this.told?.candidates ?? [];
    this.points = pointsOf(this.table.rulesFor(row), candidates, this.table.isAccepted);
    this.curves = {
      points: this.points, candidates: candidateCurves(candidates),
      heldout: this.outcome.heldout.filter((one) => one.collective === row.collective && one.p === row.nodes * row.ppn),
    };
    this.curveTitle.textContent = `${row.collective} on ${row.nodes} × ${row.ppn} ranks${this.view.operators === "commutative" && row.collective.includes("reduce") ? ", commutative operators" : ""}`;
    const tried = [...new Set(this.curves.candidates.map((curve) => curve.algorithm))];
    fill(
      this.legend,
      h("span.key", {}, "thick: the table's choice, with its 95 % band; filled circles are measured, open ones learned or simulated"),
      tried.length > 0 && h("span.key", {}, "thin: all that the probe measured:"),
      ...tried.map((name) => h("span", {}, algorithmSwatch(name), name)),
      this.curves.heldout.length > 0 && h("span.key", {}, "diamonds: held-out sizes, from which no decision was made"),
      h("span.key", {}, "dashed: the default"),
    );
    fill(
      this.sizes,
      this.points.length || candidates.length
        ? sizesTable(this.points, candidates, this.#selectedSize(), (nbytes) => this.#chooseSize(nbytes))
        : h("p", {}, "No size of this call has evidence."),
    );
    this.#drawCurves();
  }

  #drawCurves() {
    if (!this.curves) return;
    for (const place of [this.ratio, this.time]) {
      const view = { width: Math.max(240, place.clientWidth), height: 300, limits: this.#curveLimits(), selected: this.#selectedSize(), ink: inkOf(false) };
      place.replaceChildren(drawCurves(place.dataset.kind, this.curves, view));
    }
  }

  /** The sizes of the call, with half a power of two beside them. */
  #curveLimits() {
    const sizes = this.#knownSizes();
    if (!sizes.length) return this.limits;
    return [Math.log2(Math.max(1, Math.min(...sizes))) - 0.5, Math.log2(Math.max(...sizes, 1)) + 0.5];
  }

  #knownSizes() {
    const { points, candidates, heldout } = this.curves;
    return [...new Set([...points, ...candidates.flatMap((curve) => curve.points), ...heldout].map((one) => one.nbytes))].sort((a, b) => a - b);
  }

  #selectedSize() {
    return this.state.at ?? this.rule.evidence.nbytes[0] ?? this.rule.start;
  }

  #followPointer(place) {
    const sizeOf = (event) => sizeAtPlace(event.offsetX, place.clientWidth, this.#curveLimits(), this.#knownSizes());
    place.addEventListener("mousemove", (event) => { if (this.curves) this.#showHover(sizeOf(event)); });
    place.addEventListener("mouseleave", () => (this.hover.textContent = "\u00a0"));
    place.addEventListener("click", (event) => { if (this.curves && this.#knownSizes().length) this.#chooseSize(sizeOf(event)); });
  }

  #showHover(nbytes) {
    const point = this.points.find((one) => one.nbytes === nbytes);
    const proved = this.curves.heldout.find((one) => one.nbytes === nbytes);
    const tried = this.curves.candidates.flatMap((curve) => curve.points.filter((one) => one.nbytes === nbytes));
    const parts = [];
    if (point?.seconds) parts.push(`the table's choice, ${point.rule.name}, ${formatTime(point.seconds)}${point.gain ? `, ${formatRatio(1 / point.gain)} of the default's time` : ""}${point.interval ? ` (${formatInterval(point.interval.map((gain) => 1 / gain).reverse())})` : ""}`);
    if (proved) parts.push(`held out: ${formatRatio(1 / proved.ratio)} of the default's time (${formatInterval(proved.ci95.map((gain) => 1 / gain).reverse())})`);
    if (tried.length) parts.push(`measured: ${tried.map((one) => `${one.label} ${formatTime(one.seconds)}`).join(", ")}`);
    this.hover.textContent = nbytes === null ? "\u00a0" : `${formatSize(nbytes)}: ${parts.join("; ")}`;
  }

  /** Show the evidence for a region while the pointer or the focus is on it. */
  #hoverRegion(row, rule) {
    clearTimeout(this.hoverTimer);
    if (row === null) {
      this.hoverTimer = setTimeout(() => this.row && this.#fillPanel(this.row, this.rule), 150);
      return;
    }
    const isOwn = row === this.row;
    this.#fillPanel(row, rule, isOwn ? this.told : null);
    if (isOwn) return;
    this.hoverTimer = setTimeout(async () => {
      const timer = this.hoverTimer;
      const told = await this.#evidence(row);
      if (this.hoverTimer === timer) this.#fillPanel(row, rule, told);
    }, 120);
  }

  #choose(row, rule) {
    clearTimeout(this.hoverTimer);
    this.#change({ call: `${row.collective}/${shapeOf(row)}`, at: rule.evidence.nbytes[0] ?? rule.start });
  }

  #chooseSize(nbytes) {
    this.#change({ call: `${this.row.collective}/${shapeOf(this.row)}`, at: nbytes });
  }

  /** Show another part of the same versions. */
  #change(changes) {
    this.state = { ...this.state, ...changes };
    history.pushState(null, "", urlOfState(this.state));
    this.#showAll();
  }

  /** Show other versions. */
  async #go(changes) {
    this.state = { ...this.state, ...changes };
    if (this.state.against === this.state.version) this.state.against = null;
    history.pushState(null, "", urlOfState(this.state));
    await this.#load();
  }

  #fillReleases() {
    fill(this.releases, ...publicationSection(this.table, alike(this.publications, this.table), this.scopes, async () => {
      this.publications = await allItems("/v1/publications");
      this.#fillReleases();
      this.#fillControls();
      this.#fillHeadline();
    }));
  }

  #fillActions() {
    const button = (text, action) => h("button", { type: "button", click: action }, text);
    const name = () => `table-${this.state.version}`;
    const nbytes = () => this.#selectedSize();
    const map = () => svgText(this.#drawMap(PICTURE_WIDTH, true));
    const curves = () => svgText(drawCurves("ratio", this.curves, { width: 900, height: 420, limits: this.#curveLimits(), selected: null, ink: inkOf(true) }));
    const png = () => svgToPng(map());
    this.actions.replaceChildren(
      button("Copy link", () => copyText(location.href, "The link")),
      button("Copy as command", () => copyText(shellCommands(this.table, this.row, nbytes(), this.before), "The command")),
      button("Copy as curl", () => copyText(curlSelect(this.table, this.row, nbytes()), "The request")),
      button("CSV of rules", () => saveFile(`${name()}.csv`, rulesCsv(this.table), "text/csv")),
      button("CSV of curves", () => saveFile(`${name()}-${this.row.collective}-${shapeOf(this.row)}.csv`, pointsCsv(this.row, this.points, this.told?.candidates ?? []), "text/csv")),
      button("SVG of map", () => saveFile(`${name()}.svg`, map(), "image/svg+xml")),
      button("PNG of map", async () => saveFile(`${name()}.png`, await png(), "image/png")),
      button("SVG of curves", () => saveFile(`${name()}-${this.row.collective}-${shapeOf(this.row)}.svg`, curves(), "image/svg+xml")),
    );
  }

  #showProblem(error) {
    this.problem.textContent = problemText(error);
    this.problem.hidden = false;
  }

  /** Say why the versions cannot be shown; what stays on the page is about others. */
  #refuse(error) {
    this.#showProblem(error);
    this.main.classList.add("stale");
    this.actions.inert = true;
    this.main.dataset.state = "complete";
  }
}

function largestGain(rules) {
  const weight = ({ evidence }) => (evidence.gain ?? 1) * (evidence.basis === "measured" ? 1000 : 1);
  return rules.reduce((best, rule) => (weight(rule) > weight(best) ? rule : best));
}

function publicationState(table, inForce) {
  if (inForce === undefined) return "not published";
  return inForce === table.version ? "in force" : `not in force (version ${inForce} is)`;
}

/** Say how many rules leave the default, and what came of them. */
function rulesSentence(table, overview) {
  const rules = [...table.ruleLists.values()].flat();
  const changing = rules.filter((rule) => rule.algorithm !== DEFAULT);
  if (!changing.length) {
    return `All ${plural(rules.length, "rule")} leave calls to the library's default: nothing was surely faster.`;
  }
  const shapes = new Set([...table.keys.values()].map(shapeOf)).size;
  const verb = changing.length === 1 ? "leaves" : "leave";
  return `${changing.length} of ${plural(rules.length, "rule")} ${verb} the default, on ${plural(shapes, "shape")}.` +
    `${unmeasuredSentence(changing)} ${overview.outcome}`;
}

function unmeasuredSentence(rules) {
  const count = rules.filter(({ evidence }) => evidence.basis !== "measured").length;
  return count ? ` ${count} of them ${count === 1 ? "is" : "are"} learned or simulated, not measured.` : "";
}
