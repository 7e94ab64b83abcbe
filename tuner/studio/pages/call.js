// The page "Inside a call": one simulated call as a timeline, on the machine, and by link.
import { Address } from "./address.js";
import { Refused, hasTooManyTransfers, problemText, send } from "./api.js";
import { CallControls } from "./call_controls.js";
import { componentParts, roundsCsv, timelineSvg, transfersCsv } from "./call_export.js";
import { CallModel } from "./call_model.js";
import { CALL_PATH, callCommand, callQuestion, callStateOfUrl, formatParams, urlOfCallState } from "./call_question.js";
import { CallTables } from "./call_tables.js";
import { announce, copyText, h, saveFile } from "./dom.js";
import { svgToPng } from "./export.js";
import { formatCount, formatSize, formatTime } from "./format.js";
import { LinkChart } from "./link_chart.js";
import { MachinePicture } from "./machine_picture.js";
import { openPerfetto, sendTrace } from "./perfetto.js";
import { curlPost } from "./shell.js";
import { Playback } from "./playback.js";
import { CallTimeline } from "./call_timeline.js";

const SVG_ROWS = 64; // ranks in a picture that is saved
const COMPONENT_WORDS = {
  flight: "last bytes on their way", bandwidth: "bytes flowing", contention: "links shared with others",
  reduction: "reducing what arrived", copying: "copying", overhead: "overhead per message",
};

export async function show(main) {
  const page = new InsideCall(main);
  addEventListener("popstate", () => page.restore());
  addEventListener("themechange", () => page.redraw());
  await page.start();
}

class InsideCall {
  constructor(main) {
    this.main = main;
    this.address = new Address();
    this.state = callStateOfUrl(location.search);
    this.address.restore();
  }

  async start() {
    this.#layOut();
    try {
      await this.controls.start(this.state);
      await this.ask();
    } catch (error) {
      this.#refuse(error);
    }
  }

  /** Show what the URL says, after the back button. */
  async restore() {
    const before = JSON.stringify(this.question);
    this.playback.stop();
    this.address.restore();
    const state = (this.state = callStateOfUrl(location.search));
    let problem = null;
    await this.controls.start(state).catch((error) => (problem = error));
    if (state !== this.state) return; // the reader has gone on meanwhile
    if (problem) {
      this.#refuse(problem);
      return;
    }
    const isSame = JSON.stringify(callQuestion(this.state, this.controls.machine)) === before;
    if (isSame && this.main.dataset.state === "complete") this.#showModel();
    else await this.ask();
  }

