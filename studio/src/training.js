// The training page: a model on a machine, and its prediction while it is computed.
import { Address } from "./address.js";
import { getJson, problemText, send, streamLines, uploadTopology } from "./api.js";
import { announce, copyText, h, saveFile } from "./dom.js";
import { svgToPng } from "./export.js";
import { formatCount, formatRatio, formatSize, formatTime, plural, sentence } from "./format.js";
import { hue, inkOf, setAlgorithms } from "./palette.js";
import { curlPost } from "./shell.js";
import { linearTicks } from "./ticks.js";
import { Timeline } from "./training_timeline.js";
import { MIN_GAIN, TrainingAnswer, leastOf } from "./training_answer.js";
import {
  PARTS, algorithmsName, chartsSvg, efficiencyChart, formatThroughput, partColour, partsChart, rateChart, variantLook, variantsChart,
} from "./training_charts.js";
import { trainingControls } from "./training_controls.js";
import { trainingCommand, trainingCsv, workloadYaml } from "./training_export.js";
import {
  OWN_TABLE, axesOfPublished, epochOf, formatSetting, packedLayers, ppnOf, questionOfState, settingsOf, stateOfPublished, stateOfUrl,
  urlOfState,
} from "./training_question.js";

const PATH = "/studio/training";
const MAX_ANSWERS = 40; // kept in the page
const PHASE_HUES = { forward: 3, backward: 0, update: 5, copy: 8, communication: 1, computation: 0 };

export async function showTraining(main) {
  const page = new Training(main);
  addEventListener("popstate", () => page.restore());
  addEventListener("themechange", () => page.redraw());
  await page.start();
}

