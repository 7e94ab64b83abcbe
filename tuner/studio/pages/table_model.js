// A tuning table as the page sees it: one row for each collective and shape, with its rules.
import { formatRange, formatSize } from "./format.js";

export const DEFAULT = "default";

/** Return pipeline (segment=8KiB) for a choice of a rule. */
export function choiceName({ algorithm, params, runner }) {
  const inside = Object.entries(params ?? {})
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, value]) => `${name}=${name === "segment" ? formatSize(value) : value}`);
  const name = inside.length ? `${algorithm} (${inside.join(", ")})` : algorithm;
  return runner && runner !== "library" ? `${name} via ${runner}` : name;
}

function ruleOf(record) {
  const stop = record.stop_bytes === "inf" ? Infinity : record.stop_bytes;
  const evidence = { default_s: [], chosen_s: [], predicted_s: [], nbytes: [], ...record.evidence };
  return {
    start: record.start_bytes, stop, evidence,
    algorithm: record.choice.algorithm, name: choiceName(record.choice),
  };
}

const UNTOLD = { basis: "none", nbytes: [], default_s: [], chosen_s: [], predicted_s: [], runner_up: "" };
const UNKNOWN = [{ start: 0, stop: Infinity, algorithm: DEFAULT, name: DEFAULT, evidence: UNTOLD }];

/** The rules of a version, and which classes of operators, memories and placements it knows. */
export class Table {
  constructor(version, record) {
    this.version = version;
    this.cluster = record.cluster.name;
    this.library = record.library;
    this.provenance = record.provenance;
    this.ruleLists = new Map(); // JSON of a key -> its rules
    this.keys = new Map();
    for (const each of record.rules) {
      const key = { memory: "host", operators: "any", placement: "consecutive", ...each.key };
      const id = keyId(key);
      if (!this.ruleLists.has(id)) this.ruleLists.set(id, []);
      this.ruleLists.get(id).push(ruleOf(each));
      this.keys.set(id, key);
    }
  }

  /** The values of a part of the keys, such as the collectives, in their order. */
  valuesOf(part) {
    return [...new Set([...this.keys.values()].map((key) => key[part]))];
  }

  /** The rules that calls under a key follow; those for any operator where it has none itself. */
  rulesFor(key) {
    return (
      this.ruleLists.get(keyId(key)) ?? this.ruleLists.get(keyId({ ...key, operators: "any" })) ?? UNKNOWN
    );
  }

  get isAccepted() {
    return "acceptance" in this.provenance;
  }
}

function keyId({ collective, nodes, ppn, memory, operators, placement }) {
  return [collective, nodes, ppn, memory, operators, placement].join("|");
}

export function shapeOf({ nodes, ppn }) {
  return `${nodes}x${ppn}`;
}

/** Return the rows of a view {collective, operators, memory, placement}; "" is all collectives. */
export function rowsOf(tables, view) {
  const found = new Map();
  for (const table of tables) {
    for (const key of table.keys.values()) {
      // one rank per node, or one node: all placements are the same and stored as consecutive
      const isPlaced = key.placement === view.placement || key.nodes === 1 || key.ppn === 1;
      if (key.memory !== view.memory || !isPlaced) continue;
      if (view.collective && key.collective !== view.collective) continue;
      if (view.operators === "any" && key.operators !== "any") continue;
      const row = { ...key, operators: view.operators };
      found.set(keyId(row), row);
    }
  }
  return [...found.values()].sort(
    (a, b) =>
      a.collective.localeCompare(b.collective) ||
      a.nodes * a.ppn - b.nodes * b.ppn || a.nodes - b.nodes,
  );
}