  #layOut() {
    this.controls = new CallControls(
      () => this.#changed(),
      (error) => this.#refuse(error),
    );
    this.headline = h("p.headline", { "aria-live": "polite" }, "\u00a0");
    this.problem = h("p.error", { role: "alert", hidden: true });
    this.remedies = h("div.actions");
    this.giveUp = h("button", { type: "button", hidden: true }, "Give up");
    this.note = h("p.muted", { hidden: true });
    this.actions = h("div.actions", { inert: true });
    this.moment = h("p.moment", {}, "\u00a0");
    this.hover = h("p.hover", {}, "\u00a0");
    const [timeline, picture, links] = [h("div.timeline-place"), h("div.picture-place"), h("div")];
    this.picturePlace = picture;
    this.tables = new CallTables();
    this.playback = new Playback({
      onTime: (time, isStep) => this.#setTime(time, isStep),
      onFollow: (follow) => { Object.assign(this.state, follow); this.#follow(); this.#saveUrl(true); },
    });
    this.find = h("input", { id: "find", list: "names", autocomplete: "off", change: () => this.#find(this.find.value, true) });
    this.names = h("datalist", { id: "names" });
    this.finding = h("span.muted", { role: "status" });
    this.content = h("div.answer", { hidden: true },
      this.playback.element,
      h("div.call-pair", {},
        h("section.card", {}, h("h2", {}, "Timeline"), this.#timelineTools(), timeline, this.hover, timelineLegend()),
        h("section.card", {}, h("h2", {}, "On the machine"), this.moment, picture)),
      h("section.card", {}, h("h2", {}, "Use of links over the time that the timeline shows"), links,
        h("p.muted", {}, "Each transfer counts with its average rate. Choose a link to see its transfers alone.")),
      this.tables.element);
    this.main.replaceChildren(
      h("div.columns", {}, this.controls.element,
        h("div.answer", {}, h("h1.visually-hidden", {}, "Inside a call"),
          this.problem, this.remedies, this.headline, this.giveUp, this.note, this.actions, this.content)));
    this.timeline = new CallTimeline(timeline, {
      onView: (view) => this.#viewed(view),
      onTime: (time) => { this.playback.setTime(time, true); this.#saveUrl(true); },
      onHover: (at) => this.#showHover(at),
    });
    this.linkChart = new LinkChart(links, (link) => this.#find(link === null ? "" : this.model.linkNames[link], true));
    this.#fillActions();
  }

  #timelineTools() {
    const button = (text, label, click) => h("button", { type: "button", "aria-label": label, title: label, click }, text);
    const named = (text, title, click) => h("button", { type: "button", title, click }, text);
    return h("div.tools", {},
      button("+", "Zoom in", () => this.timeline.zoom(0.5)),
      button("−", "Zoom out", () => this.timeline.zoom(2)),
      button("←", "Earlier", () => this.timeline.pan(-0.5)),
      button("→", "Later", () => this.timeline.pan(0.5)),
      named("Whole call", "Show the whole call", () => this.timeline.fit()),
      named("Critical path", "Show where the critical path is at this time", () => this.#showPath(false)),
      h("label", { for: "find" }, "Find a rank or link"), this.find, this.names, this.finding);
  }

  #fillActions() {
    const button = (text, click) => h("button", { type: "button", click }, text);
    const name = () => `call-${this.question.collective}-${this.question.algorithm}`;
    const picture = () => {
      const first = Math.floor(this.timeline.scroll / this.timeline.rowHeight);
      return timelineSvg(this.model, this.timeline.view, first, SVG_ROWS, this.headline.textContent);
    };
    this.command = button("Copy as command", () => copyText(callCommand(this.question), "The command"));
    this.actions.replaceChildren(
      button("Copy link", () => copyText(location.href, "The link")),
      this.command,
      button("Copy as curl", () => copyText(`${curlPost("/v1/what-if/call", this.question)}\n`, "The request")),
      button("CSV of transfers", () => saveFile(`${name()}-transfers.csv`, transfersCsv(this.model), "text/csv")),
      button("CSV of rounds", () => saveFile(`${name()}-rounds.csv`, roundsCsv(this.model), "text/csv")),
      button("SVG", () => saveFile(`${name()}.svg`, picture(), "image/svg+xml")),
      button("PNG", async () => saveFile(`${name()}.png`, await svgToPng(picture()), "image/png")),
      button("Chrome trace", () => this.#saveTrace(name())),
      h("span.perfetto", {}, button("Open in Perfetto", () => this.#openPerfetto(name())),
        h("small", {}, "opens ui.perfetto.dev in a new tab and hands it the trace; nothing is sent without this click")),
    );
  }

  async #trace() {
    return (await send("POST", "/v1/what-if/call/trace", this.question)).blob();
  }

  async #saveTrace(name) {
    try {
      saveFile(`${name}.json`, await this.#trace(), "application/json");
    } catch (error) {
      this.#showProblem(error);
    }
  }

  async #openPerfetto(title) {
    const tab = openPerfetto();
    if (!tab) {
      announce("The browser did not open a tab: allow it, or save the Chrome trace");
      return;
    }
    try {
      const trace = await this.#trace();
      const isSent = await sendTrace(tab, await trace.arrayBuffer(), title);
      announce(isSent ? "Perfetto has the trace" : "Perfetto did not answer: save the Chrome trace and open it there");
    } catch (error) {
      this.#showProblem(error);
    }
  }

  /** Ask for another call, without what belongs to the last: time, view, and the chunk that is followed. */
  #changed() {
    this.playback.stop();
    clearTimeout(this.viewTimer);
    Object.assign(this.state, { at: 0, view: null, find: "", follow: null });
    this.#saveUrl(true);
    if (this.controls.machine) this.ask();
  }

  /** Ask for the call of the controls; an answer that is no longer wanted is dropped. */
  async ask() {
    const question = (this.question = callQuestion(this.state, this.controls.machine));
    this.problem.hidden = true;
    this.playback.stop();
    if (question.params === null) {
      this.#refuse(new Refused(422, "parameters are written like segment=32KiB, chains=2"));
      return;
    }
    this.main.dataset.state = "asked";
    this.actions.inert = true;
    this.remedies.replaceChildren();
    const waiting = this.#wait();
    try {
      const response = await send("POST", "/v1/what-if/call", question, waiting.signal);
      const record = await response.json();
      if (question !== this.question) return;
      this.model = new CallModel(record);
      this.#showModel();
    } catch (error) {
      if (question === this.question) this.#refuse(waiting.signal.aborted ? new Refused(0, "given up") : error);
    } finally {
      waiting.end();
    }
  }

  /** Say how long a call is being simulated, with a button to give it up: {signal, end}. */
  #wait() {
    this.waiting?.end();
    const [abort, begun] = [new AbortController(), performance.now()];
    const tell = () => {
      const seconds = Math.round((performance.now() - begun) / 1000);
      this.headline.textContent = `Simulating…${seconds ? ` ${seconds} s` : ""}`;
    };
    tell();
    const timer = setInterval(tell, 1000);
    this.giveUp.hidden = false;
    this.giveUp.onclick = () => abort.abort();
    const waiting = { signal: abort.signal, end: () => { clearInterval(timer); if (this.waiting === waiting) this.giveUp.hidden = true; } };
    return (this.waiting = waiting);
  }

  /** Offer questions near one that has too many transfers. */
  #offerRemedies({ axes, params }) {
    const offer = (text, change) => h("button", { type: "button", click: async () => {
      change();
      await this.controls.start(this.state);
      this.#changed();
    } }, text);
    const nodes = Math.ceil(axes.nodes / 2);
    const segment = params.segment && 2 * params.segment;
    this.remedies.replaceChildren(
      ...(axes.nodes > 1 ? [offer(`Take ${nodes} nodes`, () => (this.state.axes.nodes = nodes))] : []),
      ...(axes.ppn > 1 ? [offer("Take 1 rank per node", () => (this.state.axes.ppn = 1))] : []),
      ...(segment ? [offer(`Take segments of ${formatSize(segment)}`, () => (this.state.params = formatParams({ ...params, segment })))] : []),
    );
  }

  #showModel() {
    const { model, state } = this;
    const { record } = model;
    this.content.hidden = false;
    this.actions.inert = false;
    state.at = Math.min(state.at, model.end);
    this.headline.textContent = headline(model);
    this.note.hidden = record.nccl_seconds === null;
    if (record.nccl_seconds !== null) {
      this.note.textContent = `NCCL's own model predicts ${formatTime(record.nccl_seconds)}. It has no transfers to show, so here is the simulated schedule.`;
    }
    this.command.hidden = callCommand(this.question) === null;
    this.picture?.remove();
    this.picture = new MachinePicture(this.picturePlace, record.machine, record.ranks);
    this.timeline.show(model, state.view);
    this.linkChart.setModel(model, this.timeline.view);
    this.tables.show(model, (row) => this.timeline.setView(row.begin, row.end));
    this.names.replaceChildren(...this.#allNames().map((name) => h("option", { value: name })));
    this.picture.draw();
    this.playback.show(model, state);
    this.#follow();
    if (state.at > 0) this.#showPath(true); // else the ranks are shown from the first on
    this.find.value = state.find;
    this.#find(state.find, false);
    this.main.dataset.state = "complete";
  }

  #allNames() {
    const ranks = Array.from({ length: this.model.ranks }, (_, rank) => `rank ${rank}`);
    return [...ranks, ...this.model.busiest.map((link) => this.model.linkNames[link])];
  }

