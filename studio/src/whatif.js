// The what-if page: a machine with its axes, and the answer while it is computed.
import { Address } from "./address.js";
import { Answer, FASTEST, NCCL_CHOICE } from "./answer.js";
import { Refused, getJson, problemText, streamLines, uploadTopology } from "./api.js";
import { callUrl } from "./call_question.js";
import { Chart, leavesChart } from "./charts.js";
import {
  AXIS_LABELS, axisControls, configuredRow, machineOptions, machineSentence, selectRow, sizeSelect,
} from "./controls.js";
import { CallPicture } from "./call_picture.js";
import { CrossoverMap, mapNodes } from "./crossover.js";
import { announce, copyText, fill, h, saveFile } from "./dom.js";
import { svgToPng } from "./export.js";
import { formatCount, formatRatio, formatSize, formatTime, sentence } from "./format.js";
import { colourOf, setAlgorithms } from "./palette.js";
import { Pins, machineLabels } from "./pins.js";
import { curlPost } from "./shell.js";
import { LIBRARIES, MAX_PINS, leftOut, questionOfState, sliderValues, stateOfUrl, urlOfState } from "./question.js";
import { answerCsv, ratioSvg, shellCommand, studyYaml } from "./whatif_export.js";

const PATH = "/studio/what-if";
const MODELS = { nccl: "NCCL's cost model", simulation: "simulation" };
const MIN_RATIO = 1.01; // times as fast that are worth a word
const MAX_ANSWERS = 60; // kept in the page
const MAX_PREFETCH_MS = 1500; // of an answer, so that its neighbours are asked for, too

export async function showWhatIf(main) {
  const page = new WhatIf(main);
  addEventListener("popstate", () => page.restore());
  addEventListener("themechange", () => page.render());
  await page.start();
}

class WhatIf {
  constructor(main) {
    this.main = main;
    this.address = new Address();
    this.state = stateOfUrl(location.search);
    this.kept = new Map(); // JSON of a question -> its whole answer
    this.growing = new Map(); // JSON of a question -> its answer, or the problem in its place
    this.shown = null; // the answer that is on the page
    this.focus = null;
    this.abort = null;
  }

