// The page "Measure": jobs while they run, what a probe has found so far, and hosts that are slow.
import { allItems, getJson, problemText, send } from "./api.js";
import { commandLine, focusedElement, h } from "./dom.js";
import { formatSize } from "./format.js";
import { showMeasurements } from "./measurements.js";
import { setAlgorithms } from "./palette.js";
import { curl } from "./shell.js";
import { ENDED, JobView } from "./jobview.js";

const PATH = "/studio/measure";
const LIST_INTERVAL_MS = 3000;
const BUDGETS = [[60, "1 minute"], [300, "5 minutes"], [600, "10 minutes"], [1800, "30 minutes"]];

export async function show(main) {
  const page = new Measure(main);
  addEventListener("popstate", () => page.show());
  addEventListener("themechange", () => page.show());
  await page.start();
}

class Measure {
  constructor(main) {
    this.main = main;
    this.main.classList.add("measure");
    this.form = h("section", { "aria-label": "Start" });
    [this.endedJobs, this.stored] = [[], []]; // as they were when the lists were filled
    this.jobs = h("ul.entries");
    this.measured = h("ul.entries");
    this.answer = h("div.answer");
    main.replaceChildren(
      h(
        "div.columns",
        {},
        h(
          "div.controls",
          {},
          this.form,
          h("section", {}, h("h2", {}, "Jobs"), this.jobs),
          h("section", {}, h("h2", {}, "Measurements"), this.measured),
        ),
        this.answer,
      ),
    );
  }

  async start() {
    const [session, target, catalogue, tables] = await Promise.all(
      ["/studio/session", "/v1/probes/target", "/v1/what-if/catalogue", "/v1/tables?limit=1"].map(getJson),
    );
    setAlgorithms(catalogue.algorithms);
    this.maySubmit = session.scopes.includes("submit");
    this.mayMeasure = target.is_allowed && this.maySubmit;
    this.hasTables = tables.items.length > 0;
    this.#fillForm(target, Object.keys(catalogue.algorithms));
    await this.#refreshLists();
    await this.show();
    this.#refreshSoon();
  }

