// The controls of one call: machine, collective, algorithm with its parameters, size, axes.
import { getJson } from "./api.js";
import { axisControls, machineOptions, selectRow } from "./controls.js";
import { fill, h } from "./dom.js";
import { formatSize } from "./format.js";
import { setAlgorithms } from "./palette.js";

const SIZES = Array.from({ length: 31 }, (_, power) => 2 ** power);

export class CallControls {
  constructor(onChange, onProblem) {
    Object.assign(this, { onChange, onProblem });
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
      this.#paramsRow(),
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

  #paramsRow() {
    const { state } = this;
    const field = h("input", {
      id: "params", value: state.params, placeholder: "its own defaults", autocomplete: "off", spellcheck: "false",
      change: () => { state.params = field.value.trim(); this.onChange(); },
    });
    return h("div.row.params", {}, h("label", { for: "params" }, "Parameters, such as segment=32KiB"), field);
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
