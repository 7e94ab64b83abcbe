// The question that the controls ask; its URL restores it.
import { formatLineRate, formatTime } from "./format.js";

export const AXES = [
  "nodes", "ppn", "bandwidth", "latency", "taper", "nics", "gpu", "memory", "placement",
  "uplink_bandwidth", "uplink_latency", "fabric", "pcie", "nvlink_domain", "nccl_version",
];
const NUMBERS = new Set(["nodes", "ppn", "taper", "nics", "pcie", "nvlink_domain"]);
const DEFAULTS = { topology: "preset:dgx-a100", collective: "allreduce", from: 4, to: 4 << 26 };
export const DEFAULT_NODES = 16;
export const MAX_PINS = 4;
export const LIBRARIES = new Map([["openmpi", "Open MPI's own choice"], ["mpich", "MPICH's own choice"]]);

/** Return the state of a URL: the question, and how its answer is shown. */
export function stateOfUrl(search) {
  const query = new URLSearchParams(search);
  return {
    topology: query.get("topology") ?? DEFAULTS.topology,
    collective: query.get("collective") ?? DEFAULTS.collective,
    from: powerOfTwo(query.get("from"), DEFAULTS.from),
    to: powerOfTwo(query.get("to"), DEFAULTS.to),
    incumbent: query.get("incumbent") ?? "",
    hidden: new Set((query.get("hide") ?? "").split(",").filter(Boolean)),
    size: powerOfTwo(query.get("size"), 1 << 20),
    axes: axesOf(query),
    pins: query.getAll("pin").slice(0, MAX_PINS).map(pinOf).filter((pin) => pin.topology),
    configured: query.has("configured"),
    map: query.has("map"),
    picture: query.has("picture"),
  };
}

/** Return the axes of a query, those of the names. */
export function axesOf(query, names = AXES) {
  const axes = {};
  for (const name of names) {
    if (query.has(name)) axes[name] = NUMBERS.has(name) ? Number(query.get(name)) : query.get(name);
  }
  return axes;
}

/** A pinned machine is a query of its own within that of the page. */
function pinOf(text) {
  const query = new URLSearchParams(text);
  return { topology: query.get("topology"), axes: axesOf(query) };
}

function powerOfTwo(text, otherwise) {
  const value = Number(text);
  return text && Number.isInteger(Math.log2(value)) && value >= 1 && value <= 2 ** 32 ? value : otherwise;
}

/** Return whether a machine is a stored topology, rather than one that is known by name. */
export function isUploaded(topology) {
  return !topology.startsWith("preset:");
}

/** Return the query of a state. */
export function urlOfState(state) {
  const query = new URLSearchParams({ topology: state.topology, collective: state.collective });
  for (const name of AXES) if (state.axes[name] !== undefined) query.set(name, state.axes[name]);
  if (state.from !== DEFAULTS.from) query.set("from", state.from);
  if (state.to !== DEFAULTS.to) query.set("to", state.to);
  if (state.incumbent) query.set("incumbent", state.incumbent);
  if (state.hidden.size) query.set("hide", [...state.hidden].join());
  query.set("size", state.size);
  for (const { topology, axes } of state.pins) {
    query.append("pin", new URLSearchParams({ topology, ...axes }).toString());
  }
  for (const card of ["configured", "map", "picture"]) if (state[card]) query.set(card, "1");
  return `?${query}`;
}

/** Return what the question of a state is without, for a machine that offers `configured` features. */
export function leftOut(state, configured) {
  return [...(configured.length && !state.configured ? ["configured"] : []), ...state.hidden];
}

/** Return the body of the request. */
export function questionOfState(state, machine) {
  const sizes = [];
  for (let size = state.from; size <= state.to; size *= 2) sizes.push(size);
  const { topology, collective } = state;
  const axes = { ...state.axes };
  axes.nodes ??= Math.min(DEFAULT_NODES, machine.nodes);
  axes.ppn ??= machine.ppn;
  const without = leftOut(state, machine.configured);
  const library = LIBRARIES.has(state.incumbent) ? state.incumbent : undefined;
  return {
    topology, collective, axes, sizes,
    ...(without.length && { without }), ...(library && { library }),
  };
}

/** Return the values that a slider of an axis offers, with the machine's own. */
export function sliderValues(name, machine) {
  if (name === "nodes") return counts(machine.max_nodes > machine.nodes ? 1024 : machine.nodes, machine.nodes);
  if (name === "ppn") return counts(Math.max(machine.gpus, machine.cores, machine.ppn), machine.ppn);
  if (name === "nics") return counts(16, machine.nics);
  if (name === "pcie") return [3, 4, 5, 6];
  if (name === "taper") return [1, 1.5, 2, 3, 4, 6, 8];
  if (name === "bandwidth" || name === "uplink_bandwidth") {
    return [10, 25, 40, 50, 100, 200, 400, 800, 1600].map((rate) => formatLineRate((rate * 1e9) / 8));
  }
  return [0.25, 0.35, 0.5, 0.7, 1, 1.4, 2, 2.8, 4, 5.6, 8, 11, 16].map((us) => formatTime(us * 1e-6));
}

function counts(most, own) {
  const found = new Set([Math.min(most, own), most]);
  for (let count = 1; count <= most; count *= 2) found.add(count);
  return [...found].filter((count) => count <= 1024).sort((a, b) => a - b);
}
