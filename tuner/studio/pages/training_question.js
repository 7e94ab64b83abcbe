// The question of the training page; its URL restores it. A table of layers is in the fragment.
import { formatSize, formatTime } from "./format.js";
import { AXES, axesOf } from "./question.js";

export const TRAINING_AXES = AXES.filter((name) => name !== "placement" && name !== "nccl_version");
const NUMBERS = ["batch", "passes", "rate", "gpu_hour", "epoch"];
const TEXTS = ["topology", "model", "precision", "framework", "algorithms", "noise", "scaling", "published"];
const DEFAULTS = {
  topology: "preset:dgx-a100", model: "resnet50", precision: "fp32", framework: "horovod",
  algorithms: "", noise: "", scaling: "weak", published: "",
  batch: 64, passes: 1, rate: null, gpu_hour: 2.5, epoch: null,
};
export const OWN_TABLE = "table"; // the model whose layers were uploaded
export const DEFAULT_NODES = 8;
const IMAGES_OF_AN_EPOCH = 1281167; // of ImageNet
const SIZES_OF_BUCKETS = Array.from({ length: 11 }, (_, power) => 2 ** (18 + power));
const CYCLES = Array.from({ length: 8 }, (_, power) => 2.5e-4 * 2 ** power);
const FEW_NODES = 64;
const SIMPLE = ["ring", "recursive_doubling", "binomial", "pipeline"];
const BEST_SERVERS = 0; // stands for as many servers as are best

/** Return the state of a URL: TEXTS, NUMBERS, axes, settings of the framework, and layers. */
export async function stateOfUrl(url) {
  const query = new URLSearchParams(url.search);
  const state = { axes: axesOf(query, TRAINING_AXES), settings: {}, layers: await unpacked(url.hash) };
  for (const name of TEXTS) state[name] = query.get(name) ?? DEFAULTS[name];
  for (const name of NUMBERS) state[name] = query.has(name) ? Number(query.get(name)) : DEFAULTS[name];
  for (const [name, value] of query) {
    if (name.startsWith("set.")) state.settings[name.slice(4)] = valueOf(value);
  }
  return state;
}

/** Return the value of a setting in a URL; what is no JSON is a text, which the service refuses. */
function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Return the query and the fragment of a state. */
export function urlOfState(state) {
  const query = new URLSearchParams();
  for (const name of ["topology", "model", "framework"]) query.set(name, state[name]);
  for (const name of [...TEXTS, ...NUMBERS]) {
    if (state[name] !== DEFAULTS[name] && state[name] !== null) query.set(name, state[name]);
  }
  for (const name of TRAINING_AXES) if (state.axes[name] !== undefined) query.set(name, state.axes[name]);
  for (const [name, value] of Object.entries(state.settings)) query.set(`set.${name}`, JSON.stringify(value));
  const fragment = state.model === OWN_TABLE && state.layers ? `#${state.layers.packed}` : "";
  return `?${query}${fragment}`;
}