  async start() {
    this.#layOut();
    this.offered = this.#loadOffered();
    await Promise.all([this.offered, this.#loadMachine()]);
  }

  /** Load what the controls offer. */
  async #loadOffered() {
    const [catalogue, topologies] = await Promise.all([
      getJson("/v1/what-if/catalogue"), getJson("/v1/topologies?limit=1000"),
    ]);
    setAlgorithms(catalogue.algorithms);
    Object.assign(this, { catalogue, topologies: topologies.items });
  }

  /** Show what the URL says, after the back button. */
  async restore() {
    const before = this.state.topology;
    this.address.restore();
    this.state = stateOfUrl(location.search);
    if (this.state.topology === before && this.machine) {
      this.#fillControls();
      this.ask();
    } else {
      await this.#loadMachine();
    }
  }

  #layOut() {
    this.controls = h("section.controls", { "aria-label": "Machine and call" });
    this.headline = h("p.headline", { "aria-live": "polite" }, "\u00a0");
    this.progress = h("progress", { max: 1, value: 0, "aria-label": "Schedules priced" });
    this.problem = h("p.error", { role: "alert", hidden: true });
    this.strip = h("div.strip");
    this.ratioTitle = h("h2");
    this.ratioNote = h("p.muted", { hidden: true }, "Curves that leave the chart take longer than it shows.");
    this.legend = h("ul.legend");
    this.help = h("section.card");
    this.table = h("div.scroll", { tabindex: 0, role: "region", "aria-label": "Times by size" });
    this.notes = h("section.notes");
    this.phase = h("p.phase", { role: "status" });
    this.pins = new Pins(
      (at) => this.#select(at), (number) => this.#showPin(number), (number) => this.#unpin(number));
    this.picture = new CallPicture((isOpen) => this.#toggle("picture", isOpen));
    this.map = new CrossoverMap(
      (isOpen) => this.#toggle("map", isOpen), (nodes, size) => this.#goTo(nodes, size));
    this.actions = h("div.actions", { inert: true });
    const [ratio, time] = [h("div.chart"), h("div.chart")];
    this.hover = h("p.hover", {}, "\u00a0");
    this.main.replaceChildren(
      h(
        "div.columns",
        {},
        this.controls,
        h(
          "div.answer",
          {},
          h("h1.visually-hidden", {}, "What if"),
          this.problem, this.headline, this.progress, this.phase, this.strip, this.actions,
          h("section.card", {}, this.ratioTitle, this.ratioNote, ratio, this.hover, this.legend),
          h("div.pair", {}, h("section.card", {}, h("h2", {}, "Time"), time), this.help),
          this.pins.element, this.map.element, this.picture.element,
          h("section.card", {}, h("h2", {}, "By size"), this.table),
          this.notes,
        ),
      ),
    );
    this.charts = [ratio, time].map(
      (place, number) => new Chart(place, ["ratio", "time"][number], (at) => this.#select(at)),
    );
    for (const chart of this.charts) chart.onHover = (at) => this.#showHover(at);
    this.#fillActions();
  }

  async #loadMachine() {
    const { state } = this;
    this.machine = null;
    this.actions.inert = true;
    this.abort?.abort();
    clearTimeout(this.prefetchTimer);
    let [machine, problem] = [null, null];
    try {
      machine = await getJson(`/v1/what-if/machine?topology=${encodeURIComponent(state.topology)}`);
    } catch (error) {
      problem = error;
    }
    await this.offered;
    if (state !== this.state) return; // another machine was chosen meanwhile
    this.machine = machine;
    this.#fillControls();
    if (problem) this.#refuse(problem);
    else this.ask();
  }

  #fillControls() {
    const state = this.state;
    const machines = machineOptions(this.catalogue, this.topologies, state.topology);
    const collectives = Object.keys(this.catalogue.algorithms).map((name) => [name, name]);
    const file = h("input", {
      id: "upload", type: "file", class: "visually-hidden",
      change: () => {
        this.#upload(file.files[0]);
        file.value = ""; // so that the same file can be chosen again
      },
    });
    const change = (name) => (value) => {
      state[name] = value;
      if (state.from > state.to) [state.from, state.to] = [state.to, state.from];
      this.#fillControls();
      this.#commit();
    };
    this.incumbent = h("select", {
      id: "incumbent",
      change: () => {
        const isOfLibrary = LIBRARIES.has(state.incumbent) || LIBRARIES.has(this.incumbent.value);
        state.incumbent = this.incumbent.value;
        this.#saveUrl(true);
        if (isOfLibrary) this.ask(); // which is asked for what the library chooses
        else this.render();
      },
    });
    fill(
      this.controls,
      selectRow("machine", "Machine", machines, state.topology, (value) => this.#chooseMachine(value)),
      h("div.row", {}, h("label.button", { for: "upload" }, "Upload a topology"), file),
      this.machine && h("p.fabric", {}, machineSentence(this.machine)),
      selectRow("collective", "Collective", collectives, state.collective,
        (value) => { state.collective = value; this.#commit(); }),
      ...(this.machine
        ? axisControls(this.machine, state, (name) => this.#moved(name), () => this.#commit())
        : []),
      this.machine?.configured.length > 0 &&
        configuredRow(this.machine.configured, state.configured,
          (isConfigured) => { state.configured = isConfigured; this.#commit(); }),
      h("div.row.sizes", {},
        sizeSelect("Sizes from", "size-from", state.from, change("from")),
        sizeSelect("to", "size-to", state.to, change("to"))),
      h("div.row", {}, h("label", { for: "incumbent" }, "Compare with"), this.incumbent),
      h("p.anew", {}, h("a", { href: PATH }, "Start anew")),
    );
  }

  async #chooseMachine(topology) {
    this.state = { ...this.state, topology, axes: {}, incumbent: "", hidden: new Set() };
    this.#saveUrl(true);
    await this.#loadMachine();
  }

  async #upload(file) {
    if (!file) return;
    try {
      const stored = await uploadTopology(file);
      this.topologies = (await getJson("/v1/topologies?limit=1000")).items;
      announce(`${stored.name} is stored`);
      await this.#chooseMachine(String(stored.id));
    } catch (error) {
      this.#showProblem(error);
    }
  }

  #moved(axis) {
    this.axis = axis;
    this.ask();
  }

  #commit() {
    this.#saveUrl(true);
    this.ask();
  }

  #saveUrl(isFinished) {
    this.address.save(PATH + urlOfState(this.state), isFinished);
  }

  /** Ask the question of the controls; an answer that is still arriving is given up. */
  async ask() {
    this.abort?.abort();
    clearTimeout(this.prefetchTimer);
    if (!this.machine) return;
    const question = questionOfState(this.state, this.machine);
    const key = JSON.stringify(question);
    this.question = question;
    const answer = new Answer();
    const known = this.kept.get(key);
    this.problem.hidden = true;
    const abort = (this.abort = new AbortController());
    const begun = performance.now();
    try {
      if (known) this.#show(known);
      else await this.#stream(question, key, answer, abort.signal, () => this.#show(answer));
      const took = performance.now() - begun;
      await this.#drawCall();
      await this.#askOthers(abort.signal);
      this.#prefetchSoon(took);
    } catch (error) {
      if (!abort.signal.aborted) this.#refuse(error);
    }
  }

  async #stream(question, key, answer, signal, onLine) {
    const first = this.shown?.leaders(this.#incumbent(this.shown)) ?? [];
    await streamLines("/v1/what-if", { ...question, first }, signal, (line) => {
      if (line.kind === "problem") throw new Refused(line.status, line.detail);
      answer.add(line);
      onLine();
    });
    if (answer.ended) this.kept.set(key, answer);
    if (this.kept.size > MAX_ANSWERS) this.kept.delete(this.kept.keys().next().value);
  }

  /** Ask for the neighbours of the slider that was moved last, so that they are there at once. */
  #prefetchSoon(took) {
    if (!this.axis || took > MAX_PREFETCH_MS) return;
    this.prefetchTimer = setTimeout(async () => {
      const values = sliderValues(this.axis, this.machine);
      const place = values.indexOf(this.state.axes[this.axis]);
      for (const next of [place + 1, place - 1]) {
        if (place < 0 || values[next] === undefined) continue;
        const axes = { ...this.question.axes, [this.axis]: values[next] };
        const question = { ...this.question, axes };
        const key = JSON.stringify(question);
        if (this.kept.has(key)) continue;
        this.abort = new AbortController();
        try {
          await this.#stream(question, key, new Answer(), this.abort.signal, () => {});
        } catch {
          return; // the slider has moved on, or there is no such machine
        }
      }
    }, 100);
  }

  /** Ask for the pinned machines and the rows of the map, one after another. */
  async #askOthers(signal) {
    for (const question of [...this.#pinQuestions(), ...this.#mapQuestions()]) {
      const key = JSON.stringify(question);
      if (this.kept.has(key) || isLasting(this.growing.get(key))) continue;
      const answer = new Answer();
      this.growing.set(key, answer);
      try {
        await this.#stream(question, key, answer, signal, () => this.#renderSoon());
        this.growing.delete(key);
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        this.growing.set(key, error);
        this.#renderSoon();
      }
    }
  }

  #pinQuestions() {
    const { collective, sizes } = this.question;
    const without = leftOut(this.state, ["configured"]);
    return this.state.pins.map(({ topology, axes }) =>
      ({ topology, collective, axes, sizes, ...(without.length && { without }) }));
  }

  #mapQuestions() {
    if (!this.state.map || !this.machine) return [];
    const question = this.question;
    return mapNodes(this.machine, question.axes.nodes).map((nodes) =>
      ({ ...question, axes: { ...question.axes, nodes } }));
  }

