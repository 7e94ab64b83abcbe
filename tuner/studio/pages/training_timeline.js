// The timeline of an iteration on a canvas: a row of bars for each stream, zoomed and moved as that of a call.
import { h } from "./dom.js";
import { css, isDark } from "./palette.js";

const ROW = 30;
const BAR = 22;
const TOP = 24;
const LABELS = 132; // pixels of the names of rows; on narrow pages above the rows
const NARROW = 560;
const STEP = 1.25; // of one step of zooming
const MIN_LABELLED = 44; // pixels of a bar with its name in it

export class IterationTimeline {
  /** `describe` returns the sentence of a bar; `colour` that of its phase. */
  constructor(place, { describe, colour, format, ticks }) {
    this.describe = describe;
    this.colour = colour;
    this.format = format;
    this.ticks = ticks;
    this.canvas = h("canvas", {
      tabindex: 0, role: "application",
      "aria-label": "Timeline: a row for each stream. Arrows move, plus and minus zoom, Home shows all, " +
        "Page Up and Page Down move by a page.",
      wheel: (event) => this.#wheel(event), pointerdown: (event) => this.#grab(event),
      pointermove: (event) => this.#point(event), pointerleave: () => this.#say(""),
      pointerup: () => this.#release(), pointercancel: () => this.#release(),
      keydown: (event) => this.#key(event), dblclick: () => this.showAll(),
    });
    this.said = h("p.hover", {}, "\u00a0");
    place.replaceChildren(h("div.training-timeline", {}, this.canvas), this.said);
    this.rows = [];
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
  }

  /** Show rows of {name, bars}; bars are {start, seconds, ...} in the order of their starts. */
  show(rows) {
    const end = Math.max(...rows.flatMap((row) => row.bars.map((bar) => bar.start + bar.seconds)), 1e-9);
    const isNew = end !== this.end;
    this.rows = rows;
    this.end = end;
    if (isNew) this.view = [0, end];
    this.draw();
  }

  showAll() {
    this.view = [0, this.end];
    this.draw();
  }

