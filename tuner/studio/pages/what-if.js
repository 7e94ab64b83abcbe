// The what-if page: a machine with its axes, and the answer while it is computed.
import { Address } from "./address.js";
import { FASTEST, NCCL_CHOICE } from "./answer.js";
import { Answers } from "./answers.js";
import { Refused, getJson, problemText, uploadTopology } from "./api.js";
import { CallPicture } from "./call_picture.js";
import { Chart, leavesChart } from "./charts.js";
import {
  axisControls, configuredRow, fileField, machineOptions, machineSentence, selectRow, sizeSelect, uploadedTitle,
} from "./controls.js";
import { CrossoverMap, mapNodes } from "./crossover.js";
import { announce, copyText, fill, h, saveFile } from "./dom.js";
import { svgToPng } from "./export.js";
import { formatRatio, formatSize } from "./format.js";
import { setAlgorithms } from "./palette.js";
import { Pins, machineLabels } from "./pins.js";
import {
  LIBRARIES, MAX_PINS, isUploaded, leftOut, questionOfState, sliderValues, stateOfUrl, urlOfState,
} from "./question.js";
import { curlPost } from "./shell.js";
import { answerCsv, ratioSvg, shellCommand, studyYaml } from "./whatif_export.js";
import { callSentence, headline, incumbentName, title, withLabels } from "./whatif_texts.js";
import { Legend, SizesTable, helpParts, noteParts, stripBars } from "./whatif_view.js";

const PATH = "/studio/what-if";
const AHEAD = ["nodes", "ppn"]; // axes whose next values need new schedules, and so take longest
const JOINED = "{nodes: 16, latency: 2us, bandwidth: 25GB/s}"; // of nodes whose network nobody has described
const AHEAD_DELAY_MS = 100; // in which a slider may move on

export async function show(main) {
  const page = new WhatIf(main);
  addEventListener("popstate", () => page.restore());
  addEventListener("themechange", () => page.render());
  await page.start();
}

class WhatIf {
  catalogue;

