// What the what-if page says of an answer.
import { FASTEST, NCCL_CHOICE } from "./answer.js";
import { AXIS_LABELS } from "./controls.js";
import { formatCount, formatRatio, formatSize, formatTime } from "./format.js";
import { LIBRARIES } from "./question.js";

const MODELS = { nccl: "NCCL's cost model", simulation: "simulation" };
const MIN_RATIO = 1.01; // times as fast that are worth a word

/** Return a sentence of one size for screen readers and tooltips. */
export function callSentence(call) {
  return `${call.candidate}, ${formatTime(call.seconds)} (${modelOf(call)})`;
}

export function gainText(gain) {
  if (gain === undefined) return "…";
  if (gain === null) return "not known";
  return gain < 1.005 ? "no faster" : formatRatio(gain);
}

/** Return what predicted the time of a call. */
export function modelOf(call) {
  return MODELS[call.predictedBy];
}

export function incumbentName(incumbent) {
  const own = { [NCCL_CHOICE]: "NCCL's own choice", [FASTEST]: "the fastest" };
  return own[incumbent] ?? LIBRARIES.get(incumbent) ?? incumbent;
}

/** Return a text of the service with the labels of the controls instead of the names of axes. */
export function withLabels(text) {
  return text.replaceAll(/\b[a-z]+_[a-z]+\b/g, (name) => (AXIS_LABELS[name] ? `"${AXIS_LABELS[name]}"` : name));
}

export function title(answer) {
  const { machine, nodes, ppn, collective } = answer.outline;
  return `${collective} on ${nodes} × ${ppn} ranks of ${machine}`;
}

/** Say what is fastest at the selected size, what limits it, and where a change would pay most. */
export function headline(answer, incumbent, at) {
  const { collective, nodes, ppn } = answer.outline;
  const where = `${collective} of ${formatSize(answer.sizes[at])} on ${formatCount(nodes * ppn)} ranks`;
  const limit = answer.limit(at);
  return [
    `${where}: the fastest is ${callSentence(answer.best(at))}${comparison(answer, incumbent, at)}.`,
    limit && `Limit: ${limit}.`,
    incumbent !== FASTEST && mostGained(answer, incumbent, at),
  ].filter(Boolean).join(" ");
}

function comparison(answer, incumbent, at) {
  if (incumbent === FASTEST) return "";
  const base = answer.incumbentSeconds(incumbent, at);
  if (!base) return `; what ${incumbentName(incumbent)} takes is not known`;
  const ratio = base / answer.best(at).seconds;
  if (ratio < MIN_RATIO) return `; ${incumbentName(incumbent)} is as fast`;
  const candidate = answer.incumbentCandidate(incumbent, at);
  return `, ${formatRatio(ratio)} as fast as ${incumbentName(incumbent)}${candidate && ` (${candidate})`}`;
}

/** Say at which other size the most is gained, if more than at the selected one. */
function mostGained(answer, incumbent, at) {
  const ratios = answer.sizes.map((_, size) => answer.incumbentSeconds(incumbent, size) / answer.best(size).seconds || 1);
  const most = Math.max(...ratios);
  if (most < MIN_RATIO || most <= ratios[at]) return "";
  return `The most is gained at ${formatSize(answer.sizes[ratios.indexOf(most)])}: ${formatRatio(most)}.`;
}
