// The machine as a picture, on which the links of the critical path of one call are lit.
import { Refused, hasTooManyTransfers, send } from "./api.js";
import { CallModel } from "./call_model.js";
import { partsOfCandidate } from "./call_question.js";
import { h } from "./dom.js";
import { formatSize } from "./format.js";
import { MachinePicture } from "./machine_picture.js";

/** The card of the picture. `onToggle` is called when it is opened or closed. */
export class CallPicture {
  constructor(onToggle) {
    this.caption = h("p.muted", { role: "status" });
    this.place = h("div.picture-place");
    this.details = h(
      "details", { toggle: () => onToggle(this.details.open) },
      h("summary", {}, "On the machine: links of the critical path"), this.caption, this.place,
    );
    this.element = h("section.card", {}, this.details);
  }

  open(isOpen) {
    if (this.details.open !== isOpen) this.details.open = isOpen;
  }

  /** Ask for the call of a candidate and draw it; a picture that is no longer wanted is dropped. */
  async show({ topology, axes, collective }, candidate, nbytes) {
    const question = { topology, axes, collective, ...partsOfCandidate(candidate), nbytes };
    const key = JSON.stringify(question);
    if (key === this.key) return;
    this.key = key;
    this.caption.textContent = "Simulating …";
    try {
      const record = await traced(question);
      if (key === this.key) this.#draw(new CallModel(record), axes.nodes);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (key !== this.key) return;
      this.key = null; // so that it is asked for again
      this.#clear();
      this.caption.textContent = `${candidate} cannot be drawn: ${error.message}.`;
    }
  }

  #draw(model, nodes) {
    const { machine, ranks, candidate, nbytes } = model.record;
    const transfers = model.path.transfer.filter((transfer) => transfer >= 0);
    const critical = new Set(transfers.flatMap((transfer) => model.linksOf(transfer)));
    const loads = new Map([...model.links].map(([link, { mean }]) => [link, mean]));
    this.#clear();
    this.picture = new MachinePicture(this.place, machine, ranks);
    const isLocal = transfers.length > 0 && ![...critical].some((link) => link < machine.links.source.length);
    this.picture.showNode(isLocal ? ranks.node[model.transfers.src[transfers[0]]] : null);
    this.picture.light(loads, critical);
    const busiest = model.busiest.find((link) => critical.has(link));
    const most = busiest === undefined ? "" :
      ` The busiest of its critical path is ${model.linkNames[busiest]}, ${Math.round(100 * loads.get(busiest))}% of the time.`;
    const drawn = machine.nodes.length;
    const fewer = drawn < nodes ? ` Drawn on ${drawn} nodes, as the call has too many transfers on ${nodes}.` : "";
    this.caption.textContent = `${candidate} at ${formatSize(nbytes)}, with the average load of each link.${most}${fewer}`;
  }

  #clear() {
    this.picture?.remove();
    this.place.replaceChildren();
  }
}

/** Return the call that a question is about, on fewer nodes where it has too many transfers. */
async function traced(question) {
  try {
    return await (await send("POST", "/v1/what-if/call", question)).json();
  } catch (error) {
    if (!hasTooManyTransfers(error) || question.axes.nodes === 1) throw error;
    return traced({ ...question, axes: { ...question.axes, nodes: Math.ceil(question.axes.nodes / 2) } });
  }
}
