// Charts as SVG elements: the same on the page and in the files that are saved.
import { svg } from "./dom.js";

export const FONT = "system-ui, 'DejaVu Sans', sans-serif";

/** Return a text of a drawing. */
export function label(x, y, text, fill, anchor = "start", attributes = {}) {
  return svg("text", { x, y, fill, "text-anchor": anchor, "font-size": 12, ...attributes }, text);
}

/** Return every second, third, ... of some ticks, so that labels of a width fit. */
function thinned(ticks, length, width) {
  const every = Math.max(1, Math.ceil((ticks.length * width) / Math.max(length, 1)));
  return ticks.filter((_, at) => (ticks.length - 1 - at) % every === 0);
}

/** A frame of a chart with axes. Scales map values to pixels. */
export class Frame {
  /**
   * x, y     {low, high, log, ticks, format, label}; an axis of bars has {names} instead
   * mark     x that is shown as chosen
   */
  constructor({ width, height, title, x, y, ink, mark, left = 62 }) {
    this.x = x;
    this.y = y;
    this.ink = ink;
    this.box = { left, right: width - 12, top: title ? 30 : 12, bottom: height - (x.label ? 44 : 28) };
    this.root = svg("svg", {
      viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": title, "font-family": FONT, "font-size": 12,
    });
    if (title) this.add(label(left, 16, title, ink.text, "start", { "font-weight": 600, "font-size": 13 }));
    if (mark !== undefined && mark !== null) {
      const half = x.names ? this.band / 2 : 9;
      this.add(svg("rect", { x: this.atX(mark) - half, y: this.box.top, width: 2 * half, height: this.box.bottom - this.box.top, fill: ink.mark }));
    }
    this.#drawAxes();
  }

  get band() {
    return (this.box.right - this.box.left) / this.x.names.length;
  }

  atX(value) {
    const { left, right } = this.box;
    if (this.x.names) return left + (value + 0.5) * this.band;
    return left + this.#share(this.x, value) * (right - left);
  }

  atY(value) {
    const { top, bottom } = this.box;
    return bottom - this.#share(this.y, value) * (bottom - top);
  }

  #share({ low, high, log }, value) {
    if (low === high) return 0.5;
    return log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  }

  add(...elements) {
    this.root.append(...elements);
  }

  #text(x, y, content, anchor, attributes) {
    this.add(label(x, y, content, this.ink.muted, anchor, attributes));
  }

  #drawAxes() {
    const { left, right, bottom } = this.box;
    const { line, muted } = this.ink;
    for (const tick of this.y.ticks) {
      const y = this.atY(tick);
      this.add(svg("path", { d: `M${left} ${y}H${right}`, stroke: line }));
      this.#text(left - 6, y + 4, this.y.format(tick), "end");
    }
    const names = this.x.names ?? this.x.ticks;
    const longest = Math.max(...names.map((one, at) => (this.x.names ? one : this.x.format(one, at)).length), 1);
    const shown = thinned(names.map((_, at) => at), right - left, longest * 7 + 10);
    for (const at of shown) {
      const value = this.x.names ? at : names[at];
      const x = this.atX(value);
      if (!this.x.names) this.add(svg("path", { d: `M${x} ${bottom}v5`, stroke: line }));
      this.#text(x, bottom + 17, this.x.names ? names[at] : this.x.format(value), "middle");
    }
    this.add(svg("path", { d: `M${left} ${bottom}H${right}`, stroke: muted }));
    if (this.x.label) this.#text((left + right) / 2, bottom + 36, this.x.label, "middle");
  }

  /** Draw a curve through [x, y] points. */
  curve(points, { colour, dash = null, width = 2 }) {
    if (!points.length) return;
    const d = points.map(([x, y]) => `${this.atX(x).toFixed(1)} ${this.atY(y).toFixed(1)}`).join("L");
    this.add(svg("path", { d: `M${d}`, fill: "none", stroke: colour, "stroke-width": width, "stroke-dasharray": dash?.join(" ") || null, "stroke-linejoin": "round" }));
  }

  /** Draw a marker with what a pointer reads at it. */
  marker(x, y, { colour, shape = "circle", size = 4, title, click = null, hollow = false }) {
    const [cx, cy] = [this.atX(x), this.atY(y)];
    const look = { fill: hollow ? this.ink.card : colour, stroke: colour, "stroke-width": 2, class: click ? "clickable" : null, click };
    const diamond = `M${cx} ${cy - size - 1}l${size + 1} ${size + 1}l${-size - 1} ${size + 1}l${-size - 1} ${-size - 1}z`;
    const own = svg("title", {}, title ?? "");
    this.add(shape === "circle" ? svg("circle", { cx, cy, r: size, ...look }, own) : svg("path", { d: diamond, ...look }, own));
  }
}