async function unpacked(hash) {
  if (hash.length < 2) return null;
  try {
    const bytes = Uint8Array.from(atob(hash.slice(1).replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    const [name, table] = JSON.parse(await new Response(stream).text());
    return { name, table, packed: hash.slice(1) };
  } catch {
    return null; // no table of layers is in this fragment
  }
}

/** Return the table of layers of a file, packed for the fragment of a URL. */
export async function packedLayers(name, table) {
  const stream = new Blob([JSON.stringify([name, table])]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return { name, table, packed: btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "") };
}

/** Return the state of a published workload. */
export function stateOfPublished(entry, before, catalogue) {
  const { workload } = entry;
  const { name: framework, ...settings } =
    typeof workload.framework === "string" ? { name: workload.framework } : workload.framework;
  const known = settingsOf(framework, catalogue);
  const parsed = Object.fromEntries(
    Object.entries(settings).map(([name, value]) => [name, parseSetting(known.find((s) => s.name === name), value)]),
  );
  return {
    ...before,
    ...DEFAULTS,
    gpu_hour: before.gpu_hour,
    epoch: before.epoch,
    topology: workload.topology,
    model: workload.model,
    batch: workload.batch,
    precision: workload.precision ?? "fp32",
    framework,
    settings: parsed,
    algorithms: [workload.algorithms ?? ""].flat()[0],
    noise: workload.noise === undefined ? "" : String(workload.noise),
    scaling: workload.scaling ?? "weak",
    passes: workload.passes ?? 1,
    rate: workload.rate ?? null,
    published: entry.id,
    axes: {},
  };
}

/** Return the axes of a published workload on its machine: those of its largest number of ranks. */
export function axesOfPublished({ workload }, machine) {
  const ppn = workload.ppn ?? machine.ppn;
  const most = Math.max(...[workload.ranks].flat());
  const axes = { nodes: Math.max(1, Math.ceil(most / ppn)) };
  if (workload.ppn) axes.ppn = workload.ppn;
  if (workload.memory) axes.memory = workload.memory;
  if (most < ppn) axes.ppn = most;
  return axes;
}

const UNITS = { B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, s: 1, ms: 1e-3, us: 1e-6, "GB/s": 1e9, "MB/s": 1e6 };

/** Return the value of a setting from a text such as 64MiB, 5ms or 4GB/s; as it is if it is none. */
export function parseSetting(setting, value) {
  if (setting.name === "servers" && value === "best") return BEST_SERVERS;
  const [, number, unit] = /^([\d.]+) *([A-Za-z/]+)$/.exec(String(value)) ?? [];
  return UNITS[unit] ? Number((Number(number) * UNITS[unit]).toPrecision(12)) : value;
}

/** Return a setting's value as people write it. */
export function formatSetting(setting, value) {
  if (typeof value === "string") return value;
  if (setting.name === "servers" && value === BEST_SERVERS) return "best";
  if (setting.kind === "size") return value === 0 ? "0B" : formatSize(value);
  if (setting.kind === "time") return value === 0 ? "0s" : formatTime(value);
  if (setting.kind === "rate") return value === 0 ? "as the transport has it" : `${Number((value / 1e9).toPrecision(4))}GB/s`;
  return String(value);
}

/** Return a setting's value as the request has it, without loss. */
function encodedSetting(setting, value) {
  if (typeof value === "string") return value;
  if (setting?.kind === "time") return `${Number((value * 1e3).toPrecision(12))}ms`;
  if (setting?.kind === "rate") return `${Number((value / 1e9).toPrecision(12))}GB/s`;
  if (setting?.name === "servers" && value === BEST_SERVERS) return "best";
  if (setting?.kind !== "size") return value;
  return value % 2 ** 20 === 0 && value ? `${value / 2 ** 20}MiB` : `${value}B`;
}

/** Return the settings that a framework has. */
export function settingsOf(framework, catalogue) {
  return catalogue.frameworks.find((one) => one.name === framework)?.settings ?? [];
}

function frameworkOf(state, catalogue) {
  const known = settingsOf(state.framework, catalogue);
  const changed = Object.entries(state.settings);
  if (!changed.length) return state.framework;
  const settings = changed.map(([name, value]) => [name, encodedSetting(known.find((one) => one.name === name), value)]);
  return { name: state.framework, ...Object.fromEntries(settings) };
}

/** Return the values that the slider of a setting offers. */
export function settingValues(setting, value) {
  const own = setting.kind === "size" ? SIZES_OF_BUCKETS : CYCLES;
  return own.includes(value) ? own : [...own, value].sort((a, b) => a - b);
}

export function nodesOf(state, machine) {
  return state.axes.nodes ?? Math.min(DEFAULT_NODES, machine.nodes);
}

export function ppnOf(state, machine) {
  return state.axes.ppn ?? machine.ppn;
}

/** Return the numbers of ranks of the curve: one, a node, and powers of two of nodes. */
function ranksOf(nodes, ppn, machine, published) {
  const most = Math.min(machine.max_nodes, nodes <= FEW_NODES ? 2 * FEW_NODES : 1024);
  const found = new Set([1, ppn, ...published.map((one) => one.ranks)]);
  for (let count = 1; count <= Math.max(most, nodes); count *= 2) if (count * ppn <= 32768) found.add(count * ppn);
  return [...found].sort((a, b) => a - b);
}

/** Return the model as the request has it. */
function modelOf(state) {
  return state.model === OWN_TABLE ? { table: state.layers?.table ?? "", name: state.layers?.name ?? "layers" } : state.model;
}

/** Return the body of the request. */
export function questionOfState(state, machine, catalogue) {
  const { nodes: _, ppn: __, memory, ...axes } = state.axes;
  const [nodes, ppn] = [nodesOf(state, machine), ppnOf(state, machine)];
  const entry = catalogue.published.find((one) => one.id === state.published);
  const published = entry?.workload.published ?? [];
  const optional = {
    memory,
    rate: state.rate,
    noise: state.noise,
    precision: state.precision === "fp32" ? null : state.precision,
    passes: state.passes === 1 ? null : state.passes,
    scaling: state.scaling === "weak" ? null : state.scaling,
    algorithms: algorithmsOf(state, machine),
    ppn: ppn === machine.ppn ? null : ppn,
    published: published.length ? published : null,
  };
  const question = {
    topology: state.topology,
    model: modelOf(state),
    batch: state.batch,
    framework: frameworkOf(state, catalogue),
    ranks: ranksOf(nodes, ppn, machine, published),
    detail: nodes * ppn,
    axes,
  };
  for (const [name, value] of Object.entries(optional)) {
    if (value !== null && value !== undefined && value !== "") question[name] = value;
  }
  return question;
}

/** Return the algorithms of the question; without GPUs no default is known, but a few are simulated soon. */
function algorithmsOf(state, machine) {
  const isKnown = machine.gpus && state.axes.memory !== "host";
  if (state.algorithms === "") return isKnown ? "" : SIMPLE;
  return ["default", "best"].includes(state.algorithms) ? state.algorithms : [state.algorithms];
}

/** Return the samples of an epoch; null where there is none, as of transformers. */
export function epochOf(state, unit) {
  return state.epoch ?? (unit === "images" ? IMAGES_OF_AN_EPOCH : null);
}
