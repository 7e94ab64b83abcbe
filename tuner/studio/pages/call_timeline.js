// The timeline of a call on a canvas: a row for each rank, sends above, receives below, work between.
// Bars are found by bisection and painted pixel by pixel, so that those less than a pixel apart are one.
import { bisect } from "./call_model.js";
import { h } from "./dom.js";
import { formatTime } from "./format.js";
import { css } from "./palette.js";
import { linearTicks } from "./ticks.js";

export const GUTTER = 84; // pixels of the names of rows
const AXIS = 22; // pixels of the times above the rows
const [MIN_ROW, MAX_ROW] = [9, 30]; // pixels of a row
const SCREEN_PART = 0.36; // of the window's height for the rows, so that the machine is seen, too
const MIN_WINDOW = 20; // ticks
const COLOURS = ["send", "receive", "flight", "work", "followed", "critical"];

/** Return the colours of the theme: for the pixels of an image and for lines and text. */
function themeColours() {
  /** @type {Record<string, any>} */
  const found = Object.fromEntries(["text", "muted", "line", "mark", "card"].map((name) => [name, css(`--${name}`)]));
  for (const name of COLOURS) found[name] = css(`--bar-${name}`);
  found.pixels = Object.fromEntries(COLOURS.map((name) => [name, pixelOf(found[name])]));
  found.pixels.faint = pixelOf(css("--faint"));
  return found;
}

/** Return #rrggbb as a pixel of an image, whose bytes are red, green, blue and opacity. */
function pixelOf(hex) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return new Uint32Array(new Uint8Array([r, g, b, 255]).buffer)[0];
}

export class CallTimeline {
  carries;
  /** @type {[number, number]} */
  view;

  constructor(place, { onView, onTime, onHover }) {
    this.place = place;
    this.onView = onView;
    this.onTime = onTime;
    this.onHover = onHover;
    this.canvas = h("canvas.timeline", {
      tabindex: 0, role: "application",
      "aria-label": "Timeline: a row for each rank. Arrows move, plus and minus zoom, Home shows all, " +
        "Page Up and Page Down move by a page, Enter puts the time in the middle of what is shown.",
      keydown: (event) => this.#pressed(event),
      pointerdown: (event) => this.#grab(event),
      pointermove: (event) => this.#pointed(event),
      pointerleave: () => this.onHover(null),
    });
    this.canvas.addEventListener("wheel", (event) => this.#wheeled(event), { passive: false });
    this.cursor = h("div.cursor", { "aria-hidden": "true" });
    place.replaceChildren(this.canvas, this.cursor);
    this.pen = this.canvas.getContext("2d");
    this.scroll = 0;
    new ResizeObserver(() => this.draw()).observe(place);
  }

  /** Show a call; `view` has the first and the last time shown. */
  show(model, view) {
    this.model = model;
    this.view = view && view[0] < model.end ? [view[0], Math.min(view[1], model.end)] : [0, model.end];
    this.scroll = 0;
    this.found = null;
    this.mask = null;
    this.draw();
  }

  get room() {
    return Math.max(240, Math.round(innerHeight * SCREEN_PART));
  }

  get rowHeight() {
    return Math.max(MIN_ROW, Math.min(MAX_ROW, Math.floor(this.room / this.model.ranks)));
  }

  get height() {
    return Math.min(this.room, this.rowHeight * this.model.ranks);
  }

  get width() {
    return Math.max(40, this.place.clientWidth - GUTTER);
  }

  setView(from, to) {
    const { end } = this.model;
    const span = Math.min(end, Math.max(MIN_WINDOW, to - from));
    const first = Math.min(Math.max(0, from), end - span);
    this.view = [first, first + span];
    this.onView(this.view);
    this.drawSoon();
  }

  /** Zoom about a place: 0 is the left edge, 1 the right one. */
  zoom(factor, about = 0.5) {
    const [from, to] = this.view;
    const middle = from + (to - from) * about;
    this.setView(middle - (middle - from) * factor, middle + (to - middle) * factor);
  }

  pan(part) {
    const [from, to] = this.view;
    this.setView(from + (to - from) * part, to + (to - from) * part);
  }

  fit() {
    this.setView(0, this.model.end);
  }

  /** Scroll to a rank; with `ifHidden` only where its row is not seen. */
  scrollTo(rank, ifHidden = false) {
    const top = rank * this.rowHeight - this.scroll;
    if (ifHidden && top >= 0 && top + this.rowHeight <= this.height) return;
    this.scroll = rank * this.rowHeight - this.height / 2;
    this.drawSoon();
  }

  /** Mark the row of a rank, or make faint all transfers but those over a link. */
  mark(rank, transfers) {
    this.found = rank;
    this.mask = transfers;
    const first = rank ?? (transfers && this.model.transfers.src[transfers.indexOf(1)]);
    if (first !== null) this.scrollTo(first, true);
    this.drawSoon();
  }

  setTime(time) {
    this.time = time;
    this.#placeCursor();
  }

  #placeCursor() {
    const [from, to] = this.view;
    const x = ((this.time - from) / (to - from)) * this.width;
    this.cursor.hidden = !(x >= 0 && x <= this.width);
    this.cursor.style.setProperty("transform", `translateX(${GUTTER + x}px)`);
  }