  /** Return what is known of another question: {answer, problem}. */
  #known(question) {
    const key = JSON.stringify(question);
    const found = this.kept.get(key) ?? this.growing.get(key);
    if (found instanceof Refused) return { problem: sentence(found.message) };
    return { answer: found?.isUseful ? found : null };
  }

  #pin() {
    const { topology, axes } = this.question;
    if (this.state.pins.length === MAX_PINS) {
      announce(`${MAX_PINS} machines are pinned already: unpin one`);
      return;
    }
    this.state.pins = [...this.state.pins, { topology, axes: { ...axes } }];
    announce("Pinned: now change the machine, and it is compared with this one");
    this.#commit();
  }

  #unpin(number) {
    this.state.pins = this.state.pins.filter((_, other) => other !== number);
    this.#commit();
  }

  async #showPin(number) {
    const { topology, axes } = this.state.pins[number];
    const before = this.state.topology;
    this.state = { ...this.state, topology, axes: { ...axes } };
    this.#saveUrl(true);
    if (topology !== before) {
      await this.#loadMachine();
      return;
    }
    this.#fillControls();
    this.ask();
  }

  #toggle(card, isOpen) {
    if (this.state[card] === isOpen) return;
    this.state[card] = isOpen;
    this.#commit();
  }

  /** Draw the fastest call at the selected size, where its picture is open. */
  async #drawCall() {
    if (!this.state.picture || !this.shown?.ended) return;
    const at = this.selected;
    await this.picture.show(this.question, this.shown.best(at).candidate, this.shown.sizes[at]);
  }

  #goTo(nodes, size) {
    this.state.axes.nodes = nodes;
    this.state.size = size;
    this.#fillControls();
    this.#commit();
  }

  #show(answer) {
    this.phase.textContent = answer.isCompiling
      ? "Compiling the simulation. That takes up to a minute, once after an installation."
      : this.shown || answer.isUseful ? "" : "Planning …";
    if (!answer.isUseful) {
      if (answer.outline && !this.shown) this.progress.value = answer.done;
      return;
    }
    this.shown = answer;
    this.main.classList.remove("stale");
    this.#renderSoon();
  }

  #renderSoon() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = null;
      this.render();
    });
  }

  #incumbent(answer) {
    const wanted = this.state.incumbent;
    const isKnown = wanted === FASTEST || LIBRARIES.has(wanted) || answer.curves.has(wanted);
    if (isKnown || (wanted === NCCL_CHOICE && answer.knowsNccl)) return wanted;
    return answer.knowsNccl ? NCCL_CHOICE : FASTEST;
  }

  get selected() {
    const at = this.shown.sizes.indexOf(this.state.size);
    return at >= 0 ? at : Math.floor(this.shown.sizes.length / 2);
  }

  render() {
    const answer = this.shown;
    if (!answer) return;
    const incumbent = this.#incumbent(answer);
    const view = { incumbent, hidden: this.state.hidden, focus: this.focus, selected: this.selected };
    this.view = view;
    this.progress.value = answer.ended ? 1 : answer.done;
    this.progress.classList.toggle("done", answer.ended);
    this.#fillIncumbents(answer, incumbent);
    this.headline.textContent = headline(answer, incumbent, this.selected);
    this.ratioTitle.textContent = `Time relative to ${incumbentName(incumbent)}`;
    this.ratioNote.hidden = !leavesChart(answer, view);
    for (const chart of this.charts) chart.draw(answer, view);
    this.#fillStrip(answer);
    this.#fillLegend(answer);
    this.#fillHelp(answer);
    this.#fillTable(answer, incumbent);
    this.#fillNotes(answer);
    this.#fillOthers(answer);
    this.actions.inert = !this.machine;
    this.main.dataset.state = answer.ended ? "complete" : "partial";
    this.main.dataset.shown = JSON.stringify(answer.outline.nodes);
  }

  #fillIncumbents(answer, incumbent) {
    const known = [
      ...(answer.knowsNccl ? [NCCL_CHOICE] : []), ...LIBRARIES.keys(), FASTEST, ...[...answer.curves.keys()].sort(),
    ];
    const key = known.join();
    if (key !== this.incumbentKey || !this.incumbent.length) {
      this.incumbentKey = key;
      this.incumbent.replaceChildren(
        ...known.map((name) => h("option", { value: name }, incumbentName(name))),
      );
    }
    this.incumbent.value = incumbent;
  }

  /** Two bars over the sizes: the fastest algorithm, and what limits it. */
  #fillStrip(answer) {
    const bars = [
      ["Fastest", (at) => answer.best(at).algorithm, (name) => colourOf(name)],
      ["Limit", (at) => answer.limit(at), () => null],
    ];
    this.strip.replaceChildren(
      ...bars.map(([title, of, colour]) =>
        h("div.bar", {}, h("span.bar-title", {}, title),
          h("div.runs", {}, answer.runs(of).map((run) => {
            const sizes = answer.sizeRange(run, formatSize);
            const element = h("button.run",
              { type: "button", title: `${run.value || "…"}: ${sizes}`, click: () => this.#select(run.from) },
              h("span", {}, run.value || "…"), h("small", {}, sizes));
            element.style.flexGrow = run.to - run.from + 1;
            if (colour(run.value)) element.style.borderTopColor = colour(run.value);
            return element;
          })))),
    );
  }

  #fillLegend(answer) {
    const winners = answer.winners;
    const known = new Set([...answer.curves.keys(), ...this.state.hidden]);
    const others = [...known].filter((name) => !winners.includes(name)).sort();
    const item = (name) => {
      const box = h("input", {
        type: "checkbox", checked: !this.state.hidden.has(name),
        change: () => {
          if (box.checked) this.state.hidden.delete(name);
          else this.state.hidden.add(name);
          this.#commit(); // what is left out is not named as the fastest, nor as what limits it
        },
      });
      const swatch = h("span.swatch");
      swatch.style.background = winners.includes(name) ? colourOf(name) : "var(--faint)";
      const focus = (value) => () => { this.focus = value; for (const c of this.charts) c.draw(this.shown, { ...this.view, focus: value }); };
      return h("li", { mouseenter: focus(name), mouseleave: focus(null), focusin: focus(name), focusout: focus(null) },
        h("label", {}, box, swatch, name));
    };
    const key = JSON.stringify([winners, others, [...this.state.hidden], document.documentElement.dataset.theme]);
    if (key === this.legendKey) return;
    this.legendKey = key;
    this.legend.replaceChildren(
      ...winners.map(item),
      ...(others.length
        ? [h("li.others", {}, h("details", { open: this.legend.querySelector("details")?.open },
            h("summary", {}, `${others.length} others, in grey`), h("ul.legend", {}, others.map(item))))]
        : []),
    );
  }

  #fillHelp(answer) {
    const at = this.selected;
    const best = answer.best(at);
    const size = formatSize(answer.sizes[at]);
    const limit = answer.limit(at);
    const rows = Object.entries(answer.outline.resources).map(([resource, title]) => {
      const gain = answer.gains.get(resource)?.[at];
      const meter = h("meter", { min: 1, max: 2, value: gain ?? 1, "aria-label": title });
      return h("tr", { class: title === limit ? "limit" : null }, h("th", { scope: "row" }, title), h("td", {}, meter),
        h("td.number", {}, gainText(gain)));
    });
    this.help.replaceChildren(
      h("h2", {}, `What would help at ${size}`),
      h("p", {}, `${callSentence(best)}. Times as fast with one resource twice as fast; the limit is in bold:`),
      h("table.help", {}, h("tbody", {}, rows)),
      h("p", {}, h("a", { href: callUrl(this.question, best.candidate, answer.sizes[at]) }, "Inside this call")),
      h("p.muted", {}, "Choose another size in a chart or in the table."),
    );
  }

  #fillTable(answer, incumbent) {
    const others = incumbent !== FASTEST;
    const rows = answer.sizes.map((size, at) => {
      const best = answer.best(at);
      const base = answer.incumbentSeconds(incumbent, at);
      const dot = h("span.swatch");
      dot.style.background = colourOf(best.algorithm);
      return h("tr", { "aria-current": at === this.selected ? "true" : null },
        h("th", { scope: "row" },
          h("button.plain", { type: "button", click: () => this.#select(at) }, formatSize(size))),
        h("td", {}, dot, best.candidate), h("td.number", {}, formatTime(best.seconds)),
        h("td", {}, MODELS[best.predictedBy]),
        others && h("td.number", {}, base ? formatTime(base) : "…"),
        others && h("td.number", {}, base ? formatRatio(base / best.seconds) : "…"),
        h("td", {}, answer.limit(at) || "…"));
    });
    const heads = ["size", "fastest", "time", "predicted by", ...(others ? [incumbentName(incumbent), "times as long"] : []), "limit"];
    const focused = document.activeElement?.closest?.("tr");
    const place = focused && this.table.contains(focused) ? focused.rowIndex - 1 : -1;
    this.table.replaceChildren(
      h("table.sizes-table", {}, h("thead", {}, h("tr", {}, heads.map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, rows)),
    );
    if (place >= 0) rows[place].querySelector("button").focus();
  }

  #fillNotes(answer) {
    const { cautions, notes, accuracy } = answer.outline;
    const limit = answer.outline.network_limit;
    this.notes.replaceChildren(
      ...cautions.map((text) => h("p.caution", {}, withLabels(sentence(text)))),
      ...(answer.ended && answer.skipped.length
        ? [h("details", {}, h("summary", {}, `${answer.skipped.length} candidates are not priced here, as that would take long`),
            h("p", {}, `${answer.skipped.join(", ")}. The command prices all.`))]
        : []),
      ...notes.map((text) => h("p", {}, sentence(text))),
      ...(limit ? [h("p", {}, `A GPU's traffic between nodes is bounded by ${limit}.`)] : []),
      h("p", {}, sentence(accuracy)),
    );
  }

  #fillOthers(answer) {
    if (answer.sizes.join() !== this.question.sizes.join()) return; // those of the last question
    const titles = new Map([
      ...this.catalogue.machines.map((one) => [one.topology, one.title]),
      ...this.topologies.map((one) => [String(one.id), one.name]),
    ]);
    const questions = this.#pinQuestions();
    const labels = machineLabels([this.question, ...questions], titles).slice(1);
    const pinned = questions.map((question, n) => ({ label: labels[n], ...this.#known(question) }));
    this.pins.draw(answer, pinned, this.selected);
    this.map.open(this.state.map);
    this.picture.open(this.state.picture);
    this.map.draw(this.#mapQuestions().map((question) => {
      const { nodes } = question.axes;
      return { nodes, isHere: nodes === this.question.axes.nodes, ...this.#known(question) };
    }));
    this.main.dataset.others = [...this.#pinQuestions(), ...this.#mapQuestions()].every((question) =>
      this.kept.has(JSON.stringify(question)) || this.#known(question).problem) ? "complete" : "partial";
  }

  #fillActions() {
    const button = (text, action) => h("button", { type: "button", click: action }, text);
    const name = () => `what-if-${this.machine.name}-${this.state.collective}`;
    const svg = () => ratioSvg(this.shown, this.view, title(this.shown), incumbentName(this.view.incumbent));
    this.actions.replaceChildren(
      button("Pin this machine", () => this.#pin()),
      button("Copy link", () => copyText(location.href, "The link")),
      button("Copy as command", () => copyText(shellCommand(this.question, this.machine), "The command")),
      button("Copy as YAML", () => copyText(studyYaml(this.question, this.machine), "The study")),
      button("Copy as curl", () => copyText(`${curlPost("/v1/what-if", this.question, "-sN")}\n`, "The request")),
      button("CSV", () => saveFile(`${name()}.csv`, answerCsv(this.shown, this.view.incumbent), "text/csv")),
      button("SVG", () => saveFile(`${name()}.svg`, svg(), "image/svg+xml")),
      button("PNG", async () => saveFile(`${name()}.png`, await svgToPng(svg()), "image/png")),
    );
  }

  #select(at) {
    this.state.size = this.shown.sizes[at];
    this.#saveUrl(false);
    this.render();
    this.#drawCall().catch((error) => this.#showProblem(error));
  }

  #showHover(at) {
    const best = at === null ? null : this.shown?.best(at);
    if (!best) {
      this.hover.textContent = "\u00a0";
      return;
    }
    const base = this.shown.incumbentSeconds(this.view.incumbent, at);
    const relative = base ? `, ${formatRatio(best.seconds / base)} of ${incumbentName(this.view.incumbent)}` : "";
    this.hover.textContent = `${formatSize(this.shown.sizes[at])}: ${callSentence(best)}${relative}`;
  }

  #showProblem(error) {
    this.problem.textContent = withLabels(problemText(error));
    this.problem.hidden = false;
  }

  /** Say why the question has no answer; what stays on the page answers an earlier one. */
  #refuse(error) {
    this.#showProblem(error);
    this.phase.textContent = "";
    this.progress.classList.add("done");
    this.main.classList.add("stale");
  }
}

