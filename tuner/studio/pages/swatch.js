// Swatches: small samples of what a thing is drawn with.
import { h, svg } from "./dom.js";
import { colourOf, dashOf } from "./palette.js";

const UNSTROKED = "default"; // what the library runs by itself

/** Return a sample of a colour; `shape` is "round" or "". */
export function swatch(colour, shape = "") {
  const element = h(shape ? `span.swatch.${shape}` : "span.swatch");
  element.style.background = colour;
  return element;
}

/** Return a sample of an algorithm: where colours repeat, the stroke differs as in charts and maps. */
export function algorithmSwatch(algorithm) {
  const fill = colourOf(algorithm);
  return svg("svg", { width: 18, height: 13, class: "algorithm-swatch", "aria-hidden": "true" },
    svg("rect", { width: 18, height: 13, rx: 2, fill, "fill-opacity": 0.38 }),
    algorithm !== UNSTROKED && svg("path", {
      d: "M0 2.5h18", stroke: fill, "stroke-width": 5, "stroke-dasharray": dashOf(algorithm).join(" "),
    }));
}
