// The controls of the training page.
import { axisControls, fileField, machineOptions, machineSentence, selectRow } from "./controls.js";
import { fill, h } from "./dom.js";
import { formatCount } from "./format.js";
import { algorithmsName } from "./training_charts.js";
import {
  OWN_TABLE, TRAINING_AXES, formatSetting, nodesOf, parseSetting, ppnOf, settingValues, settingsOf,
} from "./training_question.js";

const SLIDERS = ["fusion_threshold", "bucket", "cycle_time"]; // settings that are moved, not written
const NCCL = ["nccl_ring", "nccl_tree"];

/** Fill the section of controls; `page` has the state, and functions that changes call. */
export function trainingControls(section, page) {
  const { state, machine, catalogue } = page;
  const set = (name) => (value) => { state[name] = value; page.changed(); };
  fill(section, [
    publishedRow(page),
    selectRow("machine", "Machine", machines(page), state.topology, page.chooseMachine),
    selectRow("model", "Model", modelOptions(state, catalogue), state.model, (value) => {
      Object.assign(state, { model: value, published: "" });
      page.rebuilt();
    }),
    h("div.row.uploads", {},
      fileField("upload", "Upload topology", page.uploadTopology), fileField("layers", "Upload layers", page.uploadLayers)),
    machine && h("p.fabric", {}, machineSentence(machine)),
    ...(machine ? machineRows(page) : []),
    selectRow("framework", "Framework", catalogue.frameworks.map((one) => [one.name, one.name]), state.framework, (value) => {
      Object.assign(state, { framework: value, settings: {} });
      page.rebuilt();
    }),
    ...settingRows(page, true),
    selectRow("algorithms", "Algorithms", algorithmOptions(page), state.algorithms, set("algorithms")),
    numberRow("batch", state.scaling === "strong" ? "Batch of all ranks" : "Batch of a rank", state.batch, { min: 1, max: 1 << 20, step: 1 }, set("batch")),
    selectRow("precision", "Precision", catalogue.precisions.map((one) => [one, one]), state.precision, set("precision")),
    ...costRows(page),
    moreRows(page),
  ]);
}

function machineRows(page) {
  const { state, machine } = page;
  const own = { ...machine, axes: machine.axes.filter((name) => TRAINING_AXES.includes(name)) };
  const total = h("output", { for: "axis-nodes" });
  const count = () => {
    const ranks = nodesOf(state, machine) * ppnOf(state, machine);
    total.textContent = formatCount(ranks);
  };
  const moved = () => { state.axes.nodes ??= nodesOf(state, machine); count(); page.moved(); };
  state.axes.nodes ??= nodesOf(state, machine);
  count();
  return [
    ...axisControls(own, state, moved, () => { count(); page.changed(); }),
    h("p.fabric", {}, machine.gpus ? "GPUs that train: " : "Ranks that train: ", total),
  ].filter(Boolean);
}

function publishedRow(page) {
  const { state, catalogue } = page;
  const options = [["", "a workload of your own"], ...catalogue.published.map((one) => [one.id, one.workload.name])];
  return selectRow("published", "Workload", options, state.published, page.choosePublished);
}

function modelOptions(state, catalogue) {
  const own = state.layers ? [[OWN_TABLE, `${state.layers.name} (uploaded layers)`]] : [];
  return [...own, ...catalogue.models.map((one) => [one.name, one.name])];
}

/** Return the machines to choose, and that of a published workload where it is none of them. */
function machines({ catalogue, topologies, state }) {
  const published = catalogue.published.find((one) => one.machine && one.workload.topology === state.topology);
  return machineOptions(catalogue, topologies, state.topology, published?.machine.title ?? published?.machine.name);
}

function algorithmOptions({ state, machine, algorithms }) {
  const own = machine?.gpus ? ["", "best", ...NCCL] : ["", "best"];
  const names = [...new Set([...own, state.algorithms, ...algorithms])];
  const empty = machine && !machine.gpus ? "the fastest of a few simple ones" : "as the library chooses";
  return names.map((name) => [name, name === "" ? empty : algorithmsName(name)]);
}

