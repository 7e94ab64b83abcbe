// One job: its state while it runs, and for a probe what its log says.
import { allItems, getJson, problemText, send } from "./api.js";
import { boundChart } from "./boundchart.js";
import { announce, copyText, h, headRow, saveFile } from "./dom.js";
import { csv, drawingButtons } from "./export.js";
import { formatDate, formatPercent, formatRatio, formatSize, formatTime } from "./format.js";
import { algorithmSwatch } from "./swatch.js";
import { curl } from "./shell.js";

const INTERVAL_MS = 1000;
const PATIENT_INTERVAL_MS = 5000; // while the service does not answer
export const ENDED = ["done", "failed", "cancelled"];
const MAX_NEXT = 12; // calls of the next batch that are shown

export class JobView {
  constructor(place, id, maySubmit, onEnd) {
    this.place = place;
    this.id = id;
    this.maySubmit = maySubmit;
    this.onEnd = onEnd;
    this.log = [];
    this.drawn = {}; // what each part was drawn from, so that the others keep the focus
    this.title = h("h1");
    this.progress = h("progress", { max: 1, "aria-label": "Progress" });
    this.problem = h("p.error", { role: "alert", hidden: true });
    this.actions = h("div.actions");
    this.cards = h("div.answer");
    this.rows = h("tbody");
  }

  stop() {
    clearTimeout(this.timer);
    this.stopped = true;
  }

  /** Show the job, and again each second until it has ended. */
  async start() {
    await this.#show();
    if (this.stopped) return;
    if (!ENDED.includes(this.job.state)) {
      this.timer = setTimeout(() => this.#again(), INTERVAL_MS);
      this.isFollowed = true;
    } else if (this.isFollowed) {
      announce(this.title.textContent);
      this.onEnd();
    }
  }

  /** Show the job anew; where the service does not answer, say so and try again. */
  async #again() {
    try {
      await this.start();
      this.problem.hidden = true;
    } catch (error) {
      if (this.stopped) return;
      this.#showProblem(error);
      this.timer = setTimeout(() => this.#again(), PATIENT_INTERVAL_MS);
    }
  }

  #showProblem(error) {
    this.problem.textContent = problemText(error);
    this.problem.hidden = false;
  }

  async #show() {
    this.job = await getJson(`/v1/jobs/${this.id}`);
    const after = this.log.at(-1)?.id ?? 0;
    const news = await allItems(`/v1/jobs/${this.id}/log`, after);
    if (this.stopped) return;
    this.log.push(...news);
    this.#draw(news);
  }

  #draw(news) {
    const { job } = this;
    const known = progressOf(this.log);
    if (!this.title.isConnected) this.#layOut();
    this.place.dataset.job = job.state;
    this.title.textContent = headline(job, known);
    this.progress.value = job.progress;
    this.#update(this.actions, [job.state, job.cancel_requested, known.measured.length > 0, known.bounds.length > 0], () => this.#buttons(known));
    this.#update(this.cards, [job.state, this.log.length, job.attempts], () => cardsOf(job, known));
    this.rows.append(...news.map((entry) =>
      h("tr", {}, h("td", {}, timeOfDay(entry.at)), h("td", {}, entry.text))));
  }

  #layOut() {
    this.place.replaceChildren(
      this.title,
      this.problem,
      this.progress,
      this.actions,
      this.cards,
      h("section.card", {}, h("h2", {}, "Log"),
        h("div.log", { tabindex: 0, role: "region", "aria-label": "Log" }, h("table", {}, this.rows))),
    );
  }

  /** Fill a part anew if what it is drawn from has changed. */
  #update(part, source, content) {
    const key = JSON.stringify(source);
    if (this.drawn[part.className] === key) return;
    this.drawn[part.className] = key;
    part.replaceChildren(...content().filter(Boolean));
  }

  #buttons(known) {
    const { job } = this;
    const url = `/v1/jobs/${job.id}`;
    const cancel = () => send("POST", `/v1/jobs/${job.id}/cancel`, {}).catch((error) => this.#showProblem(error));
    const saveCsv = () => saveFile(`job-${job.id}.csv`, measuredCsv(progressOf(this.log).measured), "text/csv");
    return [
      !ENDED.includes(job.state) && this.maySubmit &&
        h("button", { click: cancel, disabled: job.cancel_requested }, job.cancel_requested ? "Ending\u2026" : "Cancel"),
      job.kind === "probe" && h("button", { click: () => copyText(tuneCommand(job.spec), "Command") }, "Copy as command"),
      h("button", { click: () => copyText(`${location.origin}/studio/measure/${job.id}`, "Link") }, "Copy link"),
      h("button", { click: () => copyText(`${curl(url)}\n${curl(`${url}/log`)}\n`, "Commands") }, "Copy as curl"),
      known.measured.length > 0 && h("button", { click: saveCsv }, "CSV"),
      ...(known.bounds.length ? drawingButtons(() => this.cards.querySelector(".bound"), `job-${job.id}`) : []),
    ];
  }
}

function cardsOf(job, known) {
  return [
    job.error && h("p.error", { role: "alert" }, job.error),
    facts(job),
    results(job),
    job.kind === "probe" && boundCard(known.bounds, job),
    known.next && !ENDED.includes(job.state) && nextCard(known.next),
    known.measured.length > 0 && measuredCard(known.measured),
  ];
}

/** Return what the log of a probe says: bounds, the calls that come next, and all that is measured. */
function progressOf(log) {
  const newest = log.at(-1)?.attempt; // an earlier attempt has left nothing
  const data = log.filter((entry) => entry.attempt === newest && entry.data).map((entry) => entry.data);
  return {
    bounds: data.filter((one) => one.bound).map((one) => one.bound),
    next: data.filter((one) => one.next).at(-1)?.next,
    measured: data.flatMap((one) => one.measured ?? []),
  };
}