  /** Find a rank or a link by its name, or the first whose name contains the text. */
  #find(text, isNew) {
    this.find.value = text;
    const all = this.#allNames();
    const asked = /^\d+$/.test(text.trim()) ? `rank ${text.trim()}` : text.trim();
    const exact = all.indexOf(asked);
    const matches = all.filter((name) => name.toLowerCase().includes(asked.toLowerCase()));
    const place = exact >= 0 ? exact : asked ? all.indexOf(matches[0]) : -1;
    const isRank = place >= 0 && place < this.model.ranks;
    const link = place >= this.model.ranks ? this.model.busiest[place - this.model.ranks] : null;
    this.finding.textContent = !asked ? "" : place < 0 ? "nothing has that name"
      : exact < 0 ? `${all[place]}, the first of ${matches.length}` : "";
    let transfers = null;
    if (link !== null) {
      transfers = new Uint8Array(this.model.transfers.src.length);
      for (const item of this.model.links.get(link).lane.items) transfers[item] = 1;
    }
    this.timeline.mark(isRank ? place : null, transfers);
    this.linkChart.find(link);
    this.state.find = place < 0 ? "" : all[place];
    if (isNew) this.#saveUrl(true);
  }

  #follow() {
    const { state, model } = this;
    const [rank, chunk] = state.follow ?? model.firstChunk;
    this.followed = state.isFollowing ? model.follow(rank, chunk) : null;
    this.timeline.carries = this.followed?.carries ?? null;
    this.timeline.drawSoon();
    this.#setTime(state.at, false);
  }

  #viewed(view) {
    this.state.view = view[0] <= 0 && view[1] >= this.model.end ? null : view;
    this.linkChart.setView(view);
    clearTimeout(this.viewTimer);
    this.viewTimer = setTimeout(() => this.#saveUrl(false), 300);
  }

  /** Show one time in all parts of the page. */
  #setTime(time, isStep) {
    this.state.at = time;
    const { model } = this;
    const segment = model.segmentAt(time);
    const transfer = segment < 0 ? -1 : model.path.transfer[segment];
    const critical = new Set(transfer < 0 ? [] : model.linksOf(transfer));
    this.timeline.setTime(time);
    this.picture.light(model.loadsAt(time), critical);
    this.picture.mark((rank) => this.followed !== null && this.followed.since[rank] <= time);
    this.moment.textContent = this.#momentSentence(time, segment, transfer);
    if (isStep) {
      this.#keepInView(time);
      this.#showPath(true);
      this.#saveUrl(false);
    }
  }

  /** Scroll to the rank at which the critical path is, or only where that is hidden. */
  #showPath(ifHidden) {
    const segment = this.model.segmentAt(this.state.at);
    const rank = this.model.path.rank.at(segment);
    if (rank === undefined) return;
    this.timeline.scrollTo(rank, ifHidden);
    if (!ifHidden) this.#keepInView(this.state.at);
  }

  #keepInView(time) {
    const [from, to] = this.timeline.view;
    if (time < from || time > to) this.timeline.setView(time - (to - from) / 4, time + (3 * (to - from)) / 4);
  }

  #momentSentence(time, segment, transfer) {
    const { model } = this;
    const count = model.underWayAt(time);
    const messages = `${formatCount(count)} message${count === 1 ? "" : "s"} on the way`;
    const holders = this.followed?.since.reduce((sum, since) => sum + Number(since <= time), 0);
    const chunk = this.followed ? `; ${formatCount(holders)} of ${formatCount(model.ranks)} ranks have the chunk` : "";
    const { src, dst, round } = model.transfers;
    const path = segment < 0 ? "the call is over" : transfer < 0 ? `the critical path is at rank ${model.path.rank[segment]}`
      : `critical: rank ${src[transfer]} → rank ${dst[transfer]}, round ${round[transfer]}, ` +
        COMPONENT_WORDS[Object.keys(COMPONENT_WORDS)[model.path.component[segment]]];
    return `${formatTime(model.seconds(time))}: ${messages}${chunk}; ${path}.`;
  }

  #showHover(at) {
    const { model } = this;
    if (!at || at.transfer < 0) {
      this.hover.textContent = at ? `rank ${at.rank} on ${this.#nodeOf(at.rank)}` : "\u00a0";
      return;
    }
    const { src, dst, round, nbytes, started, arrived } = model.transfers;
    const [t, time] = [at.transfer, (ticks) => formatTime(model.seconds(ticks))];
    this.hover.textContent =
      `rank ${src[t]} → rank ${dst[t]}, round ${round[t]}, ${formatSize(nbytes[t])}, ` +
      `${time(started[t])} to ${time(arrived[t])} (${time(arrived[t] - started[t])})` +
      `${model.onPath[t] ? ", on the critical path" : ""}`;
  }

  #nodeOf(rank) {
    const { machine, ranks } = this.model.record;
    return machine.nodes[ranks.node[rank]];
  }

  #saveUrl(isFinished) {
    this.address.save(CALL_PATH + urlOfCallState(this.state), isFinished);
  }

  redraw() {
    if (!this.model) return;
    this.timeline.draw();
    this.linkChart.draw();
  }

  #showProblem(error) {
    this.problem.textContent = problemText(error);
    this.problem.hidden = false;
  }

  /** Say why there is no such call; an answer that is still arriving is dropped. */
  #refuse(error) {
    this.#showProblem(error);
    if (hasTooManyTransfers(error)) this.#offerRemedies(this.question);
    this.question = null;
    this.playback.stop();
    this.actions.inert = true;
    this.headline.textContent = "\u00a0";
    this.content.hidden = true;
    this.main.dataset.state = "refused";
  }
}

function headline(model) {
  const { collective, candidate, nbytes, seconds } = model.record;
  const parts = componentParts(model.record).slice(0, 2)
    .map(([name, , part]) => `${Math.round(part * 100)}% ${name}`);
  return (
    `${collective} of ${formatSize(nbytes)} by ${candidate} on ${formatCount(model.ranks)} ranks takes ` +
    `${formatTime(seconds)}${parts.length ? `; of its critical path, ${parts.join(" and ")}` : ""}.`
  );
}

function timelineLegend() {
  const names = {
    send: "sending", receive: "receiving", flight: "last byte on its way", work: "copying, reducing",
    followed: "carries the chunk", critical: "critical path",
  };
  return h("div", {},
    h("ul.legend", {}, Object.entries(names).map(([name, words]) => h("li", {}, h(`span.swatch.bar-${name}`), words))),
    h("p.muted", {}, "Drag to move. The wheel zooms after a click on the timeline, or with Ctrl; keys: arrows, +, −, Home."));
}
