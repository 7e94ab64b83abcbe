// How much of each link is used over the time that the timeline shows: a strip for each link.
import { h } from "./dom.js";
import { css } from "./palette.js";
import { GUTTER } from "./call_timeline.js";

const PAGE = 8; // links shown at once
const HEIGHT = 26; // pixels of a strip

export class LinkChart {
  model;

  constructor(place, onChoose) {
    this.onChoose = onChoose;
    this.from = 0;
    this.list = h("ol.links");
    this.count = h("span.muted");
    const turn = (by) => () => { this.from += by; this.show(); };
    this.buttons = [["Busier", -PAGE], ["Less busy", PAGE]].map(([text, by]) =>
      h("button", { type: "button", click: turn(by) }, text));
    place.replaceChildren(this.list, h("div.actions", {}, this.buttons, this.count));
    new ResizeObserver(() => this.draw()).observe(place);
  }

  setModel(model, view) {
    Object.assign(this, { model, view, from: 0, found: null });
    this.show();
  }

  /** Show the page with a link, and mark that. */
  find(link) {
    this.found = link;
    this.from = Math.max(0, Math.floor(this.model.busiest.indexOf(link) / PAGE) * PAGE);
    this.show();
  }

  show() {
    const { model } = this;
    const last = Math.max(0, model.busiest.length - 1);
    this.from = Math.max(0, Math.min(this.from, Math.floor(last / PAGE) * PAGE));
    const links = model.busiest.slice(this.from, this.from + PAGE);
    this.rows = links.map((link) => {
      const canvas = h("canvas", { "aria-hidden": "true" });
      const mean = `${Math.round(model.links.get(link).mean * 100)}%`;
      const isFound = link === this.found;
      const item = h("li", { "aria-current": isFound && "true" },
        h("button.plain", { type: "button", "aria-pressed": String(isFound), click: () => this.onChoose(isFound ? null : link) },
          model.linkNames[link]),
        h("small", {}, `${mean} of its capacity on average`), canvas);
      return { link, canvas, item };
    });
    this.list.replaceChildren(...this.rows.map((row) => row.item));
    this.count.textContent = links.length
      ? `${this.from + 1} to ${this.from + links.length} of ${model.busiest.length} links that are used`
      : "No link is used.";
    this.buttons[0].disabled = this.from === 0;
    this.buttons[1].disabled = this.from + PAGE >= model.busiest.length;
    this.draw();
  }

  setView(view) {
    this.view = view;
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.draw();
    });
  }

  draw() {
    if (!this.rows) return;
    const [fill, line] = [css("--bar-send"), css("--line")];
    for (const { link, canvas } of this.rows) {
      const ratio = devicePixelRatio;
      const width = Math.max(40, Math.round((this.list.clientWidth - GUTTER) * ratio));
      const height = Math.round(HEIGHT * ratio);
      Object.assign(canvas, { width, height });
      canvas.style.setProperty("height", `${HEIGHT}px`);
      const pen = canvas.getContext("2d");
      pen.fillStyle = line;
      pen.fillRect(0, 0, width, 1);
      pen.fillRect(0, height - 1, width, 1);
      pen.fillStyle = fill;
      this.model.loadOverTime(link, ...this.view, width).forEach((load, x) => {
        const high = Math.min(1, load) * (height - 2);
        if (high > 0) pen.fillRect(x, height - 1 - high, 1, high);
      });
    }
  }
}
