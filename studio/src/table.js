// The table page: a version as a map, the evidence for each rule, its curves, and its release.
import { allItems, getJson, problemText } from "./api.js";
import { selectRow } from "./controls.js";
import { commandLine, copyText, fill, h, saveFile } from "./dom.js";
import { svgText, svgToPng } from "./export.js";
import { formatDay, formatRatio, formatSize, formatTime, humanize, plural } from "./format.js";
import { inkOf, setAlgorithms } from "./palette.js";
import { candidateCurves, drawCurves, sizeAtPlace } from "./table_curves.js";
import { curlSelect, pointsCsv, rulesCsv, shellCommands } from "./table_export.js";
import { drawMap, followArrows } from "./table_map.js";
import {
  DEFAULT, Table, changesOf, choiceName, mostChanged, pointsOf, regionSentence, rowsOf, ruleAt, shapeOf, sizeLimits,
} from "./table_model.js";
import { basesTable, changesTable, formatInterval, rulePanel, sizesTable, swatch, validationsOf } from "./table_panel.js";
import { exportSection, publicationSection } from "./table_release.js";

const PATH = "/studio/table";
const NO_EVIDENCE = { rules: [], candidates: [], measurements_id: null };
const MAX_ROWS = 60; // of all collectives together; with more one is shown
const MAX_UNSCROLLED = 8; // rows of a list of changes that is shown whole
const PICTURE_WIDTH = 1100;

export async function showTable(main) {
  const page = new TablePage(main);
  addEventListener("popstate", () => page.restore());
  addEventListener("themechange", () => page.draw());
  await page.start();
}

/** Return the state of the URL. */
function stateOfUrl() {
  const query = new URLSearchParams(location.search);
  const version = Number(location.pathname.slice(PATH.length + 1)) || null;
  const at = Number(query.get("at"));
  return {
    version,
    against: Number(query.get("against")) || null,
    collective: query.get("collective") ?? "", // of the rows that are shown, or "all"
    call: query.get("call") ?? "", // the selected row, such as bcast/4x2
    at: query.has("at") && at >= 0 ? at : null, // a size in the selected rule
    operators: query.get("operators") ?? "",
    memory: query.get("memory") ?? "",
    placement: query.get("placement") ?? "",
    changed: query.get("rows") === "changed",
  };
}

function urlOfState(state) {
  const query = new URLSearchParams();
  for (const name of ["collective", "call", "operators", "memory", "placement", "against"]) {
    if (state[name]) query.set(name, state[name]);
  }
  if (state.at !== null) query.set("at", state.at);
  if (state.changed) query.set("rows", "changed");
  const search = query.toString();
  return `${PATH}/${state.version}${search ? `?${search}` : ""}`;
}

