// The training page: a model on a machine, and its prediction while it is computed.
import { Address } from "./address.js";
import { getJson, problemText, send, streamLines, uploadTopology } from "./api.js";
import { announce, copyText, fill, h, saveFile } from "./dom.js";
import { svgToPng } from "./export.js";
import { formatCount, formatTime, plural } from "./format.js";
import { inkOf, setAlgorithms } from "./palette.js";
import { curlPost } from "./shell.js";
import { linearTicks } from "./ticks.js";
import { IterationTimeline } from "./training_timeline.js";
import { TrainingAnswer } from "./training_answer.js";
import { chartsSvg, efficiencyChart, partsChart, rateChart, variantsChart } from "./training_charts.js";
import { trainingControls } from "./training_controls.js";
import { trainingCommand, trainingCsv, workloadYaml } from "./training_export.js";
import {
  OWN_TABLE, axesOfPublished, epochOf, packedLayers, ppnOf, questionOfState, settingsOf, stateOfPublished, stateOfUrl, urlOfState,
} from "./training_question.js";
import {
  RanksTable, barSentence, bestParts, callsTable, figures, headline, helpParts, noteParts, partsLegend, phaseColour, phasesLegend,
  scalingLegend, variantsLegend,
} from "./training_view.js";

const PATH = "/studio/training";
const MAX_ANSWERS = 40; // kept in the page

export async function show(main) {
  const page = new Training(main);
  addEventListener("popstate", () => page.restore());
  addEventListener("themechange", () => page.redraw());
  await page.start();
}

class Training {
  catalogue;

  constructor(main) {
    this.main = main;
    this.address = new Address();
    this.kept = new Map(); // JSON of a question -> its lines
    this.shown = null; // the answer that is on the page
    this.abort = null;
  }

  async start() {
    this.#layOut();
    this.state = await stateOfUrl(location);
    const [catalogue, names, topologies] = await Promise.all([
      getJson("/v1/training/catalogue"), getJson("/v1/what-if/catalogue"), getJson("/v1/topologies?limit=1000"),
    ]);
    setAlgorithms(names.algorithms);
    [this.catalogue, this.topologies] = [catalogue, topologies.items];
    this.algorithms = names.algorithms.allreduce;
    await this.#loadMachine();
  }

  /** Show what the URL says, after the back button. */
  async restore() {
    const before = this.state.topology;
    this.address.restore();
    this.state = await stateOfUrl(location);
    if (this.state.topology === before && this.machine) {
      this.#fillControls();
      this.ask();
    } else {
      await this.#loadMachine();
    }
  }

