// The controls of the what-if page: one row for each axis that the machine has.
import { h } from "./dom.js";
import { formatLineRate, formatRate, formatSize, formatTime, plural } from "./format.js";
import { DEFAULT_NODES, sliderValues } from "./question.js";

export const AXIS_LABELS = {
  nodes: "Nodes",
  ppn: "Ranks per node",
  bandwidth: "NIC rate",
  latency: "Latency between nodes",
  taper: "Taper above the leaves",
  nics: "NICs per node",
  gpu: "GPU",
  memory: "Buffers in",
  placement: "Placement of ranks",
  pcie: "PCIe generation",
  uplink_bandwidth: "Rate of switch links",
  uplink_latency: "Latency of switch links",
  nccl_version: "NCCL version",
};
const FEATURES = { multicast: "multicast", switch_reduction: "reduction (SHARP)" };
const MAIN = ["nodes", "ppn", "bandwidth", "latency", "taper"];
const CHOICES = { memory: ["host", "cuda"], placement: ["consecutive", "cyclic"] };
const CHOICE_NAMES = { host: "host memory", cuda: "GPU memory" };

/** Return the machine's own value of an axis as text. */
function ownValue(name, machine) {
  const own = {
    nodes: Math.min(DEFAULT_NODES, machine.nodes),
    ppn: machine.ppn,
    nics: machine.nics,
    gpu: machine.gpu,
    memory: machine.memory,
    nccl_version: machine.nccl_versions[0],
    placement: "consecutive",
    taper: machine.taper,
    bandwidth: machine.line_rate ? formatLineRate(machine.line_rate) : rateText(machine.bandwidth),
    latency: machine.latency === null ? "" : formatTime(machine.latency),
  };
  return own[name] ?? "";
}

function rateText(rate) {
  return rate === null ? "" : formatRate(rate);
}

/** Return the place of a value among those of a slider, or that of the nearest. */
function placeOf(value, values) {
  const exact = values.indexOf(value);
  if (exact >= 0) return exact;
  const distances = values.map((one) => Math.abs(Math.log(magnitude(one) / magnitude(value))));
  return distances.indexOf(Math.min(...distances));
}

const SCALES = { "": 1, "b/s": 1 / 8, "B/s": 1, s: 1 };
const PREFIXES = { "": 1, n: 1e-9, u: 1e-6, m: 1e-3, M: 1e6, G: 1e9, T: 1e12 };

function magnitude(value) {
  if (typeof value === "number") return value;
  const [, number, prefix, unit] = /^([\d.]+)([numMGT]?)(b\/s|B\/s|s|)$/.exec(value) ?? [];
  return number === undefined ? NaN : Number(number) * PREFIXES[prefix] * SCALES[unit];
}

/** The controls of one machine. `onInput` is called while a slider moves, `onCommit` after that. */
export function axisControls(machine, state, onInput, onCommit) {
  const rows = machine.axes.filter((name) => AXIS_LABELS[name]).map((name) => [name, row(name)]);
  const isMain = ([name]) => MAIN.includes(name);
  const byOrder = (a, b) => MAIN.indexOf(a[0]) - MAIN.indexOf(b[0]);
  const others = rows.filter((each) => !isMain(each));
  const open = others.some(([name]) => state.axes[name] !== undefined);
  return [
    ...rows.filter(isMain).sort(byOrder).map(([, element]) => element),
    others.length > 0 &&
      h("details", { open }, h("summary", {}, "More axes"), others.map(([, element]) => element)),
  ];

  function row(name) {
    if (name === "gpu") return choiceRow(name, machine.known_gpus);
    if (name === "nccl_version") return choiceRow(name, machine.nccl_versions);
    return CHOICES[name] ? choiceRow(name, CHOICES[name]) : sliderRow(name);
  }

  function choiceRow(name, choices) {
    const own = ownValue(name, machine);
    const chosen = state.axes[name] ?? own;
    const options = choices.map((value) =>
      h("option", { value, selected: value === chosen }, CHOICE_NAMES[value] ?? value),
    );
    const select = h(
      "select",
      { id: `axis-${name}`, change: () => { choose(select.value); onCommit(name); } },
      options,
    );
    return h("div.row", {}, h("label", { for: `axis-${name}` }, AXIS_LABELS[name]), select);

    function choose(value) {
      if (value === own) delete state.axes[name];
      else set(name, value);
    }
  }

  function sliderRow(name) {
    const values = sliderValues(name, machine);
    const own = ownValue(name, machine);
    const isCount = name === "nodes" || name === "ppn";
    const slider = h("input", {
      id: `axis-${name}`, type: "range", min: 0, max: values.length - 1, step: 1,
      input: () => { set(name, values[slider.valueAsNumber]); show(); onInput(name); },
      change: () => onCommit(name),
    });
    const field = isCount
      ? h("input", {
          type: "number", min: 1, max: name === "nodes" ? machine.max_nodes : 1024,
          "aria-label": `${AXIS_LABELS[name]}, exactly`,
          input: () => { if (isNumber(field)) set(name, field.valueAsNumber); },
          change: () => { if (isNumber(field)) { set(name, field.valueAsNumber); show(); onCommit(name); } },
        })
      : h("output", { for: `axis-${name}` });
    const reset = h(
      "button.plain.reset",
      { type: "button", "aria-label": `${AXIS_LABELS[name]}: reset to ${own || "the machine's own"}`,
        click: () => { delete state.axes[name]; show(); onCommit(name); } },
      `reset to ${own || "the machine's own"}`,
    );
    show();
    return h(
      "div.row",
      {},
      h("label", { for: `axis-${name}` }, AXIS_LABELS[name]), field, slider,
      !isCount && reset,
    );

    function show() {
      const value = state.axes[name] ?? own;
      slider.value = value === "" ? 0 : placeOf(value, values);
      slider.setAttribute("aria-valuetext", String(value));
      if (isCount) field.value = value;
      else field.textContent = value === "" ? "as built" : `${value}${name === "taper" ? " : 1" : ""}`;
      reset.hidden = state.axes[name] === undefined;
    }
  }

  function set(name, value) {
    state.axes[name] = value;
  }
}