class Training {
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
    this.table = h("div.scroll", { tabindex: 0, role: "region", "aria-label": "Prediction by ranks" });
    this.notes = h("section.notes");
    const timeline = h("div");
    this.variantsCard = h("section.card", {},
      h("h2", {}, "Buckets and algorithms"), this.best, this.places.variants, this.variantsLegend);
    this.timelineCard = h("section.card", {}, this.timelineTitle, this.#timelineButtons(), timeline, this.timelineLegend);
    this.main.replaceChildren(
      h("div.columns", {}, this.controls,
        h("div.answer", {},
          h("h1.visually-hidden", {}, "Training"),
          this.problem, this.headline, this.progress, this.figures, this.actions,
          h("section.card", {}, h("h2", {}, "Scaling"),
            h("div.pair.even", {}, this.places.rate, this.places.efficiency), this.scalingLegend),
          h("div.pair.even", {},
            h("section.card", {}, h("h2", {}, "Time of an iteration"), this.places.parts, this.partsLegend),
            this.variantsCard),
          this.timelineCard,
          h("div.pair.even", {}, this.help, h("section.card", {}, h("h2", {}, "Calls of an iteration"), this.calls)),
          h("section.card", {}, h("h2", {}, "By number of ranks"), this.table),
          this.notes)),
    );
    this.timeline = new Timeline(timeline, {
      describe: (bar) => this.#barSentence(bar), format: formatTime, ticks: linearTicks,
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
  async #loadMachine(complete = () => {}) {
    const { state } = this;
    this.machine = null;
    this.actions.inert = true;
    this.problem.hidden = true;
    this.#giveUp();
    let [machine, problem] = [null, null];
    try {
      machine = await getJson(`/v1/training/machine?topology=${encodeURIComponent(state.topology)}`);
    } catch (error) {
      problem = error;
    }
    if (state !== this.state) return; // another machine was chosen meanwhile
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
    this.state = { ...this.state, topology, axes: {}, published: "", algorithms: "" };
    this.#saveUrl(true);
    await this.#loadMachine();
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

  get #samples() {
    return epochOf(this.state, this.shown.outline.unit);
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
    this.headline.textContent = this.#headline(answer);
    this.#fillFigures(answer);
    this.#drawCharts();
    this.#fillLegends(answer);
    this.#fillBest(answer);
    this.#fillTimeline(answer);
    this.#fillHelp(answer);
    this.#fillCalls(answer);
    this.#fillTable(answer);
    this.#fillNotes(answer);
    this.actions.inert = !this.machine;
    this.main.dataset.state = answer.ended ? "complete" : "partial";
    this.main.dataset.shown = answer.outline.detail;
  }

  #headline(answer) {
    const { detail, outline } = answer;
    const ranks = `${formatCount(detail.ranks)} rank${detail.ranks > 1 ? "s" : ""}`;
    const limit = answer.limits ? (answer.limits.limit === "computation" ? "; computation limits it" : `; the limit is ${answer.limits.limit}`) : "";
    return (
      `${outline.model} on ${ranks} of ${outline.machine}: ${formatThroughput(answer.rate(detail))} ${outline.unit} per second, ` +
      `${(100 * detail.efficiency).toFixed(1)}% of ideal scaling${limit}.`
    );
  }

  #fillFigures(answer) {
    const { detail, outline } = answer;
    const { gpu_hour: price } = this.state;
    const figure = (name, value, more) => h("div.figure", {}, h("dt", {}, name), h("dd", {}, value, more && h("small", {}, more)));
    const parts = answer.parts(detail);
    const share = (seconds) => `${((100 * seconds) / detail.seconds).toFixed(1)}%`;
    const cost = answer.costOfMillion(detail, price);
    const items = [
      figure(`${outline.unit} per second`, formatThroughput(answer.rate(detail)), `${formatThroughput(answer.rate(detail) / detail.ranks)} each`),
      figure("iteration", formatTime(detail.seconds), `${formatTime(detail.compute)} computation`),
      figure("exposed communication", shortTime(parts.exposed), share(parts.exposed)),
      figure("hidden communication", shortTime(parts.overlapped), share(parts.overlapped)),
      figure("waiting", shortTime(parts.waiting), share(parts.waiting)),
      figure(`cost per million ${outline.unit}`, formatMoney(cost), `${formatMoney(answer.hourly(detail, price))} per hour, in the currency of the GPU hour's price`),
    ];
    if (this.#samples) {
      const epoch = answer.epoch(detail, this.#samples, price);
      items.push(figure("epoch", formatDuration(epoch.seconds), `costs ${formatMoney(epoch.cost)}`));
    }
    this.figures.replaceChildren(...items);
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

  #fillLegends(answer) {
    const swatch = (colour, round) => {
      const element = h(round ? "span.swatch.round" : "span.swatch");
      element.style.background = colour;
      return element;
    };
    const item = (colour, text, round) => h("li", {}, swatch(colour, round), text);
    const has = answer.curve.some((point) => point.published);
    this.scalingLegend.replaceChildren(
      item(hue(0), "predicted", true), item("var(--muted)", "ideal, dashed"), ...(has ? [item(hue(1), "published")] : []),
      h("li.muted", {}, "Choose a number of ranks in a chart."));
    this.partsLegend.replaceChildren(...PARTS.toReversed().map((part) => item(partColour(part), part[1])));
    const known = this.#view.setting;
    this.variantsLegend.replaceChildren(...[...answer.variantsByAlgorithms].map(([name, own]) => {
      const least = leastOf(own);
      const at = known ? ` at ${formatSetting(known, least.settings[known.name])}` : "";
      return item(hue(variantLook(answer, name)[0]), `${algorithmsName(name)}: ${formatTime(least.seconds)}${at}`, true);
    }));
  }

  #fillBest(answer) {
    const { bestVariant: best, detail, outline } = answer;
    const known = this.#view.setting;
    if (!best) {
      this.best.textContent = outline.detail === 1 ? "One rank alone exchanges nothing." : "Being predicted …";
      return;
    }
    const setting = outline.setting ? `${outline.setting.replaceAll("_", " ")} ${formatSetting(known, best.settings[outline.setting])} and ` : "";
    const gain = detail.seconds / best.seconds;
    const so = gain < MIN_GAIN
      ? "Nothing that was tried is faster than the settings as they are."
      : `${answer.ended ? "The fastest is" : "So far the fastest is"} ${setting}${algorithmsName(best.algorithms)}: ${formatTime(best.seconds)}, ${gain.toFixed(3)} times as fast as now.`;
    this.best.replaceChildren(so, gain < MIN_GAIN ? "" : " ", ...(gain < MIN_GAIN ? [] : [
      h("button.plain.use", { type: "button", click: () => this.#apply(best) }, "Use it")]));
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
    this.timelineLegend.replaceChildren(...phases.map((phase) => {
      const swatch = h("span.swatch");
      swatch.style.background = phaseColour(phase);
      return h("li", {}, swatch, phase === "communication" ? "collective calls" : phase);
    }), h("li.muted", {}, "Drag to move, + and − zoom, Ctrl and wheel, too."));
  }

  #barSentence(bar) {
    const call = bar.nbytes ? `, ${formatSize(bar.nbytes)}${bar.count > 1 ? ` × ${bar.count}` : ""}, ${bar.algorithm}` : "";
    return `${bar.name} (${bar.phase})${call}: ${formatTime(bar.seconds)}, from ${bar.start ? formatTime(bar.start) : "0"} on`;
  }

  #fillHelp(answer) {
    const { limits, outline } = answer;
    const gains = limits ? Object.entries(limits.limits).sort((a, b) => b[1] - a[1]) : [];
    const rows = gains.map(([name, gain]) => {
      const title = outline.limits[name] ?? name;
      return h("tr", {}, h("th", { scope: "row" }, title),
        h("td", {}, h("meter", { min: 1, max: 2, value: Math.min(2, gain), "aria-label": title })),
        h("td.number", {}, gain < 1.005 ? "no faster" : formatRatio(gain)));
    });
    this.help.replaceChildren(
      h("h2", {}, "What would help"),
      h("p", {}, limits ? `Limited by ${limits.limit}; times as fast with one thing twice as fast:` : "Being predicted …"),
      h("table.help", {}, h("tbody", {}, rows)),
    );
  }

  #fillCalls(answer) {
    const alike = new Map();
    for (const call of answer.detail.calls) {
      const cells = [call.operation, formatSize(call.nbytes), String(call.group.size), call.algorithm.replace(" via schedule", "")];
      const own = alike.get(cells.join()) ?? { cells, count: 0, seconds: 0 };
      own.count += call.count;
      own.seconds += call.count * call.seconds;
      alike.set(cells.join(), own);
    }
    const rows = [...alike.values()].sort((a, b) => b.seconds - a.seconds).slice(0, 12);
    if (!rows.length) {
      this.calls.replaceChildren(h("p.muted", {}, answer.outline.detail === 1 ? "One rank alone makes no calls: take more nodes." : "This framework makes no collective calls."));
      return;
    }
    const heads = ["call", "size", "ranks", "algorithm", "count", "all"];
    this.calls.replaceChildren(h("table", {}, head(heads), h("tbody", {}, rows.map((row) =>
      h("tr", {}, row.cells.map((cell) => h("td", {}, cell)), h("td.number", {}, String(row.count)), h("td.number", {}, formatTime(row.seconds)))))));
  }

  #fillTable(answer) {
    const { unit, detail } = answer.outline;
    const price = this.state.gpu_hour;
    const hasPublished = answer.curve.some((point) => point.published);
    const heads = ["ranks", "nodes", "iteration", "exposed", "waiting", `${unit}/s`, "efficiency", ...(hasPublished ? ["published"] : []),
      `cost per million ${unit}`, ...(this.#samples ? ["epoch"] : [])];
    const rows = answer.curve.map((point) =>
      h("tr", { "aria-current": point.ranks === detail ? "true" : null },
        h("th", { scope: "row" }, h("button.plain", { type: "button", click: () => this.#chooseRanks(point.ranks) }, formatCount(point.ranks))),
        h("td.number", {}, String(point.nodes)), h("td.number", {}, formatTime(point.seconds)),
        ...["exposed", "waiting"].map((part) => h("td.number", {}, shortTime(answer.parts(point)[part]))),
        h("td.number", {}, formatThroughput(answer.rate(point))), h("td.number", {}, `${(100 * point.efficiency).toFixed(1)}%`),
        hasPublished && h("td.number", {}, point.published ? `${(100 * point.published.efficiency).toFixed(1)}%` : ""),
        h("td.number", {}, formatMoney(answer.costOfMillion(point, price))),
        this.#samples && h("td.number", {}, formatDuration(answer.epoch(point, this.#samples, price).seconds))));
    const focused = document.activeElement?.closest?.("tr");
    const place = focused && this.table.contains(focused) ? focused.rowIndex - 1 : -1;
    this.table.replaceChildren(h("table", {}, head(heads), h("tbody", {}, rows)));
    if (place >= 0) rows[place]?.querySelector("button").focus();
  }

  #fillNotes(answer) {
    const { outline, problems } = answer;
    const alone = outline.rate_alone;
    const sources = new Set(answer.curve.filter((point) => point.published).map((point) => point.published.source));
    const ofRanks = problems.filter((one) => one.kind === "point").map((one) => `${one.ranks}: ${one.problem}`);
    const others = problems.filter((one) => one.kind !== "point").map((one) => one.problem);
    const more = (title, items) => items.length > 0 && h("details", {}, h("summary", {}, title), items.map((text) => h("p", {}, sentence(text))));
    this.notes.replaceChildren(...[
      ...outline.cautions.map((text) => h("p.caution", {}, sentence(text))),
      more(`${ofRanks.length} numbers of ranks cannot be predicted`, ofRanks),
      more(`${others.length} variants or limits cannot be predicted`, [...new Set(others)]),
      answer.ended && more(`${answer.skipped.length} predictions are left out here, as they would take long`, answer.skipped),
      answer.timeline?.omitted > 0 && h("p", {}, `The timeline leaves out ${formatCount(answer.timeline.omitted)} bars at its end; the Chrome trace has all.`),
      ...[...sources].map((source) => h("p", {}, `Published: ${source}.`)),
      h("p", {}, `One rank alone: ${formatThroughput(alone.samples_per_second * outline.per_sample)} ${outline.unit} per second (${alone.certainty}: ${alone.source}); ${formatCount(outline.parameters)} parameters, ${outline.precision}.`),
      h("p", {}, sentence(outline.accuracy)),
    ].filter(Boolean));
  }

  #fillActions() {
    const button = (text, action) => h("button", { type: "button", click: action }, text);
    const name = () => `training-${this.shown.outline.model}-${this.machine.name}`;
    const entry = () => this.catalogue.published.find((one) => one.id === this.state.published);
    const prices = () => ({ gpuHour: this.state.gpu_hour, epoch: this.#samples });
    const predicted = () => ({ ...this.question, ranks: this.shown.curve.map((point) => point.ranks) });
    const svg = () => chartsSvg(this.shown, this.#view, this.headline.textContent);
    this.actions.replaceChildren(
      button("Copy link", () => copyText(location.href, "The link")),
      button("Copy as command", () => copyText(trainingCommand(predicted(), this.machine, entry(), prices()), "The command")),
      button("Copy as YAML", () => copyText(workloadYaml(predicted(), this.machine, entry(), prices()), "The workload")),
      button("Copy as curl", () => copyText(`${curlPost("/v1/training", this.question, "-sN")}\n`, "The request")),
      button("CSV", () => saveFile(`${name()}.csv`, trainingCsv(this.shown, this.state.gpu_hour, this.#samples), "text/csv")),
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

function phaseColour(phase) {
  return phase in PHASE_HUES ? hue(PHASE_HUES[phase]) : partColour(PARTS.at(-1));
}

function head(names) {
  return h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name))));
}

/** Return a time, 0 where nothing but rounding is left of it. */
function shortTime(seconds) {
  return seconds > 1e-9 ? formatTime(seconds) : "0";
}

function formatMoney(amount) {
  return amount >= 100 ? formatCount(Math.round(amount)) : String(Number(amount.toPrecision(3)));
}

function formatDuration(seconds) {
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * length) return `${Number((seconds / length).toPrecision(3))}${unit}`;
  }
  return formatTime(seconds);
}