  #layOut() {
    this.controls = h("section.controls", { "aria-label": "Workload and machine" });
    this.headline = h("p.headline", { "aria-live": "polite" }, "\u00a0");
    this.progress = h("progress", { max: 1, value: 0, "aria-label": "Steps predicted" });
    this.problem = h("p.error", { role: "alert", hidden: true });
    this.figures = h("dl.figures");
    this.actions = h("div.actions", { inert: true });
    this.places = { rate: h("div.svg-chart"), efficiency: h("div.svg-chart"), parts: h("div.svg-chart"), variants: h("div.svg-chart") };
    this.partsLegend = h("ul.legend");
    this.scalingLegend = h("ul.legend");
    this.variantsLegend = h("ul.legend");
    this.best = h("p");
    this.timelineTitle = h("h2");
    this.timelineLegend = h("ul.legend");
    this.help = h("section.card");
    this.calls = h("div.scroll", { tabindex: 0, role: "region", "aria-label": "Calls of an iteration" });
    this.table = new RanksTable((ranks) => this.#chooseRanks(ranks));
    this.notes = h("section.notes");
    const timeline = h("div");
    this.variantsCard = h("section.card", {},
      h("h2", {}, "Buckets and algorithms"), this.best, this.places.variants, this.variantsLegend);
    this.timelineCard = h("section.card", {}, this.timelineTitle, this.#timelineButtons(), timeline, this.timelineLegend);
    this.main.replaceChildren(
      h("div.columns", {}, this.controls,
        h("div.answer", {},
          h("h1.visually-hidden", {}, "Training"),
          h("div.summary", {}, this.problem, this.headline, this.progress), this.figures, this.actions,
          h("section.card", {}, h("h2", {}, "Scaling"),
            h("div.pair.even", {}, this.places.rate, this.places.efficiency), this.scalingLegend),
          h("div.pair.even", {},
            h("section.card", {}, h("h2", {}, "Time of an iteration"), this.places.parts, this.partsLegend),
            this.variantsCard),
          this.timelineCard,
          h("div.pair.even", {}, this.help, h("section.card", {}, h("h2", {}, "Calls of an iteration"), this.calls)),
          h("section.card", {}, h("h2", {}, "By number of ranks"), this.table.element),
          this.notes)),
    );
    this.timeline = new IterationTimeline(timeline, {
      describe: barSentence, format: formatTime, ticks: linearTicks,
      colour: (bar) => phaseColour(bar.phase),
    });
    this.resized = new ResizeObserver(() => this.#drawCharts());
    this.resized.observe(this.figures);
    this.#fillActions();
  }

  #timelineButtons() {
    const button = (text, action, label) => h("button", { type: "button", click: action, "aria-label": label }, text);
    return h("div.actions", {},
      button("+", () => this.timeline.zoomIn(), "Zoom in"),
      button("−", () => this.timeline.zoomOut(), "Zoom out"),
      button("Whole iteration", () => this.timeline.showAll()),
      button("Chrome trace", () => this.#saveTrace()));
  }

  /** Load the machine of the state and ask; `complete` adds to the state what follows from it. */
  async #loadMachine(complete = (_) => {}) {
    const load = (this.load = Symbol("load"));
    this.machine = null;
    this.actions.inert = true;
    this.problem.hidden = true;
    this.#giveUp();
    let [machine, problem] = [null, null];
    try {
      machine = await getJson(`/v1/training/machine?topology=${encodeURIComponent(this.state.topology)}`);
    } catch (error) {
      problem = error;
    }
    if (load !== this.load) return; // another machine was chosen meanwhile
    this.machine = machine;
    if (machine) complete(machine);
    this.#fillControls();
    if (problem) this.#refuse(problem);
    else this.ask();
  }

  /** Give up the answer that is still arriving. */
  #giveUp() {
    this.abort?.abort();
    this.asked = null;
  }

  #fillControls() {
    trainingControls(this.controls, {
      state: this.state, machine: this.machine, catalogue: this.catalogue, topologies: this.topologies, algorithms: this.algorithms,
      moved: () => this.ask(),
      changed: () => this.#commit(),
      rebuilt: () => { this.#fillControls(); this.#commit(); },
      priced: () => { this.#saveUrl(true); this.render(); },
      chooseMachine: (value) => this.#chooseMachine(value),
      choosePublished: (id) => this.#choosePublished(id),
      uploadTopology: (file) => this.#uploadTopology(file),
      uploadLayers: (file) => this.#uploadLayers(file),
    });
  }

  async #chooseMachine(topology) {
    // The controls keep this state: what is typed before they are those of the machine counts for it.
    Object.assign(this.state, { topology, axes: {}, published: "", algorithms: "" });
    this.#saveUrl(true);
    await this.#loadMachine();
    this.#saveUrl(false); // with what was typed meanwhile
  }

  async #choosePublished(id) {
    const entry = this.catalogue.published.find((one) => one.id === id);
    if (!entry) {
      this.state.published = "";
      this.#commit();
      return;
    }
    this.state = stateOfPublished(entry, this.state, this.catalogue);
    await this.#loadMachine((machine) => {
      this.state.axes = axesOfPublished(entry, machine);
      this.#saveUrl(true);
    });
  }

  async #uploadTopology(file) {
    try {
      const stored = await uploadTopology(file);
      this.topologies = (await getJson("/v1/topologies?limit=1000")).items;
      announce(`${stored.name} is stored`);
      await this.#chooseMachine(String(stored.id));
    } catch (error) {
      this.#showProblem(error);
    }
  }

  async #uploadLayers(file) {
    const name = file.name.replace(/\.[^.]*$/, "").replace(/[^\w .-]/g, "_") || "layers";
    this.state.layers = await packedLayers(name, await file.text());
    this.state.model = OWN_TABLE;
    this.state.published = "";
    this.#fillControls();
    this.#commit();
  }

  #commit() {
    this.#saveUrl(true);
    this.ask();
  }

  #saveUrl(isFinished) {
    this.address.save(PATH + urlOfState(this.state), isFinished);
  }

  /** Ask the question of the controls; the answer to another one that is still arriving is given up. */
  async ask() {
    if (!this.machine) return;
    const question = questionOfState(this.state, this.machine, this.catalogue);
    const key = JSON.stringify(question);
    if (key === this.asked) return;
    this.#giveUp();
    this.asked = key;
    this.question = question;
    this.problem.hidden = true;
    this.main.dataset.state = "asked";
    const answer = new TrainingAnswer();
    const known = this.kept.get(key);
    if (known) {
      for (const line of known) answer.add(line);
      this.asked = null;
      this.#show(answer);
      return;
    }
    const abort = (this.abort = new AbortController());
    const lines = [];
    try {
      await streamLines("/v1/training", question, abort.signal, (line) => {
        lines.push(line);
        answer.add(line);
        this.#show(answer);
      });
      this.kept.set(key, lines);
      if (this.kept.size > MAX_ANSWERS) this.kept.delete(this.kept.keys().next().value);
    } catch (error) {
      if (!abort.signal.aborted) this.#refuse(error);
    }
    if (this.asked === key) this.asked = null;
  }

  #show(answer) {
    if (!answer.isUseful) return;
    this.shown = answer;
    this.main.classList.remove("stale");
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = null;
      this.render();
    });
  }

  /** The price of a GPU hour, and the samples of an epoch if they are known. */
  get #prices() {
    return { gpuHour: this.state.gpu_hour, epoch: epochOf(this.state, this.shown.outline.unit) };
  }

  get #view() {
    return {
      choose: (ranks) => this.#chooseRanks(ranks),
      apply: (variant) => this.#apply(variant),
      setting: settingsOf(this.state.framework, this.catalogue).find((one) => one.name === this.shown.outline.setting),
    };
  }

  /** Show another number of ranks in detail, if it is that of whole nodes. */
  #chooseRanks(ranks) {
    if (!this.machine) return;
    const ppn = ppnOf(this.state, this.machine);
    if (ranks % ppn) {
      announce(`Only whole nodes are shown in detail: a node has ${plural(ppn, "rank")}`);
      return;
    }
    this.state.axes.nodes = ranks / ppn;
    this.#fillControls();
    this.#commit();
  }

  #apply(variant) {
    Object.assign(this.state.settings, variant.settings);
    this.state.algorithms = variant.algorithms;
    this.#fillControls();
    this.#commit();
  }

  /** Draw all in the present theme. */
  redraw() {
    this.drawnTimeline = null;
    this.render();
  }

  render() {
    const answer = this.shown;
    if (!answer) return;
    this.progress.value = answer.ended ? 1 : answer.done;
    this.progress.classList.toggle("done", answer.ended);
    const { setting } = this.#view;
    this.headline.textContent = headline(answer);
    fill(this.figures, ...figures(answer, this.#prices));
    this.#drawCharts();
    fill(this.scalingLegend, ...scalingLegend(answer));
    fill(this.partsLegend, ...partsLegend());
    fill(this.variantsLegend, ...variantsLegend(answer, setting));
    fill(this.best, ...bestParts(answer, setting, (variant) => this.#apply(variant)));
    this.#fillTimeline(answer);
    fill(this.help, ...helpParts(answer));
    fill(this.calls, callsTable(answer));
    this.table.draw(answer, this.#prices);
    fill(this.notes, ...noteParts(answer));
    this.actions.inert = !this.machine;
    this.main.dataset.state = answer.ended ? "complete" : "partial";
    this.main.dataset.shown = answer.outline.detail;
  }

  #drawCharts() {
    const answer = this.shown;
    if (!answer) return;
    const [ink, view] = [inkOf(false), this.#view];
    const draw = (place, chart, height) => {
      const width = Math.max(260, place.clientWidth);
      place.replaceChildren(chart(answer, view, { width, height }, ink));
    };
    draw(this.places.rate, rateChart, 280);
    draw(this.places.efficiency, efficiencyChart, 280);
    draw(this.places.parts, partsChart, 300);
    const hasVariants = answer.variants.length > 0 && answer.outline.setting;
    this.places.variants.hidden = !hasVariants;
    if (hasVariants) draw(this.places.variants, variantsChart, 300);
  }

  #fillTimeline(answer) {
    const { timeline, detail } = answer;
    this.timelineTitle.textContent = `One iteration on rank 0 of ${formatCount(detail.ranks)}`;
    this.timelineCard.classList.toggle("waiting", !timeline); // it still shows the last question's
    if (!timeline || timeline === this.drawnTimeline) {
      this.timeline.draw();
      return;
    }
    this.drawnTimeline = timeline;
    const rows = timeline.streams.map((name) => ({ name, bars: [] }));
    for (const [stream, name, phase, start, seconds, nbytes, count, algorithm] of timeline.bars) {
      rows[stream].bars.push({
        name: timeline.names[name], phase: timeline.phases[phase], start, seconds, nbytes, count, algorithm,
      });
    }
    this.timeline.show(rows);
    const phases = timeline.phases.filter((phase) => rows.some((row) => row.bars.some((bar) => bar.phase === phase)));
    fill(this.timelineLegend, ...phasesLegend(phases));
  }

  #fillActions() {
    const button = (text, action) => h("button", { type: "button", click: action }, text);
    const name = () => `training-${this.shown.outline.model}-${this.machine.name}`;
    const entry = () => this.catalogue.published.find((one) => one.id === this.state.published);
    const predicted = () => ({ ...this.question, ranks: this.shown.curve.map((point) => point.ranks) });
    const svg = () => chartsSvg(this.shown, this.#view, this.headline.textContent);
    this.actions.replaceChildren(
      button("Copy link", () => copyText(location.href, "The link")),
      button("Copy as command", () => copyText(trainingCommand(predicted(), this.machine, entry(), this.#prices), "The command")),
      button("Copy as YAML", () => copyText(workloadYaml(predicted(), this.machine, entry(), this.#prices), "The workload")),
      button("Copy as curl", () => copyText(`${curlPost("/v1/training", this.question, "-sN")}\n`, "The request")),
      button("CSV", () => saveFile(`${name()}.csv`, trainingCsv(this.shown, this.#prices.gpuHour, this.#prices.epoch), "text/csv")),
      button("SVG", () => saveFile(`${name()}.svg`, svg(), "image/svg+xml")),
      button("PNG", async () => saveFile(`${name()}.png`, await svgToPng(svg()), "image/png")),
    );
  }

  async #saveTrace() {
    try {
      const trace = await (await send("POST", "/v1/training/trace", this.question)).blob();
      saveFile(`training-${this.shown.outline.model}-${this.shown.outline.detail}.json`, trace, "application/json");
    } catch (error) {
      this.#showProblem(error);
    }
  }

  #showProblem(error) {
    this.problem.textContent = problemText(error);
    this.problem.hidden = false;
  }

  /** Say why the question has no answer; what stays on the page answers an earlier one. */
  #refuse(error) {
    this.#showProblem(error);
    this.progress.classList.add("done");
    this.main.classList.add("stale");
    this.main.dataset.state = "problem";
  }
}
