// An answer to a what-if question: the times that have arrived so far, and what follows from them.
import { LIBRARIES } from "./question.js";

export const NCCL_CHOICE = "nccl";
export const FASTEST = "fastest";

/** Whether a time is shorter than another; of equally fast candidates the first one is faster. */
function isFaster(one, other) {
  const [own, others] = [one, other].map(({ seconds }) => Number(seconds.toPrecision(12)));
  return own < others || (own === others && one.place < other.place);
}

export class Answer {
  constructor() {
    this.outline = null;
    this.curves = new Map(); // algorithm -> at each size {seconds, place, candidate, label, predictedBy}
    this.gains = new Map(); // resource -> at each size how many times as fast, null where not known
    this.limits = []; // at each size the resources that limit the fastest
    this.librarySeconds = []; // at each size of what the MPI library chooses by itself
    this.done = 0;
    this.ended = false;
    this.skipped = [];
    this.isCompiling = false;
  }

  add(line) {
    if (line.kind === "outline") {
      this.outline = line;
      this.isCompiling = false;
      this.skipped = line.skipped;
    } else if (line.kind === "times") {
      for (const task of line.tasks) this.#addTask(task);
      this.done = line.done;
    } else if (line.kind === "gains") {
      const row = this.gains.get(line.resource) ?? this.sizes.map(() => undefined);
      line.sizes.forEach((size, number) => (row[size] = line.gains[number]));
      this.gains.set(line.resource, row);
    } else if (line.kind === "limits") {
      line.sizes.forEach((size, number) => (this.limits[size] = line.limits[number]));
    } else if (line.kind === "compiling") {
      this.isCompiling = true;
    } else if (line.kind === "end") {
      this.ended = true;
      this.skipped = [...new Set([...this.skipped, ...line.skipped])];
    }
  }

  #addTask(task) {
    const curve = this.curves.get(task.algorithm) ?? this.sizes.map(() => null);
    task.sizes.forEach((size, number) => {
      const seconds = task.seconds[number];
      if (task.candidates[number] === this.outline.library_choices[size]) this.librarySeconds[size] = seconds;
      if (seconds === null) return;
      const [candidate, place] = [task.candidates[number], task.places[number]];
      const one = { seconds, place, candidate, label: task.label, predictedBy: task.predicted_by };
      if (curve[size] !== null && !isFaster(one, curve[size])) return;
      const best = this.best(size);
      if (!best || isFaster(one, best)) this.#forgetGains(size);
      curve[size] = one;
    });
    this.curves.set(task.algorithm, curve);
  }

  /** What limited the fastest so far says nothing of a faster one. */
  #forgetGains(size) {
    for (const row of [...this.gains.values(), this.limits]) row[size] = undefined;
  }

  get sizes() {
    return this.outline.sizes;
  }

  /** Whether there is a time at every size, so that it can be shown. */
  get isUseful() {
    return this.outline !== null && this.done > 0 && this.sizes.every((_, at) => this.best(at));
  }

  /** The fastest at a size: {algorithm, seconds, candidate, ...}; undefined before any is known. */
  best(at) {
    let found;
    for (const [algorithm, curve] of this.curves) {
      if (curve[at] && (!found || isFaster(curve[at], found))) {
        found = { algorithm, ...curve[at] };
      }
    }
    return found;
  }

  /** The algorithms that are the fastest somewhere, those with the most sizes first. */
  get winners() {
    const counts = new Map();
    this.sizes.forEach((_, at) => {
      const name = this.best(at)?.algorithm;
      if (name) counts.set(name, (counts.get(name) ?? 0) + 1);
    });
    return [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a));
  }

  get knowsNccl() {
    return this.outline.nccl_choices.some((name) => name !== "");
  }

  /** The candidate that the incumbent is at a size; "" for a curve or where it is not known. */
  incumbentCandidate(incumbent, at) {
    if (incumbent === NCCL_CHOICE) return this.outline.nccl_choices[at];
    return LIBRARIES.has(incumbent) ? this.outline.library_choices[at] : "";
  }

  /** Seconds of the incumbent at a size; null where they are not known. */
  incumbentSeconds(incumbent, at) {
    if (incumbent === FASTEST) return this.best(at)?.seconds ?? null;
    if (LIBRARIES.has(incumbent)) return this.librarySeconds[at] ?? null;
    const name = incumbent === NCCL_CHOICE ? this.outline.nccl_choices[at] : incumbent;
    return this.curves.get(name)?.[at]?.seconds ?? null;
  }

  /** What limits the fastest algorithm at a size; undefined before that is known. */
  limit(at) {
    const names = this.limits[at]?.map((resource) => this.outline.resources[resource]);
    return names && (names.join(" and ") || "no single resource");
  }

  /** Labels of the schedules to price first when a slider moves on. */
  leaders(incumbent) {
    const found = new Set();
    this.sizes.forEach((_, at) => {
      const own = incumbent === NCCL_CHOICE ? this.outline.nccl_choices[at] : incumbent;
      const library = this.outline.library_choices[at];
      if (library) found.add(library);
      for (const call of [this.best(at), this.curves.get(own)?.[at]]) if (call) found.add(call.label);
    });
    return [...found].slice(0, 200);
  }

  /** Return the sizes of a run as text. */
  sizeRange(run, format) {
    const [from, to] = [this.sizes[run.from], this.sizes[run.to]].map(format);
    return from === to ? from : `${from} – ${to}`;
  }

  /** Neighbouring sizes with the same value of `of`, as {value, from, to} of indices. */
  runs(of) {
    const found = [];
    this.sizes.forEach((_, at) => {
      const value = of(at);
      if (found.length && found.at(-1).value === value) found.at(-1).to = at;
      else found.push({ value, from: at, to: at });
    });
    return found;
  }
}