/** Rows of the framework's settings: those with sliders, or all others. */
function settingRows(page, withSliders) {
  const { state, catalogue } = page;
  const isMain = (setting) => SLIDERS.includes(setting.name) && setting.kind !== "number";
  const rows = settingsOf(state.framework, catalogue).filter((setting) => isMain(setting) === withSliders);
  return rows.map((setting) => (withSliders ? sliderRow(page, setting) : settingRow(page, setting)));
}

function title(setting) {
  const text = setting.name.replaceAll("_", " ");
  return text[0].toUpperCase() + text.slice(1);
}

function sliderRow({ state, moved, changed }, setting) {
  const value = () => state.settings[setting.name] ?? setting.default;
  const values = settingValues(setting, value());
  const output = h("output", { for: `set-${setting.name}` });
  const slider = h("input", {
    id: `set-${setting.name}`, type: "range", min: 0, max: values.length - 1, step: 1,
    input: () => { state.settings[setting.name] = values[slider.valueAsNumber]; show(); moved(); },
    change: () => changed(),
  });
  function show() {
    slider.value = values.indexOf(value());
    output.textContent = formatSetting(setting, value());
    slider.setAttribute("aria-valuetext", output.textContent);
  }
  show();
  return h("div.row", {}, h("label", { for: `set-${setting.name}` }, title(setting)), output, slider);
}

function settingRow({ state, changed }, setting) {
  const id = `set-${setting.name}`;
  const value = state.settings[setting.name] ?? setting.default;
  const set = (own) => { state.settings[setting.name] = own; changed(); };
  if (setting.kind === "choice") return selectRow(id, title(setting), setting.choices.map((one) => [one, one]), value, set);
  if (setting.kind === "flag") {
    const box = h("input", { id, type: "checkbox", checked: value, change: () => set(box.checked) });
    return h("div.row", {}, h("label", { for: id }, title(setting)), box);
  }
  if (setting.kind === "number") {
    return numberRow(id, title(setting), value, { min: 0, max: 100000, step: 1 }, set);
  }
  const field = h("input", {
    id, type: "text", value: formatSetting(setting, value),
    change: () => {
      const own = parseSetting(setting, field.value.trim());
      field.setCustomValidity(typeof own === "number" ? "" : "Write it like 64MiB, 5ms or 4GB/s.");
      if (field.reportValidity()) set(own);
    },
  });
  return h("div.row", {}, h("label", { for: id }, title(setting)), field);
}

function costRows({ state, priced }) {
  return [
    numberRow("gpu-hour", "Price of a GPU for an hour", state.gpu_hour, { min: 0, max: 1e6, step: "any" }, (value) => { state.gpu_hour = value; priced(); }),
    numberRow("epoch", "Samples of an epoch", state.epoch ?? "", { min: 1, max: 1e15, step: 1, placeholder: "1281167" }, (value) => { state.epoch = value; priced(); }, true),
  ];
}

function moreRows(page) {
  const { state, changed, rebuilt } = page;
  const open = state.noise !== "" || state.passes !== 1 || state.scaling !== "weak" || state.rate !== null;
  const noise = h("input", {
    id: "noise", type: "text", value: state.noise, placeholder: "0%",
    change: () => { state.noise = noise.value.trim(); changed(); },
  });
  return h("details", { open }, h("summary", {}, "More settings"),
    h("div.row", {}, h("label", { for: "noise" }, "Noise of computation"), noise),
    numberRow("passes", "Passes of an iteration", state.passes, { min: 1, max: 4096, step: 1 }, (value) => { state.passes = value; changed(); }),
    numberRow("rate", "Samples per second of one rank", state.rate ?? "", { min: 0, max: 1e12, step: "any", placeholder: "known" }, (value) => { state.rate = value; changed(); }, true),
    selectRow("scaling", "Scaling", [["weak", "weak: batch of a rank"], ["strong", "strong: batch of all"]], state.scaling, (value) => { state.scaling = value; rebuilt(); }),
    settingRows(page, false));
}

/** A field for a number; an empty one means null where it `mayBeEmpty`. */
function numberRow(id, label, value, limits, onChange, mayBeEmpty = false) {
  const field = h("input", {
    id, type: "number", value, required: !mayBeEmpty, ...limits,
    change: () => {
      if (!field.reportValidity()) return;
      onChange(field.value === "" ? null : field.valueAsNumber);
    },
  });
  return h("div.row", {}, h("label", { for: id }, label), field);
}
