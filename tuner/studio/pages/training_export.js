// What a training question and its answer become outside: commands, YAML, CSV.
import { csv } from "./export.js";
import { isUploaded } from "./question.js";

/** Return a value as YAML: plain where that is unmistakable, else as JSON, which YAML contains. */
function yaml(value) {
  return /^[A-Za-z][\w.-]*(:[\w.-]+)*$|^[\d.]+[A-Za-z/%]+$/.test(String(value)) && typeof value === "string" ? value : JSON.stringify(value);
}

function block(text) {
  return `|\n${text.trimEnd().split(/\r?\n/).map((line) => `    ${line}`).join("\n")}`;
}

function modelYaml(model) {
  return typeof model === "string" ? yaml(model) : `\n  name: ${yaml(model.name)}\n  table: ${block(model.table)}`;
}

/** Return the topology as a file names it, and the line before it where it has to be fetched. */
function topologyYaml(question, machine, entry) {
  const { topology } = question;
  if (entry?.machine && entry.workload.topology === topology) return ["", JSON.stringify(entry.machine)];
  if (!isUploaded(topology)) {
    const nodes = Math.ceil(Math.max(question.detail, ...question.ranks) / (question.ppn ?? machine.ppn));
    return ["", nodes > machine.nodes ? `${topology}:${nodes}` : topology];
  }
  return [`# curl ${location.origin}/v1/topologies/${topology}/source >topology.txt\n`, "topology.txt"];
}

/** Return the workload, or the sweep where axes or prices are given, as `tuner training` reads it. */
export function workloadYaml(question, machine, entry, prices) {
  const { axes, model, topology: _, ranks, detail, name: __, ...others } = question;
  const [comment, topology] = topologyYaml(question, machine, entry);
  const lines = [`model: ${modelYaml(model)}`, `topology: ${topology}`];
  lines.push(`ranks: ${JSON.stringify([...new Set([...ranks, detail])].sort((a, b) => a - b))}`);
  for (const [key, value] of Object.entries(others)) {
    lines.push(`${key}: ${yaml(value)}`);
  }
  if (isSweep(question)) {
    lines.push("vary:", ...Object.entries(axes).map(([axis, value]) => `  ${axis}: [${yaml(value)}]`));
    if (prices.epoch) lines.push(`epoch: ${prices.epoch}`);
    lines.push(`cost: {gpu_hour: ${prices.gpuHour}}`);
  }
  return `${comment}${lines.join("\n")}\n`;
}

function isSweep(question) {
  return Object.keys(question.axes).length > 0;
}

/** Return what to type for the same prediction. */
export function trainingCommand(question, machine, entry, prices) {
  const text = workloadYaml(question, machine, entry, prices);
  const action = isSweep(question) ? "sweep" : "run";
  return `cat >training.yaml <<'EOF'\n${text}EOF\ntuner training ${action} training.yaml\n`;
}

/** Return a row for each number of ranks. */
export function trainingCsv(answer, price, samples) {
  const head = [
    "ranks", "nodes", "seconds", "computing", "overlapped", "exposed", "waiting", "samples_per_second", "efficiency",
    "published_efficiency", "epoch_seconds", "epoch_cost", "cost_of_million",
  ];
  const rows = answer.curve.map((point) => {
    const parts = answer.parts(point);
    const epoch = samples ? answer.epoch(point, samples, price) : { seconds: "", cost: "" };
    return [
      point.ranks, point.nodes, point.seconds, parts.computing, parts.overlapped, parts.exposed, parts.waiting,
      point.samples_per_second, point.efficiency, point.published?.efficiency, epoch.seconds, epoch.cost,
      answer.costOfMillion(point, price),
    ];
  });
  return csv([head, ...rows]);
}