  constructor(main) {
    this.main = main;
    this.address = new Address();
    this.state = stateOfUrl(location.search);
    this.answers = new Answers();
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
    this.legend = new Legend((name) => this.#showFocus(name), (name, isShown) => this.#hide(name, !isShown));
    this.help = h("section.card");
    this.table = new SizesTable((at) => this.#select(at));
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
          h("div.summary", {}, this.problem, this.headline, this.progress, this.phase, this.strip), this.actions,
          h("section.card", {}, this.ratioTitle, this.ratioNote, ratio, this.hover, this.legend.element),
          h("div.pair", {}, h("section.card", {}, h("h2", {}, "Time"), time), this.help),
          this.pins.element, this.map.element, this.picture.element,
          h("section.card", {}, h("h2", {}, "By size"), this.table.element),
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
    const load = (this.load = Symbol("load"));
    this.machine = null;
    this.actions.inert = true;
    this.abort?.abort();
    clearTimeout(this.aheadTimer);
    let [machine, problem] = [null, null];
    try {
      machine = await getJson(`/v1/what-if/machine?topology=${encodeURIComponent(this.state.topology)}`);
    } catch (error) {
      problem = error;
    }
    await this.offered;
    if (load !== this.load) return; // another machine was chosen meanwhile
    this.machine = machine;
    this.#fillControls();
    if (problem) this.#refuse(problem);
    else this.ask();
  }

  #fillControls() {
    const state = this.state;
    const machines = machineOptions(this.catalogue, this.topologies, state.topology);
    const collectives = Object.keys(this.catalogue.algorithms).map((name) => [name, name]);
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
      h("div.row", {}, fileField("upload", "Upload a topology", (file) => this.#store(file))),
      this.machine && h("p.fabric", {}, machineSentence(this.machine)),
      this.#isUploadedNode() &&
        h("div.row", {}, h("button", { type: "button", click: () => this.#join() }, "Join several such nodes")),
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
    // The controls keep this state: what is typed before they are those of the machine counts for it.
    Object.assign(this.state, { topology, axes: {}, incumbent: "", hidden: new Set() });
    this.#saveUrl(true);
    await this.#loadMachine();
    this.#saveUrl(false); // with what was typed meanwhile
  }

  /** Store a topology, and ask about it. */
  async #store(file) {
    try {
      const stored = await uploadTopology(file);
      this.topologies = (await getJson("/v1/topologies?limit=1000")).items;
      announce(`${stored.name} is stored`);
      await this.#chooseMachine(String(stored.id));
    } catch (error) {
      this.#showProblem(error);
    }
  }

  /** Whether the machine is one node with NICs that was uploaded. */
  #isUploadedNode() {
    return this.machine?.nodes === 1 && this.machine.nics > 0 && isUploaded(this.state.topology);
  }

  /** Store nodes like this one at one switch, whose number and links the controls then change. */
  async #join() {
    const { name, nics } = this.machine;
    await this.#store(`name: ${JSON.stringify(`nodes like ${name}`)}\n` +
      `combine: {fabric: ${JOINED}, node: ${this.state.topology}, rails: ${nics}}\n`);
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
    clearTimeout(this.aheadTimer);
    if (!this.machine) return;
    const question = questionOfState(this.state, this.machine);
    this.question = question;
    const known = this.answers.get(question);
    this.problem.hidden = true;
    const abort = (this.abort = new AbortController());
    try {
      if (known) this.#show(known);
      else await this.answers.ask(question, abort.signal, { first: this.#leaders(), onLine: (one) => this.#show(one) });
      await this.#drawCall();
      await this.answers.askAll(
        [...this.#pinQuestions(), ...this.#mapQuestions()], abort.signal, () => this.#renderSoon());
      this.#askAheadSoon(abort.signal);
    } catch (error) {
      if (!abort.signal.aborted) this.#refuse(error);
    }
  }

  /** Return the labels of the schedules that are worth knowing first. */
  #leaders() {
    return this.shown?.leaders(this.#incumbent(this.shown)) ?? [];
  }

  /** Ask for what the sliders may move to next, so that it is there at once; others have precedence. */
  #askAheadSoon(signal) {
    if (signal.aborted) return;
    this.aheadTimer = setTimeout(async () => {
      const axes = new Set([this.axis, ...AHEAD].filter((axis) => this.machine.axes.includes(axis)));
      for (const question of [...axes].flatMap((axis) => this.#neighbours(axis))) {
        if (this.answers.get(question)) continue;
        try {
          await this.answers.ask(question, signal, { first: this.#leaders(), ahead: true });
        } catch (error) {
          if (signal.aborted || !(error instanceof Refused)) return;
        }
      }
    }, AHEAD_DELAY_MS);
  }

  /** Return the questions of the next and the last value of a slider; none for what is no slider. */
  #neighbours(axis) {
    const values = sliderValues(axis, this.machine);
    const place = values.indexOf(this.question.axes[axis]);
    if (place < 0) return [];
    return [place + 1, place - 1]
      .filter((next) => values[next] !== undefined)
      .map((next) => ({ ...this.question, axes: { ...this.question.axes, [axis]: values[next] } }));
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
    this.strip.replaceChildren(...stripBars(answer, (at) => this.#select(at)));
    this.legend.draw(answer, this.state.hidden);
    this.help.replaceChildren(...helpParts(answer, this.selected, this.question));
    this.table.draw(answer, incumbent, this.selected);
    fill(this.notes, ...noteParts(answer));
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

  #fillOthers(answer) {
    if (answer.sizes.join() !== this.question.sizes.join()) return; // those of the last question
    const titles = new Map([
      ...this.catalogue.machines.map((one) => [one.topology, one.title]),
      ...this.topologies.map((one) => [String(one.id), uploadedTitle(one)]),
    ]);
    const questions = this.#pinQuestions();
    const labels = machineLabels([this.question, ...questions], titles).slice(1);
    const pinned = questions.map((question, n) => ({ label: labels[n], ...this.answers.known(question) }));
    this.pins.draw(answer, pinned, this.selected);
    this.map.open(this.state.map);
    this.picture.open(this.state.picture);
    this.map.draw(this.#mapQuestions().map((question) => {
      const { nodes } = question.axes;
      return { nodes, isHere: nodes === this.question.axes.nodes, ...this.answers.known(question) };
    }));
    this.main.dataset.others = [...this.#pinQuestions(), ...this.#mapQuestions()].every(
      (question) => this.answers.isKnown(question)) ? "complete" : "partial";
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

  #showFocus(name) {
    this.focus = name;
    for (const chart of this.charts) chart.draw(this.shown, { ...this.view, focus: name });
  }

  /** Leave an algorithm out, so that it is not named as the fastest, or take it in again. */
  #hide(name, isHidden) {
    if (isHidden) this.state.hidden.add(name);
    else this.state.hidden.delete(name);
    this.#commit();
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
