// What every page takes outside: CSV, requests, SVG and PNG.
import { h, saveFile, svg } from "./dom.js";
import { css } from "./palette.js";

/** Return rows as CSV. */
export function csv(rows) {
  return `${rows.map((row) => row.map(csvField).join()).join("\n")}\n`;
}

/** Return a field of CSV; before what spreadsheets would run as a formula stands an apostrophe. */
function csvField(value) {
  if (typeof value !== "string") return value ?? "";
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Return a drawing that needs no style sheet as the text of a file, on white. */
export function svgText(drawing) {
  const copy = drawing.cloneNode(true);
  copy.prepend(svg("rect", { width: "100%", height: "100%", fill: "#ffffff" }));
  return `${new XMLSerializer().serializeToString(copy)}\n`;
}

/** Return the picture of SVG text as a PNG, twice as fine. */
export async function svgToPng(text) {
  const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  const image = new Image();
  image.src = url;
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), {
    width: 2 * image.naturalWidth,
    height: 2 * image.naturalHeight,
  });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(url);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

const DRAWN_STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family"];

/** Return a drawing of the page as SVG text that needs no style sheet, on the page's background. */
function standaloneSvg(drawing) {
  const copy = drawing.cloneNode(true);
  const copies = copy.querySelectorAll("*");
  drawing.querySelectorAll("*").forEach((element, at) => {
    const style = getComputedStyle(element);
    for (const name of DRAWN_STYLES) copies[at].setAttribute(name, style.getPropertyValue(name));
  });
  const { width, height } = drawing.viewBox.baseVal;
  copy.prepend(svg("rect", { width, height, fill: css("--card") }));
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  return new XMLSerializer().serializeToString(copy);
}

/** Return the buttons that save a drawing of the page as SVG and PNG. */
export function drawingButtons(drawing, name) {
  const savePng = async () =>
    saveFile(`${name}.png`, await svgToPng(standaloneSvg(drawing())), "image/png");
  return [
    h("button", { click: () => saveFile(`${name}.svg`, standaloneSvg(drawing()), "image/svg+xml") }, "SVG"),
    h("button", { click: savePng }, "PNG"),
  ];
}