/** Return where two tables decide otherwise under a key: {start, stop, before, after}. */
export function changesOf(key, before, after) {
  const [old, now] = [before.rulesFor(key), after.rulesFor(key)];
  const bounds = [...new Set([...old, ...now].map((rule) => rule.start))].sort((a, b) => a - b);
  return bounds
    .map((start, number) => ({
      start, stop: bounds[number + 1] ?? Infinity, before: ruleAt(old, start), after: ruleAt(now, start),
    }))
    .filter((change) => change.before.name !== change.after.name);
}

export function ruleAt(rules, nbytes) {
  return rules.find((rule) => rule.start <= nbytes && nbytes < rule.stop);
}

/** Return the limits of the axis of sizes, in powers of two, with room beyond what is known. */
export function sizeLimits(tables) {
  const sizes = tables
    .flatMap((table) => [...table.ruleLists.values()].flat())
    .flatMap((rule) => [rule.start, ...rule.evidence.nbytes])
    .filter((size) => size > 0);
  const [low, high] = sizes.length ? [Math.min(...sizes), Math.max(...sizes)] : [1, 1 << 20];
  return [Math.max(0, Math.floor(Math.log2(low)) - 1), Math.ceil(Math.log2(high)) + 1];
}

/** Return the gain of a rule at one of its sizes; null where its times do not tell. */
function gainAt(rule, number) {
  const [slow, fast] = [rule.evidence.default_s[number], rule.evidence.chosen_s[number]];
  return slow > 0 && fast > 0 ? slow / fast : null;
}

/** Return the points of a row: at each size with evidence, what the table knows there. */
export function pointsOf(rules, candidates, isAccepted) {
  const found = [];
  for (const rule of rules) {
    rule.evidence.nbytes.forEach((nbytes, number) => {
      const gain = gainAt(rule, number);
      const own = candidates.find((one) => one.nbytes === nbytes && one.label === rule.name);
      found.push({
        nbytes, rule, gain, interval: intervalOf(rule, gain, isAccepted ? null : own),
        seconds: rule.evidence.chosen_s[number] ?? null,
        defaultSeconds: rule.evidence.default_s[number] ?? null,
        simulated: rule.evidence.predicted_s[number] ?? null,
        samples: isAccepted ? null : (own?.samples ?? null),
        launches: isAccepted ? null : (own?.launches ?? null),
      });
    });
  }
  return found.sort((a, b) => a.nbytes - b.nbytes);
}

/** Return the interval of a gain: the probe's own at this size, else as wide as that of the rule. */
function intervalOf(rule, gain, own) {
  if (gain === null || rule.algorithm === DEFAULT) return null;
  if (own?.gain_ci95 && own.gain_ci95[1] !== null) return own.gain_ci95;
  const [low, high] = rule.evidence.gain_ci95 ?? [];
  const mean = rule.evidence.gain;
  return low > 0 && high > 0 && mean > 0 ? [(gain * low) / mean, (gain * high) / mean] : null;
}

/** Return a sentence about a region for tooltips and screen readers. */
export function regionSentence(key, rule) {
  const call = `${key.collective} on ${key.nodes} × ${key.ppn} ranks, ${formatRange(rule.start, rule.stop)}`;
  const { basis, gain } = rule.evidence;
  const told = rule.algorithm === DEFAULT || !gain ? "" : `, ${gain.toFixed(2)} times as fast as the default`;
  return `${call}: ${rule.name}${told}; ${BASES[basis] ?? basis}`;
}

export const BASES = {
  measured: "measured", learned: "learned", simulated: "simulated", none: "no evidence here",
};

/** Return the row with the largest measured gain over the sizes of its rules, as what to look at first. */
export function mostChanged(table, rows) {
  const weight = (row) =>
    table.rulesFor(row).reduce(
      (sum, rule) =>
        sum + (rule.evidence.basis === "measured" ? 100 : 1) *
          rule.evidence.nbytes.reduce((own, _, at) => own + Math.abs(Math.log(gainAt(rule, at) ?? 1)), 0),
      0,
    );
  return rows.reduce((best, row) => (best && weight(best) >= weight(row) ? best : row), null);
}