  drawSoon() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.draw();
    });
  }

  draw() {
    if (!this.model) return;
    const ratio = devicePixelRatio;
    const [width, height] = [this.width + GUTTER, this.height + AXIS];
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.setProperty("width", `${width}px`);
      this.canvas.style.setProperty("height", `${height}px`);
      this.image = null;
    }
    const rows = this.rowHeight * this.model.ranks;
    this.scroll = Math.max(0, Math.min(this.scroll, rows - this.height));
    this.colours = themeColours();
    this.#paintBars(ratio);
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.#drawNames();
    this.#drawAxis();
    this.#drawPath();
    this.#placeCursor();
  }

  #paintBars(ratio) {
    const [width, height] = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
    if (!this.image || this.image.width !== width || this.image.height !== height) {
      this.image = this.pen.createImageData(width, height);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    this.pixels.fill(0);
    const each = this.rowHeight * ratio;
    const first = Math.floor((this.scroll * ratio) / each);
    const last = Math.min(this.model.ranks, Math.ceil(((this.scroll + this.height) * ratio) / each));
    for (let rank = first; rank < last; rank += 1) {
      this.#paintRow(rank, rank * each - this.scroll * ratio, each, width, height);
    }
    this.pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.pen.putImageData(this.image, Math.round(GUTTER * ratio), Math.round(AXIS * ratio));
  }

  #paintRow(rank, top, each, width, height) {
    const { send, receive, work } = this.colours.pixels;
    const gap = each > 12 ? Math.ceil(each * 0.08) : 1;
    const middle = top + each / 2;
    const lanes = [
      [this.model.sends[rank], send, top + gap, middle],
      [this.model.receives[rank], receive, middle, top + each - gap],
      [this.model.work[rank], work, middle - each * 0.12, middle + each * 0.12],
    ];
    for (const [lane, colour, begin, end] of lanes) {
      const [y0, y1] = [Math.max(0, Math.round(begin)), Math.min(height, Math.round(end))];
      if (y1 <= y0 || lane.items.length === 0) continue;
      if (colour === work) {
        this.#paintWork(lane, colour, y0, y1, width);
        continue;
      }
      this.#paintLane(lane, colour, this.pixels.subarray(y0 * width, (y0 + 1) * width), width);
      for (let y = y0 + 1; y < y1; y += 1) this.pixels.copyWithin(y * width, y0 * width, (y0 + 1) * width);
    }
  }

  /** Paint the bars of a lane into one line of pixels: first all, then those that are followed. */
  #paintLane(lane, colour, line, width) {
    const { faint, flight, followed } = this.colours.pixels;
    const [from, to] = this.view;
    const scale = width / (to - from);
    const { released } = this.model.transfers;
    const [first, last] = lane.between(from, to);
    const isReceive = colour === this.colours.pixels.receive;
    const paint = (at, colour) => {
      const x0 = Math.max(0, Math.floor((lane.begins[at] - from) * scale));
      const x1 = Math.min(width, Math.max(x0 + 1, Math.round((lane.ends[at] - from) * scale)));
      if (isReceive && colour !== faint && colour !== followed) {
        const turn = Math.max(x0, Math.round((released[lane.items[at]] - from) * scale));
        line.fill(flight, Math.min(turn, x1), x1);
        line.fill(colour, x0, Math.min(turn, x1));
      } else line.fill(colour, x0, x1);
    };
    const { mask, carries } = this;
    for (let at = first; at < last; at += 1) paint(at, mask && !mask[lane.items[at]] ? faint : colour);
    if (mask) for (let at = first; at < last; at += 1) if (mask[lane.items[at]]) paint(at, colour);
    if (carries) for (let at = first; at < last; at += 1) if (carries[lane.items[at]]) paint(at, followed);
  }

  /** Paint copies and reductions over what is there. */
  #paintWork(lane, colour, y0, y1, width) {
    const [from, to] = this.view;
    const scale = width / (to - from);
    const [first, last] = lane.between(from, to);
    for (let at = first; at < last; at += 1) {
      const x0 = Math.max(0, Math.floor((lane.begins[at] - from) * scale));
      const x1 = Math.min(width, Math.max(x0 + 1, Math.round((lane.ends[at] - from) * scale)));
      for (let y = y0; y < y1 && x0 < x1; y += 1) this.pixels.fill(colour, y * width + x0, y * width + x1);
    }
  }

  #drawNames() {
    const { pen, colours, rowHeight, model } = this;
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    const every = Math.ceil(15 / rowHeight);
    const first = Math.floor(this.scroll / rowHeight);
    for (let rank = first; rank < model.ranks; rank += 1) {
      const y = AXIS + rank * rowHeight - this.scroll;
      if (y > AXIS + this.height) break;
      const isFound = rank === this.found;
      if (isFound) {
        pen.fillStyle = colours.mark;
        pen.fillRect(0, y, GUTTER + this.width, rowHeight);
      }
      const node = model.record.ranks.node[rank];
      if (rank > 0 && node !== model.record.ranks.node[rank - 1]) {
        pen.fillStyle = colours.line;
        pen.fillRect(0, y, GUTTER + this.width, 1);
      }
      const isFree = this.found === null || Math.abs(rank - this.found) >= every;
      if (((rank % every === 0 && isFree) || isFound) && y + rowHeight / 2 > AXIS + 4) {
        pen.fillStyle = isFound ? colours.text : colours.muted;
        pen.fillText(`rank ${rank}`, GUTTER - 8, y + rowHeight / 2, GUTTER - 12);
      }
    }
  }

  #drawAxis() {
    const { pen, colours, width, model } = this;
    const [from, to] = this.view.map((time) => model.seconds(time));
    pen.textAlign = "center";
    pen.textBaseline = "alphabetic";
    for (const at of linearTicks(from, to, width / 90)) {
      const x = GUTTER + ((at - from) / (to - from)) * width;
      pen.fillStyle = colours.line;
      pen.fillRect(Math.round(x), AXIS - 4, 1, 4);
      pen.fillStyle = colours.muted;
      pen.fillText(at === 0 ? "0" : timeLabel(at, to - from), Math.min(x, GUTTER + width - 24), AXIS - 8);
    }
  }

  /** Draw the critical path along the rows that it visits, and across to the next one. */
  #drawPath() {
    const { pen, model, rowHeight } = this;
    const { path } = model;
    const [from, to] = this.view;
    const scale = this.width / (to - from);
    const y = (at) => {
      const transfer = path.transfer[at];
      const lane = transfer < 0 ? 0.5 : model.transfers.src[transfer] === path.rank[at] ? 0.27 : 0.73;
      return AXIS + (path.rank[at] + lane) * rowHeight - this.scroll;
    };
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER, AXIS, this.width, this.height);
    pen.clip();
    pen.strokeStyle = this.colours.critical;
    const first = Math.max(0, bisect(path.end, from) - 1);
    let last = first;
    while (last < path.begin.length && path.begin[last] <= to) last += 1;
    const x = (time) => GUTTER + (time - from) * scale;
    const stroke = (width, opacity, step) => {
      Object.assign(pen, { lineWidth: width, globalAlpha: opacity });
      pen.beginPath();
      for (let at = first; at < last; at += 1) step(at);
      pen.stroke();
    };
    stroke(1.5, 0.8, (at) => {
      if (at > first) pen.moveTo(x(path.begin[at]), y(at - 1));
      if (at > first) pen.lineTo(x(path.begin[at]), y(at));
    });
    const along = (at) => {
      pen.moveTo(x(path.begin[at]), y(at));
      pen.lineTo(Math.max(x(path.end[at]), x(path.begin[at]) + 1), y(at));
    };
    pen.strokeStyle = this.colours.card; // an edge, so that the path stands out from the bars
    stroke(7, 0.85, along);
    pen.strokeStyle = this.colours.critical;
    stroke(3.5, 1, along);
    pen.restore();
  }

  /** Return the rank and the transfer at a point of the canvas; null where there is none. */
  at(x, y) {
    const rank = Math.floor((y - AXIS + this.scroll) / this.rowHeight);
    if (x < GUTTER || y < AXIS || rank < 0 || rank >= this.model.ranks) return null;
    const [from, to] = this.view;
    const time = from + ((x - GUTTER) / this.width) * (to - from);
    const isUpper = (y - AXIS + this.scroll) % this.rowHeight < this.rowHeight / 2;
    const lane = (isUpper ? this.model.sends : this.model.receives)[rank];
    const slack = ((to - from) / this.width) * 2;
    const [first, last] = lane.between(time - slack, time + slack);
    let found = -1;
    for (let at = first; at < last; at += 1) {
      if (lane.ends[at] >= time - slack) found = lane.items[at];
    }
    return { rank, time, transfer: found };
  }

  #pressed(event) {
    const moves = {
      ArrowLeft: () => this.pan(-0.1), ArrowRight: () => this.pan(0.1),
      PageUp: () => this.pan(-0.9), PageDown: () => this.pan(0.9),
      ArrowUp: () => { this.scroll -= this.rowHeight; this.drawSoon(); },
      ArrowDown: () => { this.scroll += this.rowHeight; this.drawSoon(); },
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2),
      Home: () => this.fit(),
      Enter: () => this.onTime((this.view[0] + this.view[1]) / 2),
    };
    if (!moves[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    moves[event.key]();
  }

  /** Zoom with the wheel where the timeline has the focus or Ctrl is held; else the page scrolls. */
  #wheeled(event) {
    const isMine = event.ctrlKey || event.metaKey || document.activeElement === this.canvas;
    if (!isMine || !this.model) return;
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.pan((event.deltaX || event.deltaY) / this.width);
      return;
    }
    const about = (event.offsetX - GUTTER) / this.width;
    this.zoom(2 ** (Math.sign(event.deltaY) * Math.min(1, Math.abs(event.deltaY) / 200)), Math.min(1, Math.max(0, about)));
  }

  /** Pan while the pointer is held down; a click without a move sets the time. */
  #grab(event) {
    if (event.button !== 0 || !this.model) return;
    this.canvas.setPointerCapture(event.pointerId);
    const [x, y, [from, to], scroll] = [event.clientX, event.clientY, this.view, this.scroll];
    let isMoved = false;
    const released = new AbortController(); // or taken over by the browser, such as to scroll
    const { signal } = released;
    const move = (moved) => {
      isMoved ||= Math.hypot(moved.clientX - x, moved.clientY - y) > 4;
      if (!isMoved) return;
      const away = ((x - moved.clientX) / this.width) * (to - from);
      this.scroll = scroll + y - moved.clientY;
      this.setView(from + away, to + away);
    };
    const release = (up) => {
      released.abort();
      const at = isMoved ? null : this.at(up.offsetX, up.offsetY);
      if (at) this.onTime(at.time);
    };
    this.canvas.addEventListener("pointermove", move, { signal });
    this.canvas.addEventListener("pointerup", release, { signal });
    this.canvas.addEventListener("pointercancel", () => released.abort(), { signal });
  }

  #pointed(event) {
    if (this.model && event.buttons === 0) this.onHover(this.at(event.offsetX, event.offsetY));
  }
}

/** Return a time with as many digits as tell neighbouring ticks apart. */
function timeLabel(seconds, span) {
  const digits = Math.max(3, Math.ceil(Math.log10(seconds / span)) + 3);
  for (const [unit, scale] of /** @type {[string, number][]} */ ([["s", 1], ["ms", 1e-3], ["us", 1e-6]])) {
    if (seconds >= scale) return `${Number((seconds / scale).toPrecision(digits))}${unit}`;
  }
  return formatTime(seconds);
}
