// An answer to a training question: the lines that have arrived so far, and what follows from them.

const SECONDS_PER_HOUR = 3600;
const MILLION = 1e6;
export const MIN_GAIN = 1.0005; // times as fast, below which nothing is gained

export class TrainingAnswer {
  constructor() {
    this.outline = null;
    this.points = new Map(); // ranks -> point
    this.problems = []; // [ranks or description, sentence]
    this.timeline = null;
    this.limits = null;
    this.variants = [];
    this.done = 0;
    this.ended = false;
    this.skipped = [];
  }

  add(line) {
    this.done = line.done ?? this.done;
    if (line.problem) this.problems.push(line);
    else if (line.kind === "outline") this.outline = line;
    else if (line.kind === "point") this.points.set(line.ranks, line);
    else if (line.kind === "timeline") this.timeline = line;
    else if (line.kind === "limits") this.limits = line;
    else if (line.kind === "variant") this.variants.push(line);
    else if (line.kind === "end") [this.ended, this.skipped] = [true, line.skipped];
  }

  /** Whether the ranks in detail are predicted, so that it can be shown. */
  get isUseful() {
    return this.outline !== null && this.points.has(this.outline.detail);
  }

  get detail() {
    return this.points.get(this.outline.detail);
  }

  /** The points of the curve, in the order of their ranks. */
  get curve() {
    return [...this.points.values()].sort((a, b) => a.ranks - b.ranks);
  }

  /** Images or tokens per second of a point or variant. */
  rate(point) {
    return point.samples_per_second * this.outline.per_sample;
  }

  /** Images or tokens per second of one rank that never waits. */
  get alone() {
    const { samples_per_second: rate, ranks, efficiency } = this.detail;
    return (rate / ranks / efficiency) * this.outline.per_sample;
  }

  /** Parts of an iteration in seconds; together they are its time. */
  parts(point) {
    const { shares, seconds, hidden } = point;
    const exposed = shares.communication + shares.copy;
    const computing = Math.max(0, seconds - exposed - shares.wait);
    const overlapped = Math.min(hidden, computing);
    return { computing: computing - overlapped, overlapped, exposed, waiting: shares.wait };
  }

  /** The currency per hour of all GPUs. */
  hourly(point, price) {
    return point.ranks * price;
  }

  /** The cost of a million images or tokens. */
  costOfMillion(point, price) {
    return (this.hourly(point, price) / SECONDS_PER_HOUR / this.rate(point)) * MILLION;
  }

  /** Seconds and cost of an epoch of so many samples. */
  epoch(point, samples, price) {
    const seconds = samples / point.samples_per_second;
    return { seconds, cost: (this.hourly(point, price) * seconds) / SECONDS_PER_HOUR };
  }

  /** The variant with the least time, the first of those that are alike. */
  get bestVariant() {
    return leastOf(this.variants);
  }

  /** Variants by their algorithms. */
  get variantsByAlgorithms() {
    const found = new Map();
    for (const one of this.variants) {
      if (!found.has(one.algorithms)) found.set(one.algorithms, []);
      found.get(one.algorithms).push(one);
    }
    return found;
  }
}

/** Return the variant with the least time, the first of those that differ by less than MIN_GAIN. */
export function leastOf(variants) {
  let least = null;
  for (const one of variants) if (!least || one.seconds * MIN_GAIN < least.seconds) least = one;
  return least;
}
