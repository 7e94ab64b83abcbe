// The question of one call: its URL restores it, its body asks the service.
import { AXES, DEFAULT_NODES, isUploaded, stateOfUrl } from "./question.js";
import { formatSize } from "./format.js";

export const CALL_PATH = "/studio/call";
const SMALL_NODES = 2; // of the call that is shown where the URL names none
const UNITS = { "": 1, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };

/** Return parameters such as {segment: 32768} of "segment=32KiB, chains=2"; null where they are none. */
export function parseParams(text) {
  const params = {};
  for (const part of text.split(",").map((each) => each.trim()).filter(Boolean)) {
    const [, name, number, unit] = /^(\w+)\s*=\s*(\d+)\s*(|B|KiB|MiB|GiB)$/.exec(part) ?? [];
    if (name === undefined) return null;
    params[name] = Number(number) * UNITS[unit];
  }
  return params;
}

/** Return the text of parameters, as `tuner simulate` writes them. */
export function formatParams(params) {
  const value = (name) => {
    const size = formatSize(params[name]); // of three figures, which may not be all
    return name === "segment" && parseParams(`segment=${size}`)?.segment === params[name] ? size : params[name];
  };
  return Object.keys(params).sort().map((name) => `${name}=${value(name)}`).join(", ");
}

/** Return the parts of a candidate such as "chain(segment=32KiB)". */
export function partsOfCandidate(candidate) {
  const [, algorithm, inside] = /^([^(]+)(?:\((.*)\))?$/.exec(candidate);
  return { algorithm, params: parseParams(inside ?? "") ?? {} };
}

/** Return the state of a URL. Times are in ticks, `view` has the first and the last that is shown. */
export function callStateOfUrl(search) {
  const query = new URLSearchParams(search);
  const { topology, collective, axes } = stateOfUrl(search);
  if (!query.has("topology")) axes.nodes ??= SMALL_NODES;
  const numbers = (name) => {
    const found = (query.get(name) ?? "").split("-").filter(Boolean).map(Number);
    return found.every(Number.isSafeInteger) ? found : [];
  };
  const size = Number(query.get("size") ?? 1 << 20);
  const [from, to] = numbers("view");
  return {
    topology, collective, axes,
    algorithm: query.get("algorithm") ?? "ring",
    params: query.get("params") ?? "",
    size: Number.isSafeInteger(size) && size > 0 ? size : 1 << 20,
    at: numbers("at")[0] ?? 0,
    view: to > from ? [from, to] : null,
    find: query.get("find") ?? "",
    follow: numbers("follow").length === 2 ? numbers("follow") : null,
    isFollowing: query.get("follow") !== "no",
  };
}

/** Return the query of a state. */
export function urlOfCallState(state) {
  const { topology, collective, algorithm } = state;
  const query = new URLSearchParams({ topology, collective, algorithm, size: state.size });
  for (const name of AXES) if (state.axes[name] !== undefined) query.set(name, state.axes[name]);
  if (state.params) query.set("params", state.params);
  if (state.at) query.set("at", String(Math.round(state.at)));
  if (state.view) query.set("view", state.view.map(Math.round).join("-"));
  if (state.find) query.set("find", state.find);
  if (!state.isFollowing) query.set("follow", "no");
  else if (state.follow) query.set("follow", state.follow.join("-"));
  return `?${query}`;
}

/** Return the address of the page for one call of a what-if answer. */
export function callUrl(question, candidate, size) {
  const { algorithm, params } = partsOfCandidate(candidate);
  const { topology, collective, axes } = question;
  const state = { topology, collective, axes, algorithm, params: formatParams(params), size };
  return CALL_PATH + urlOfCallState({ ...state, isFollowing: true });
}

/** Return the body of the request. */
export function callQuestion(state, machine) {
  const { topology, collective, algorithm } = state;
  const axes = { ...state.axes };
  axes.nodes ??= Math.min(DEFAULT_NODES, machine.nodes);
  axes.ppn ??= machine.ppn;
  return { topology, axes, collective, algorithm, params: parseParams(state.params), nbytes: state.size };
}

/** Return the command that explains the same call, where a command can say it. */
export function callCommand(question) {
  const { nodes, ppn, ...others } = question.axes;
  if (isUploaded(question.topology) || Object.keys(others).length) return null;
  const params = Object.entries(question.params).map(([name, value]) => ` --param ${name}=${value}`);
  return (
    `tuner simulate --topology ${question.topology}:${nodes} --ppn ${ppn}` +
    ` --collective ${question.collective} --algorithm ${question.algorithm}${params.join("")}` +
    ` --sizes ${question.nbytes} --runner schedule --explain --gantt call.svg\n`
  );
}
