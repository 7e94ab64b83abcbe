// Tables of a call: where its time goes, and its rounds, page by page.
import { componentParts } from "./call_export.js";
import { h, headRow } from "./dom.js";
import { formatCount, formatSize, formatTime } from "./format.js";

const PAGE = 25; // rounds shown at once
const HEADS = ["round", "transfers", "bytes", "first starts", "last arrives", "longest transfer", "on the critical path"];

export class CallTables {
  from;
  model;
  onRound;

  constructor() {
    this.parts = h("section.card");
    this.rows = h("div.scroll", { tabindex: 0, role: "region", "aria-label": "Rounds" });
    this.count = h("span.muted");
    const turn = (by) => () => { this.from += by; this.#showRounds(); };
    this.buttons = [["Earlier rounds", -PAGE], ["Later rounds", PAGE]].map(([text, by]) =>
      h("button", { type: "button", click: turn(by) }, text));
    this.element = h("div.call-tables", {}, this.parts,
      h("section.card", {}, h("h2", {}, "Rounds"), this.rows, h("div.actions", {}, this.buttons, this.count)));
  }

  show(model, onRound) {
    Object.assign(this, { model, onRound, from: 0 });
    this.#showParts();
    this.#showRounds();
  }

  #showParts() {
    const rows = componentParts(this.model.record).map(([name, seconds, part]) =>
      h("tr", {}, h("th", { scope: "row" }, name),
        h("td", {}, h("meter", { min: 0, max: 1, value: part, "aria-label": name })),
        h("td.number", {}, formatTime(seconds)), h("td.number", {}, `${Math.round(part * 100)}%`)));
    this.parts.replaceChildren(h("h2", {}, "Where the time of the critical path goes"),
      h("table.help", {}, h("tbody", {}, rows)));
  }

  #showRounds() {
    const { model } = this;
    const rounds = model.rounds;
    const time = (ticks) => h("td.number", {}, formatTime(model.seconds(ticks)));
    const rows = rounds.slice(this.from, this.from + PAGE).map((row) =>
      h("tr", {},
        h("th", { scope: "row" }, h("button.plain", { type: "button", title: "show it in the timeline",
          click: () => this.onRound(row) }, String(row.number))),
        h("td.number", {}, formatCount(row.transfers)), h("td.number", {}, formatSize(row.bytes)),
        time(row.begin), time(row.end), time(row.longest), time(row.critical)));
    this.rows.replaceChildren(h("table", {},
      headRow(HEADS), h("tbody", {}, rows)));
    const last = Math.min(this.from + PAGE, rounds.length);
    this.count.textContent = rounds.length ? `${this.from + 1} to ${last} of ${formatCount(rounds.length)} rounds` : "No transfers.";
    this.buttons[0].disabled = this.from === 0;
    this.buttons[1].disabled = last >= rounds.length;
  }
}