class TablePage {
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
    this.changes = h("section.card", { hidden: true });
    this.exports = h("section.card");
    this.releases = h("section.card");
    this.actions = h("div.actions", { inert: true });
    this.main.replaceChildren(
      h("div.columns", {}, this.controls,
        h("div.answer", {},
          this.problem, h("div", {}, this.headline, this.subtitle), this.actions,
          h("div.map-and-panel", {},
            h("section.card", {}, h("h2", {}, "Which algorithm runs"), this.mapHover, this.map, this.mapNote), this.panel),
          this.changes,
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
    const { state, table, view } = this;
    const own = this.stored.filter((one) => one.cluster === table.cluster && one.library === table.library);
    const current = this.publications.filter((one) => one.cluster === table.cluster && one.library === table.library).at(-1);
    const named = (one) => `${one.version}${one.version === current?.version ? ", in force" : ""}, of ${formatDay(one.stored_at)}`;
    const places = [...new Map(this.stored.map((one) => [`${one.cluster}\n${one.library}`, one])).values()];
    const latest = (one) => this.publications.filter((each) => each.cluster === one.cluster && each.library === one.library).at(-1)?.version ?? one.version;
    fill(
      this.controls,
      selectRow("place", "Cluster and library", places.map((one) => [latest(one), `${one.cluster}, ${one.library}`]), places.find((one) => one.cluster === table.cluster && one.library === table.library) ? latest({ cluster: table.cluster, library: table.library, version: table.version }) : "",
        (value) => this.#go({ version: Number(value), against: null, call: "", at: null, collective: "", changed: false })),
      selectRow("version", "Version", own.map((one) => [one.version, named(one)]), state.version, (value) => this.#go({ version: Number(value) })),
      selectRow("against", "Compare with", [["", "no other version"], ...own.filter((one) => one.version !== state.version).map((one) => [one.version, named(one)])], state.against ?? "",
        (value) => this.#go({ against: Number(value) || null, changed: false })),
      this.before && checkbox("changed", "Only what changed", state.changed, (checked) => this.#change({ changed: checked })),
      selectRow("collective", "Collective", [["all", "all"], ...table.valuesOf("collective").map((name) => [name, name])], view.collective || "all",
        (value) => this.#change({ collective: value, call: "", at: null })),
      this.row && selectRow("call", "Call", this.rows.map((row) => [`${row.collective}/${shapeOf(row)}`, `${row.collective} on ${row.nodes} × ${row.ppn}`]), `${this.row.collective}/${shapeOf(this.row)}`,
        (value) => this.#change({ call: value, at: null })),
      this.row && this.#sizeChoice(),
      ["operators", "memory", "placement"].map((part) => this.#partChoice(part)),
    );
  }

  /** A select of sizes to look up: powers of two, and the one of the URL. */
  #sizeChoice() {
    const [low, high] = this.limits;
    const powers = Array.from({ length: high - low + 1 }, (_, at) => 2 ** (low + at));
    const sizes = [...new Set([...powers, this.#selectedSize()])].filter((size) => size !== null).sort((a, b) => a - b);
    return selectRow("size", "Size", sizes.map((size) => [size, formatSize(size)]), this.#selectedSize(), (value) => this.#chooseSize(Number(value)));
  }

  #partChoice(part) {
    const known = this.table.valuesOf(part);
    if (known.length < 2) return "";
    const titles = { operators: "Operators", memory: "Buffers in", placement: "Placement of ranks" };
    const names = { any: "any, order kept", commutative: "commutative, such as sums", host: "host memory", cuda: "GPU memory" };
    return selectRow(part, titles[part], known.map((value) => [value, names[value] ?? value]), this.view[part],
      (value) => this.#change({ [part]: value }));
  }

  #fillHeadline() {
    const { table } = this;
    const rules = [...table.ladders.values()].flat();
    const changing = rules.filter((rule) => rule.algorithm !== DEFAULT);
    const current = this.publications.filter((one) => one.cluster === table.cluster && one.library === table.library).at(-1);
    const state = current?.version === table.version ? "in force" : current ? `not in force (version ${current.version} is)` : "not published";
    this.headline.textContent = `Version ${table.version} for ${table.library} on ${table.cluster}`;
    fill(
      this.subtitle,
      h(`span.state${current?.version === table.version ? ".good" : ""}`, {}, state),
      changing.length
        ? `${changing.length} of ${plural(rules.length, "rule")} ${changing.length === 1 ? "leaves" : "leave"} the default, on ${plural(new Set([...table.keys.values()].map(shapeOf)).size, "shape")}.${unmeasuredSentence(changing)} ${this.overview.outcome}`
        : `All ${plural(rules.length, "rule")} leave calls to the library's default: nothing was surely faster.`,
    );
  }

  #fillChanges() {
    this.changes.hidden = !this.before;
    if (!this.before) return;
    this.changeRecords = this.diff.changes.map((one) => ({
      ...one, start: one.start_bytes, stop: one.stop_bytes === "inf" ? Infinity : one.stop_bytes,
      before: { algorithm: one.before.algorithm, name: choiceName(one.before) },
      after: { algorithm: one.after.algorithm, name: choiceName(one.after) }, interval: one.gain_ci95,
    }));
    const weight = ({ gain }) => Math.abs(Math.log(gain ?? 1));
    this.changeRecords.sort((a, b) => weight(b) - weight(a));
    const changes = this.changeRecords;
    const shown = changes.filter((one) => !this.view.collective || one.collective === this.view.collective);
    const { calls, calls_kept: kept, gain } = this.diff;
    const text = changes.length
      ? `${calls - kept} of ${plural(calls, "call")} decided otherwise at some size, in ${plural(changes.length, "range")}` +
        (shown.length < changes.length ? `, ${shown.length} of them of ${this.view.collective}.` : ".") +
        (gain ? ` Where both versions have evidence, calls become ${gain.toFixed(2)} times as fast.` : "") +
        " The largest difference comes first."
      : `Both versions decide alike, for all of ${plural(calls, "call")}.`;
    const anew = this.diff.evidence_changes.filter((one) => !this.view.collective || one.collective === this.view.collective);
    const others = anew.filter((one) => one.basis !== one.basis_before);
    fill(
      this.changes,
      h("h2", {}, `What changed since version ${this.before.version}`), h("p", {}, text),
      shown.length
        ? h(`div.scroll${shown.length > MAX_UNSCROLLED ? ".tall" : ""}`, { tabindex: 0, role: "region", "aria-label": "Changes" },
            changesTable(shown, (change) => this.#change({
              call: `${change.collective}/${shapeOf(change)}`, at: change.start, collective: "",
              operators: change.operators === "any" ? "" : change.operators,
              memory: change.memory, placement: change.placement ?? "",
            })))
        : "",
      others.length > 0 && h("h3.bases", {}, "Decided alike on another basis"),
      others.length > 0 && h(`div.scroll${others.length > MAX_UNSCROLLED ? ".tall" : ""}`, { tabindex: 0, role: "region", "aria-label": "Other bases" },
        basesTable(others, (change) => this.#change({
          call: `${change.collective}/${shapeOf(change)}`, at: change.start_bytes, collective: "",
        }))),
      anew.length > others.length && h("p.muted", {}, `${plural(anew.length - others.length, "range")} decided alike on other times.`),
    );
  }

  /** Draw map and curves in the present width and theme. */
  draw() {
    if (!this.table || !this.row || !this.map.clientWidth) return;
    const focused = document.activeElement?.closest?.(".region");
    const mark = focused && this.map.contains(focused) ? [focused.dataset.row, focused.dataset.start, focused.dataset.former] : null;
    this.map.replaceChildren(this.#drawMap(this.map.clientWidth, false));
    if (mark) this.map.querySelector(`.region[data-row="${mark[0]}"][data-start="${mark[1]}"][data-former="${mark[2]}"]`)?.focus();
    this.#fillMapNote();
    this.#drawCurves();
  }

  #drawMap(width, isPaper) {
    const view = {
      rows: this.rows, limits: this.limits, before: this.before, width, ink: inkOf(isPaper),
      selected: { row: this.row, start: this.rule.start, nbytes: this.#selectedSize() }, gainOf: (row, change) => this.#gainOf(row, change),
    };
    const on = { show: (row, rule) => this.#hoverRegion(row, rule), choose: (row, rule) => this.#choose(row, rule) };
    return drawMap(this.table, view, isPaper ? null : on);
  }

  #gainOf(row, change) {
    const alike = this.changeRecords.filter(
      (one) => one.collective === row.collective && one.nodes === row.nodes && one.ppn === row.ppn &&
        one.memory === row.memory && one.start === change.start && one.after.name === change.after.name,
    );
    const found = alike.find((one) => one.operators === row.operators) ?? alike[0];
    return found?.gain ? { gain: found.gain, interval: found.interval } : null;
  }

  #fillMapNote() {
    const names = new Set(this.rows.flatMap((row) => this.table.rulesFor(row).map((rule) => rule.algorithm)));
    fill(
      this.mapNote,
      ...[...names].sort().map((name) => h("span", {}, swatch(name), name === DEFAULT ? "the library's default" : name)),
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
      ...tried.map((name) => h("span", {}, swatch(name), name)),
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
    const own = this.publications.filter((one) => one.cluster === this.table.cluster && one.library === this.table.library);
    fill(this.releases, ...publicationSection(this.table, own, this.scopes, async () => {
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

function unmeasuredSentence(rules) {
  const count = rules.filter(({ evidence }) => evidence.basis !== "measured").length;
  return count ? ` ${count} of them ${count === 1 ? "is" : "are"} learned or simulated, not measured.` : "";
}

function checkbox(id, title, checked, onChange) {
  const box = h("input", { id, type: "checkbox", checked, change: () => onChange(box.checked) });
  return h("p.check", {}, box, h("label", { for: id }, title));
}