function headline(job, known) {
  const name = `${job.kind[0].toUpperCase()}${job.kind.slice(1)} ${job.id}`;
  if (job.state === "running") return `${name}: ${Math.round(100 * job.progress)}%, ${job.text}`;
  const bound = known.bounds.at(-1);
  if (job.state === "done" && bound) {
    return `${name}: done, mean regret ${formatPercent(bound.expected)}, with 95% certainty below ${formatPercent(bound.upper)}`;
  }
  return `${name}: ${job.state}`;
}

function facts(job) {
  const pairs = [
    ["Asked by", job.by || "the command line"],
    ["Asked", formatDate(job.created_at)],
    ["Started", job.started_at && formatDate(job.started_at)],
    ["Ended", job.ended_at && formatDate(job.ended_at)],
    ["Attempts", job.attempts > 1 && job.attempts],
    ["Measurements", job.spec.measurements],
    ["Ranks", job.spec.ranks],
    ["Budget", job.spec.budget && formatTime(job.spec.budget)],
    ["Collectives", job.kind === "probe" && job.spec.collectives.join(", ")],
  ].filter(([, value]) => value);
  return h("dl.facts", {}, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** Return links to what a job has made. */
function results(job) {
  const { result } = job;
  if (!result) return false;
  const links = [
    result.table && h("a", { href: `/studio/report/${result.table}` }, `Report of table ${result.table}`),
    result.measurements &&
      h("a", { href: `/studio/measure?measurements=${result.measurements}` }, `Measurements ${result.measurements}`),
  ].filter(Boolean);
  if (!links.length) return h("p.muted", {}, "Its result is in ", h("code", {}, `GET /v1/jobs/${job.id}`), ".");
  return h("p", {}, links.flatMap((link, at) => (at ? [" \u00b7 ", link] : [link])));
}

function boundCard(bounds, job) {
  const content = bounds.length
    ? [...boundChart(bounds, job.spec.target_regret),
       h("p.muted", {}, "How much longer than with the best choice calls would take on average with a table made" +
         " at that moment: what is expected, and below what it is with 95 % certainty.")]
    : [h("p.muted", {}, noBoundSentence(job.state))];
  return h("section.card", {}, h("h2", {}, "Bound on the regret"), ...content);
}

function noBoundSentence(state) {
  if (!ENDED.includes(state)) return "The first bound comes once calls are measured.";
  if (state === "done") return "There is no bound: the time did not suffice for simulations, which it rests on.";
  return `There is no bound: the job ${state === "failed" ? "failed" : "was cancelled"} before the first one.`;
}

function nextCard(next) {
  const shown = next.slice(0, MAX_NEXT).map((call) =>
    h("li", {}, `${callName(call)} ${formatSize(call.nbytes)}: ${call.algorithms.length} algorithms`));
  if (next.length > MAX_NEXT) shown.push(h("li", {}, `and ${next.length - MAX_NEXT} more`));
  return h("section.card", {}, h("h2", {}, "Measured next"), h("ul.chips", {}, shown));
}

/** Return a table with the fastest algorithm of each call so far. */
function measuredCard(measured) {
  const calls = new Map();
  for (const one of measured) {
    const name = `${callName(one)} ${one.nbytes}`;
    if (!calls.has(name)) calls.set(name, []);
    calls.get(name).push(one);
  }
  const rows = [...calls.values()]
    .sort(([a], [b]) => callName(a).localeCompare(callName(b)) || a.nbytes - b.nbytes)
    .map(measuredRow);
  const head = ["Call", "Size", "Fastest so far", "Time", "Relative to default", "Series"];
  return h(
    "section.card",
    {},
    h("h2", {}, "Measured so far"),
    h("div.scroll", { tabindex: 0, role: "region", "aria-label": "Measured so far" },
      h("table", {}, headRow(head), h("tbody", {}, rows))),
  );
}

function measuredRow(series) {
  const typical = new Map();
  for (const { algorithm, seconds } of series) {
    typical.set(algorithm, [...(typical.get(algorithm) ?? []), seconds]);
  }
  const times = [...typical].map(([name, seconds]) => [name, geometricMean(seconds)]);
  times.sort((a, b) => a[1] - b[1]);
  const [[best, seconds]] = times;
  const base = times.find(([name]) => name === "default")?.[1];
  return h(
    "tr",
    {},
    h("td", {}, callName(series[0])),
    h("td.number", {}, formatSize(series[0].nbytes)),
    h("td", {}, algorithmSwatch(best.split(/[( ]/)[0]), best),
    h("td.number", {}, formatTime(seconds)),
    h("td.number", {}, base ? formatRatio(seconds / base) : ""),
    h("td.number", {}, series.length),
  );
}

function geometricMean(values) {
  return Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / values.length);
}

function callName({ collective, nodes, ppn }) {
  return `${collective} ${nodes}x${ppn}`;
}

function measuredCsv(measured) {
  const names = ["collective", "nodes", "ppn", "nbytes", "algorithm", "seconds"];
  return csv([names, ...measured.map((one) => names.map((name) => one[name]))]);
}

function tuneCommand(spec) {
  return (
    `tuner tune --hosts localhost:${spec.ranks} --library ${spec.library} --budget ${spec.budget}s` +
    ` --collectives ${spec.collectives.join(",")} --sizes ${spec.sizes.map((size) => `${size}B`).join(",")}` +
    " --measurements measurements.ndjson --calibration calibration.json --out table.json\n"
  );
}

function timeOfDay(text) {
  return new Date(text).toLocaleTimeString("en-GB");
}
