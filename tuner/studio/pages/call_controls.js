// The controls of one call: machine, collective, algorithm with its parameters, size, axes.
import { getJson } from "./api.js";
import { axisControls, machineOptions, selectRow } from "./controls.js";
import { formatParams } from "./call_question.js";
import { fill, h } from "./dom.js";
import { formatSize } from "./format.js";
import { setAlgorithms } from "./palette.js";

const PARAMETERS = { // what a parameter of an algorithm is
  segment: "Segment, in bytes, such as 32KiB; 0: the message whole", radix: "Radix: children of a rank, plus 1",
  group: "Ranks of a group", chains: "Chains", channels: "Channels", length: "Ranks of a chain",
  copies: "Buffers copied to the host", leaders: "Leaders of a node", aggregate: "Blocks of a message, at most",
};
const SIZES = Array.from({ length: 31 }, (_, power) => 2 ** power);

export class CallControls {
  state;
  machine;
  catalogue;
  topologies;

  constructor(onChange, onProblem) {
    this.onChange = onChange;
    this.onProblem = onProblem;
    this.element = h("section.controls", { "aria-label": "Machine and call" });
  }

  /** Load what the controls offer, and show a state in them, also where there is no such machine. */
  async start(state) {
    Object.assign(this, { state, machine: null });
    const machine = getJson(`/v1/what-if/machine?topology=${encodeURIComponent(state.topology)}`);
    const asked = state.topology;
    const offered = [this.catalogue ?? getJson("/v1/what-if/catalogue"), getJson("/v1/topologies?limit=1000")];
    const [catalogue, topologies] = await Promise.all([...offered, machine.catch(() => null)]);
    Object.assign(this, { catalogue, topologies: topologies.items });
    setAlgorithms(catalogue.algorithms);
    try {
      const found = await machine;
      if (state === this.state && asked === state.topology) this.machine = found;
    } finally {
      if (asked === this.state.topology) this.#fill();
    }
  }

  #fill() {
    const { state, catalogue } = this;
    const machines = machineOptions(catalogue, this.topologies, state.topology);
    const sizes = SIZES.includes(state.size) ? SIZES : [...SIZES, state.size].sort((a, b) => a - b);
    fill(
      this.element,
      selectRow("machine", "Machine", machines, state.topology, (value) => this.#chooseMachine(value)),
      selectRow("collective", "Collective", Object.keys(catalogue.algorithms).map((name) => [name, name]),
        state.collective, (value) => this.#chooseCollective(value)),
      selectRow("algorithm", "Algorithm", this.#algorithms().map((name) => [name, name]), state.algorithm,
        (value) => { Object.assign(state, { algorithm: value, params: "" }); this.#fill(); this.onChange(); }),
      ...this.#paramRows(),
      selectRow("size", "Size", sizes.map((size) => [String(size), formatSize(size)]), String(state.size),
        (value) => { state.size = Number(value); this.onChange(); }),
      ...(this.machine ? axisControls(this.machine, state, () => {}, () => this.onChange()) : []),
      h("p.muted", {}, "One call of up to 100\u2009000 transfers. ",
        h("a", { href: "/studio/what-if" }, "What if"), " compares all algorithms over the sizes."));
  }

  #algorithms() {
    const known = this.catalogue.algorithms[this.state.collective] ?? [];
    return known.includes(this.state.algorithm) ? known : [this.state.algorithm, ...known];
  }

  /** Return a field for each parameter of the algorithm; an empty one has the default. */
  #paramRows() {
    const { state, catalogue } = this;
    const defaults = catalogue.parameters[state.collective]?.[state.algorithm] ?? {};
    const given = Object.fromEntries(state.params.split(",").map((part) => part.split("=").map((word) => word.trim())));
    const fields = Object.entries(defaults).map(([name, own]) => h("input", {
      id: `param-${name}`, value: given[name] ?? "", placeholder: `${formatParams({ [name]: own }).split("=")[1]} by default`,
      autocomplete: "off", spellcheck: "false",
      change: () => {
        const filled = fields.map((field) => [field.id.slice("param-".length), field.value.trim()]).filter(([, value]) => value);
        state.params = filled.map((pair) => pair.join("=")).join(", ");
        this.onChange();
      },
    }));
    return fields.map((field) => {
      const name = field.id.slice("param-".length);
      return h("div.row.params", {}, h("label", { for: field.id }, PARAMETERS[name] ?? name), field);
    });
  }

  async #chooseMachine(topology) {
    Object.assign(this.state, { topology, axes: {} });
    try {
      await this.start(this.state);
      if (topology === this.state.topology) this.onChange();
    } catch (error) {
      if (topology === this.state.topology) this.onProblem(error);
    }
  }

  #chooseCollective(collective) {
    const known = this.catalogue.algorithms[collective];
    const algorithm = known.includes(this.state.algorithm) ? this.state.algorithm : known[0];
    Object.assign(this.state, { collective, algorithm, params: "" });
    this.#fill();
    this.onChange();
  }
}