/** Return whether a problem stays when the same is asked again. */
function isLasting(problem) {
  return problem instanceof Refused && [404, 422].includes(problem.status);
}

/** Return a sentence of one size for screen readers and tooltips. */
function callSentence(call) {
  return `${call.candidate}, ${formatTime(call.seconds)} (${MODELS[call.predictedBy]})`;
}

function gainText(gain) {
  if (gain === undefined) return "…";
  if (gain === null) return "not known";
  return gain < 1.005 ? "no faster" : formatRatio(gain);
}

function incumbentName(incumbent) {
  const own = { [NCCL_CHOICE]: "NCCL's own choice", [FASTEST]: "the fastest" };
  return own[incumbent] ?? LIBRARIES.get(incumbent) ?? incumbent;
}

/** Return a text of the service with the labels of the controls instead of the names of axes. */
function withLabels(text) {
  return text.replaceAll(/\b[a-z]+_[a-z]+\b/g, (name) => (AXIS_LABELS[name] ? `"${AXIS_LABELS[name]}"` : name));
}

function title(answer) {
  const { machine, nodes, ppn, collective } = answer.outline;
  return `${collective} on ${nodes} × ${ppn} ranks of ${machine}`;
}

/** Say what is fastest at the selected size, what limits it, and where a change would pay most. */
function headline(answer, incumbent, at) {
  const { collective, nodes, ppn } = answer.outline;
  const where = `${collective} of ${formatSize(answer.sizes[at])} on ${formatCount(nodes * ppn)} ranks`;
  const limit = answer.limit(at);
  return [
    `${where}: the fastest is ${callSentence(answer.best(at))}${comparison(answer, incumbent, at)}.`,
    limit && `Limit: ${limit}.`,
    incumbent !== FASTEST && mostGained(answer, incumbent, at),
  ].filter(Boolean).join(" ");
}

function comparison(answer, incumbent, at) {
  if (incumbent === FASTEST) return "";
  const base = answer.incumbentSeconds(incumbent, at);
  if (!base) return `; what ${incumbentName(incumbent)} takes is not known`;
  const ratio = base / answer.best(at).seconds;
  if (ratio < MIN_RATIO) return `; ${incumbentName(incumbent)} is as fast`;
  const candidate = answer.incumbentCandidate(incumbent, at);
  return `, ${formatRatio(ratio)} as fast as ${incumbentName(incumbent)}${candidate && ` (${candidate})`}`;
}

/** Say at which other size the most is gained, if more than at the selected one. */
function mostGained(answer, incumbent, at) {
  const ratios = answer.sizes.map((_, size) => answer.incumbentSeconds(incumbent, size) / answer.best(size).seconds || 1);
  const most = Math.max(...ratios);
  if (most < MIN_RATIO || most <= ratios[at]) return "";
  return `The most is gained at ${formatSize(answer.sizes[ratios.indexOf(most)])}: ${formatRatio(most)}.`;
}