function isNumber(field) {
  return field.checkValidity() && field.value !== "";
}

/** A labelled select; `options` are pairs of a value and its text. */
export function selectRow(id, label, options, value, onChange) {
  const select = h("select", { id, change: () => onChange(select.value) },
    options.map(([own, text]) => h("option", { value: own, selected: String(own) === String(value) }, text)));
  return h("div.row", {}, h("label", { for: id }, label), select);
}

/** Return a button for a file, which says that it is read until `onFile` has returned. */
export function fileField(id, text, onFile) {
  const label = h("label.button", { for: id, "aria-live": "polite" }, text);
  const field = h("input.visually-hidden", { id, type: "file", change: read });
  async function read() {
    const [file] = field.files;
    if (!file) return;
    label.textContent = `Reading ${file.name} …`;
    field.disabled = true;
    try {
      await onFile(file);
    } finally {
      label.textContent = text;
      field.disabled = false;
      field.value = ""; // so that the same file can be chosen again
    }
  }
  return h("div.upload", {}, field, label);
}

/** The box that says whether what a machine offers, and administrators have to configure, is configured. */
export function configuredRow(features, isConfigured, onChange) {
  const box = h("input", { type: "checkbox", checked: isConfigured, change: () => onChange(box.checked) });
  const names = features.map((name) => FEATURES[name]).join(" and ");
  return h("div.row", {}, h("label.check", {}, box, `The switches' ${names} ${features.length > 1 ? "are" : "is"} configured`));
}

/** Return the machines to choose: those known by name, uploaded ones, and first `topology` if it is neither. */
export function machineOptions(catalogue, topologies, topology, title = topology) {
  const uploaded = topologies.map((one) => [String(one.id), uploadedTitle(one)]);
  const known = [...catalogue.machines.map((one) => [one.topology, one.title]), ...uploaded];
  return known.some(([own]) => own === topology) ? known : [[topology, title], ...known];
}

/** Return a stored topology's name with what tells it from others of this name. */
export function uploadedTitle({ id, name, format }) {
  return `${name} (${format}, uploaded, ${id})`;
}

/** Say what a machine is made of. */
export function machineSentence({ nodes, gpus, gpu, cores, nics, fabric }) {
  const inside = gpus ? `${gpus} ${gpu || "GPUs"}` : plural(cores, "core");
  return `As it is: ${plural(nodes, "node")} of ${inside}, ${plural(nics, "NIC")}${fabric ? `; ${fabric}` : ""}`;
}

/** A select of sizes from 1 B to 4 GiB. */
export function sizeSelect(label, id, value, onChange) {
  const sizes = Array.from({ length: 33 }, (_, power) => 2 ** power);
  const select = h(
    "select",
    { id, change: () => onChange(Number(select.value)) },
    sizes.map((size) => h("option", { value: size, selected: size === value }, formatSize(size))),
  );
  return [h("label", { for: id }, label), select];
}