  get #left() {
    return this.width < NARROW ? 8 : LABELS;
  }

  #atX(seconds) {
    const [from, to] = this.view;
    return this.#left + ((seconds - from) / (to - from)) * (this.width - this.#left - 8);
  }

  #secondsAt(x) {
    const [from, to] = this.view;
    return from + ((x - this.#left) / (this.width - this.#left - 8)) * (to - from);
  }

  draw() {
    if (!this.view) return;
    const scale = devicePixelRatio;
    this.width = Math.max(240, this.canvas.parentElement.clientWidth);
    this.rowHeight = this.width < NARROW ? ROW + 16 : ROW;
    const height = TOP + this.rows.length * this.rowHeight + 6;
    if (this.canvas.width !== Math.round(this.width * scale) || this.canvas.height !== Math.round(height * scale)) {
      this.canvas.width = Math.round(this.width * scale);
      this.canvas.height = Math.round(height * scale);
      this.canvas.style.setProperty("width", `${this.width}px`);
      this.canvas.style.setProperty("height", `${height}px`);
    }
    const context = this.canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, this.width, height);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.#drawAxis(context, height);
    this.rows.forEach((row, number) => this.#drawRow(context, row, number));
  }

  #drawAxis(context, height) {
    context.fillStyle = css("--muted");
    context.strokeStyle = css("--line");
    context.textAlign = "center";
    const [from, to] = this.view;
    for (const tick of this.ticks(from, to, Math.max(2, (this.width - this.#left) / 110))) {
      const x = this.#atX(tick);
      context.beginPath();
      context.moveTo(x, TOP - 6);
      context.lineTo(x, height);
      context.stroke();
      context.fillText(tick ? this.format(tick) : "0", Math.min(Math.max(x, this.#left + 6), this.width - 24), 9);
    }
  }

  #drawRow(context, row, number) {
    const bottom = TOP + (number + 1) * this.rowHeight;
    const top = bottom - BAR - 4;
    context.textAlign = "left";
    context.fillStyle = css("--text");
    if (this.width < NARROW) {
      context.fillText(row.name.replace("\n", " "), 8, top - 9);
    } else {
      const lines = row.name.split("\n");
      lines.forEach((line, at) => context.fillText(line, 2, top + BAR / 2 + (at - (lines.length - 1) / 2) * 13, LABELS - 8));
    }
    context.save();
    context.beginPath();
    context.rect(this.#left, 0, this.width - this.#left - 8, bottom);
    context.clip();
    const { bars } = row;
    let until = -Infinity; // pixel up to which the row is filled
    for (let at = this.#firstVisible(bars); at < bars.length && bars[at].start < this.view[1]; at += 1) {
      const bar = bars[at];
      const [x, end] = [this.#atX(bar.start), this.#atX(bar.start + bar.seconds)];
      if (end < until) continue;
      const width = Math.max(end - x, 1);
      context.fillStyle = this.colour(bar);
      context.fillRect(x, top, width, BAR);
      if (width > 3) {
        context.fillStyle = css("--card");
        context.fillRect(end - 0.6, top, 0.6, BAR);
      }
      if (width > MIN_LABELLED) {
        context.fillStyle = isDark() ? "#15131f" : "#ffffff";
        context.fillText(fitted(context, bar.name, width - 10), Math.max(x, this.#left) + 5, top + BAR / 2);
      }
      until = Math.floor(x) + 1;
    }
    context.restore();
  }

  /** Return the first bar that may be visible; bars of a row do not overlap. */
  #firstVisible(bars) {
    let [low, high] = [0, bars.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (bars[middle].start + bars[middle].seconds < this.view[0]) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #zoom(factor, x = this.width / 2) {
    const at = this.#secondsAt(x);
    const [from, to] = this.view.map((edge) => at + (edge - at) * factor);
    this.#move(from, to);
  }

  #move(from, to) {
    const length = Math.min(to - from, this.end);
    if (length < this.end * 1e-6) return;
    const begin = Math.min(Math.max(0, from), this.end - length);
    this.view = [begin, begin + length];
    this.draw();
  }

  #pan(share) {
    const [from, to] = this.view;
    const by = share * (to - from);
    this.#move(from + by, to + by);
  }

  /** Zoom with the wheel where the timeline has the focus or Ctrl is held; else the page scrolls. */
  #wheel(event) {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== this.canvas) return;
    event.preventDefault();
    if (event.shiftKey) this.#pan(Math.sign(event.deltaY || event.deltaX) / 10);
    else this.#zoom(event.deltaY > 0 ? STEP : 1 / STEP, event.offsetX);
  }

  #grab(event) {
    if (event.button !== 0) return;
    this.grabbed = { x: event.offsetX, view: this.view };
    this.canvas.setPointerCapture(event.pointerId);
  }

  #release() {
    this.grabbed = null;
  }

  #point(event) {
    if (this.grabbed) {
      const [from, to] = this.grabbed.view;
      const by = ((this.grabbed.x - event.offsetX) / (this.width - this.#left - 8)) * (to - from);
      this.#move(from + by, to + by);
      return;
    }
    const row = this.rows[Math.floor((event.offsetY - TOP) / this.rowHeight)];
    const seconds = this.#secondsAt(event.offsetX);
    const slack = this.#secondsAt(event.offsetX + 2) - seconds;
    const near = row?.bars.find((bar) => bar.start - slack <= seconds && seconds <= bar.start + bar.seconds + slack);
    this.#say(near ? this.describe(near) : "");
  }

  #say(text) {
    this.said.textContent = text || "\u00a0";
  }

  #key(event) {
    const act = {
      ArrowLeft: () => this.#pan(-0.1), ArrowRight: () => this.#pan(0.1),
      PageUp: () => this.#pan(-0.9), PageDown: () => this.#pan(0.9),
      "+": () => this.#zoom(1 / STEP), "=": () => this.#zoom(1 / STEP), "-": () => this.#zoom(STEP), Home: () => this.showAll(),
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    act();
  }

  zoomIn() {
    this.#zoom(1 / STEP ** 2);
  }

  zoomOut() {
    this.#zoom(STEP ** 2);
  }
}

function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > width) end -= 1;
  return end > 1 ? `${text.slice(0, end)}…` : "";
}
