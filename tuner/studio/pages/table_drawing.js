// What both drawings of the page "Table" share: the root, and an axis of sizes.
import { svg } from "./dom.js";
import { formatSize } from "./format.js";
import { FONT, label } from "./svg.js";

/** Return the powers of two to write on an axis of this width. */
function sizeTicks([low, high], width, room = 52) {
  const step = Math.max(1, Math.ceil(((high - low) * room) / Math.max(width, 1)));
  const first = Math.ceil(low / step) * step;
  const found = [];
  for (let power = first; power <= high; power += step) found.push(power);
  return found;
}

/** Return the place of a size on an axis; below its beginning is its beginning. */
export function sizePlace(nbytes, [low, high], left, width) {
  const power = nbytes <= 0 ? low : nbytes === Infinity ? high : Math.log2(nbytes);
  return left + ((Math.min(Math.max(power, low), high) - low) / (high - low)) * width;
}

/** Return grid lines and names of sizes below them. */
export function sizeAxis(limits, left, top, width, height, ink) {
  return sizeTicks(limits, width).flatMap((power) => {
    const x = sizePlace(2 ** power, limits, left, width);
    return [
      svg("path", { d: `M${x} ${top}V${top + height}`, stroke: ink.line, "stroke-width": 1 }),
      label(x, top + height + 16, formatSize(2 ** power), ink.muted, x > left + width - 14 ? "end" : "middle"),
    ];
  });
}

/** Return the root of a drawing. */
export function picture(width, height, title, ...children) {
  return svg(
    "svg",
    {
      width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": title,
      "font-family": FONT, "font-size": 12,
    },
    ...children,
  );
}