  /** Refresh the lists again and again; where the service does not answer they stay as they are. */
  #refreshSoon() {
    setTimeout(async () => {
      if (!document.hidden) await this.#refreshLists().catch(() => {});
      this.#refreshSoon();
    }, LIST_INTERVAL_MS);
  }

  /** Show what the URL says: a job or measurements; else the newest job, or the newest measurements. */
  async show() {
    this.view?.stop();
    delete this.main.dataset.state;
    const job = Number(location.pathname.slice(PATH.length + 1)) || this.newest;
    const asked = new URLSearchParams(location.search).get("measurements") ?? (job ? null : this.stored.at(-1)?.id);
    this.isEmpty = !asked && !job;
    const name = (this.shown = asked ? `measurements ${asked}` : `job ${job}`);
    this.#markShown();
    const place = h("div.answer"); // of this view alone, as the answer for an earlier one may come late
    this.answer.replaceWith(place);
    this.answer = place;
    try {
      if (asked) {
        history.replaceState(null, "", `${PATH}?measurements=${asked}`);
        await showMeasurements(place, Number(asked), this.maySubmit, (id) => this.#open(`/${id}`));
      } else if (job) {
        history.replaceState(null, "", `${PATH}/${job}`);
        await this.#showJob(place, job);
      }
      else place.replaceChildren(nothingYet(this.hasTables, this.mayMeasure));
    } catch (error) {
      place.replaceChildren(h("h1", {}, "Measure"), h("p.error", { role: "alert" }, problemText(error)));
    }
    if (name === this.shown) this.main.dataset.state = "complete";
  }

  async #showJob(place, job) {
    this.view = new JobView(place, job, this.maySubmit, () => this.#refreshLists());
    await this.view.start();
  }

  #open(rest) {
    history.pushState(null, "", PATH + rest);
    this.show();
  }

  /** Fetch what may have changed: jobs from the first that had not ended on, and new measurements. */
  async #refreshLists() {
    const { endedJobs, stored } = this; // another refresh may be under way
    const last = (items) => items.at(-1)?.id ?? 0;
    const [rest, added] = await Promise.all([
      allItems("/v1/jobs", last(endedJobs)), allItems("/v1/measurements", last(stored)),
    ]);
    const jobs = [...endedJobs, ...rest];
    const open = jobs.findIndex((job) => !ENDED.includes(job.state));
    this.endedJobs = open < 0 ? [...jobs] : jobs.slice(0, open);
    const measured = (this.stored = [...stored, ...added]);
    this.newest = jobs.at(-1)?.id;
    const seen = JSON.stringify([jobs, measured]);
    if (seen === this.seen) return; // so that what is read or has the focus stays
    this.seen = seen;
    const focused = focusedElement()?.dataset.name;
    this.jobs.replaceChildren(...jobs.toReversed().map((job) => this.#jobEntry(job)));
    this.measured.replaceChildren(...measured.toReversed().map((one) => this.#measuredEntry(one)));
    for (const list of [this.jobs, this.measured]) {
      if (!list.children.length) list.append(h("li.muted", {}, "none yet"));
    }
    if (focused) this.main.querySelector(`.entries [data-name="${focused}"]`)?.focus();
    this.#markShown();
    if (this.isEmpty && (jobs.length || measured.length)) await this.show(); // what arrived first
  }

  #jobEntry(job) {
    const detail = job.state === "running" ? `${Math.round(100 * job.progress)}%, ${job.text}` : job.error;
    return this.#entry(`job ${job.id}`, `/${job.id}`, `${job.kind} ${job.id}`, job.state, detail);
  }

  #measuredEntry({ id, cluster, library, series }) {
    return this.#entry(`measurements ${id}`, `?measurements=${id}`, cluster, `${series} series`, library);
  }

  #entry(name, rest, title, state, detail) {
    const follow = (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey) return;
      event.preventDefault();
      this.#open(rest);
    };
    return h(
      "li",
      {},
      h("a", { href: PATH + rest, "data-name": name, click: follow },
        h("span", {}, title), h(`span.state.${state.split(" ").at(-1)}`, {}, state),
        detail && h("small", {}, detail)),
    );
  }

  #markShown() {
    for (const link of this.main.querySelectorAll(".entries a")) {
      link.setAttribute("aria-current", String(link.dataset.name === this.shown));
    }
  }

  #fillForm(target, collectives) {
    if (!this.mayMeasure) {
      this.form.replaceChildren(...cannotMeasure(target));
      return;
    }
    const field = (name, text, control) => h("div.row", {}, h("label", { for: name }, text), control);
    const options = (pairs, chosen) =>
      pairs.map(([value, text]) => h("option", { value, selected: value === chosen }, text));
    const sizes = target.sizes.map((size) => [size, formatSize(size)]);
    this.form.replaceChildren(
      h("h2", {}, `Measure ${target.cluster}`),
      h(
        "form",
        { submit: (event) => this.#measure(event, target.sizes) },
        field("library", "MPI library", h("select", { id: "library", name: "library" },
          options([["openmpi", "Open MPI"], ["mpich", "MPICH"]], "openmpi"))),
        field("ranks", `Ranks, on ${target.cores} cores`, h("input", { id: "ranks", name: "ranks",
          type: "number", min: 2, max: target.max_ranks, value: Math.max(2, target.cores), required: true })),
        field("budget", "Time", h("select", { id: "budget", name: "budget" }, options(BUDGETS, 300))),
        h("fieldset", {}, h("legend", {}, "Collectives"), collectives.map((name) =>
          h("label", {}, h("input", { type: "checkbox", name: "collectives", value: name,
            checked: target.collectives.includes(name) }), name))),
        h("div.row.sizes", {},
          h("label", { for: "from" }, "Sizes"), h("select", { id: "from", name: "from", "aria-label": "Smallest size" }, options(sizes, sizes[0][0])),
          h("label", { for: "to" }, "to"), h("select", { id: "to", name: "to", "aria-label": "Largest size" }, options(sizes, sizes.at(-1)[0]))),
        this.problem = h("p.error", { role: "alert", hidden: true }),
        h("button.primary", {}, "Measure"),
      ),
    );
  }

  async #measure(event, sizes) {
    event.preventDefault();
    const given = new FormData(event.target);
    const [from, to] = [Number(given.get("from")), Number(given.get("to"))];
    const probe = {
      library: given.get("library"),
      ranks: Number(given.get("ranks")),
      budget: Number(given.get("budget")),
      collectives: given.getAll("collectives"),
      sizes: sizes.filter((size) => size >= from && size <= to),
    };
    try {
      const job = await (await send("POST", "/v1/probes", probe)).json();
      this.problem.hidden = true;
      await this.#refreshLists();
      this.#open(`/${job.id}`);
    } catch (error) {
      this.problem.textContent = problemText(error);
      this.problem.hidden = false;
    }
  }
}

function cannotMeasure(target) {
  const why = target.is_allowed
    ? "Your token may only read; measuring needs the scope submit."
    : "This service measures nothing itself. Whoever runs it allows that with:";
  return [
    h("h2", {}, "Measure"),
    h("p.muted", {}, why),
    !target.is_allowed && commandLine("tuner serve --measure"),
    h("p.muted", {}, "The hosts of a cluster are measured from its login node:"),
    commandLine("tuner tune --hosts n[0-7] --measurements m.ndjson --out t.json"),
  ].filter(Boolean);
}

function nothingYet(hasTables, mayMeasure) {
  const start = mayMeasure ? "Start a measurement in the form Measure, or send" : "Send";
  return h(
    "section.card.empty",
    {},
    h("h1", {}, hasTables ? "No measurements are stored here" : "Nothing was measured yet"),
    hasTables && h("p", {}, "The tables of this service were made from measurements that it does not have: it was given the tables " +
      "alone. So it knows the times in their rules, but neither the samples nor what else was tried."),
    h("p", {}, `${start} the file that a probe, which times calls and messages on the nodes, has written:`),
    commandLine("tuner probe --out measurements.ndjson"),
    commandLine(curl("/v1/measurements", "--data-binary @measurements.ndjson")),
  );
}
