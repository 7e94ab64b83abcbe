// The colour of an algorithm: the same for every collective, on every page and in the static plots
// (tuner/report/palette.py). The hues are Paul Tol's "muted" scheme, in a darker and a lighter form,
// so that each has a contrast of 3 to 1 with the background.

export const LIGHT = [
  "#332288", "#cc6677", "#117733", "#3a8fb5", "#882255", "#7f7f1d", "#2b8c7d", "#aa4499", "#a86f14",
];
export const DARK = [
  "#a99cf5", "#e58a99", "#52c47a", "#88ccee", "#e07aa8", "#c9c95c", "#44c7b4", "#dd8ccf", "#ddcc77",
];
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [4, 2], [12, 5], [1, 2], [6, 2, 1, 2]];

const DEFAULT = "default"; // what the library runs by itself: grey

let names = [];

/** Give every algorithm its place, by which it gets its colour. */
export function setAlgorithms(algorithms) {
  names = [...new Set(Object.values(algorithms).flat())].sort();
}

export function isDark() {
  return document.documentElement.dataset.theme === "dark";
}

/** Return the place of an algorithm; names that only a library has get one by their letters. */
export function placeOf(name) {
  const place = names.indexOf(name);
  return place < 0 ? [...name].reduce((sum, letter) => sum + letter.codePointAt(0), 0) : place;
}

/** Return the colour of an algorithm; `dark` says against which background. */
export function colourOf(name, dark = isDark()) {
  if (name === DEFAULT) return dark ? "#a5abb8" : "#5b606b";
  return (dark ? DARK : LIGHT)[placeOf(name) % LIGHT.length];
}

/** Return a colour by its number in the scheme, for what is no algorithm. */
export function hue(number, dark = isDark()) {
  return (dark ? DARK : LIGHT)[number % LIGHT.length];
}

/** Return the lengths of dashes and gaps, which differ where colours repeat. */
export function dashOf(name) {
  return DASHES[Math.floor(placeOf(name) / LIGHT.length) % DASHES.length];
}

/** Return a colour or length of the style sheet, by the name of its property. */
export function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const PAPER = {
  text: "#1d1f24", muted: "#5b606b", line: "#e2e4e9", card: "#ffffff", border: "#868c98", mark: "#eeedf5",
};

/** Return what charts are drawn with: colours of the page as it is, or those of a picture on paper. */
export function inkOf(isPaper) {
  const dark = !isPaper && isDark();
  const own = (name) => (isPaper ? PAPER[name] : css(`--${name}`));
  return {
    text: own("text"), muted: own("muted"), line: own("line"), card: own("card"), border: own("border"), mark: own("mark"),
    gain: dark ? "#52c47a" : "#117733",
    loss: dark ? "#e07aa8" : "#882255",
    colour: (name) => colourOf(name, dark),
    hue: (number) => hue(number, dark),
  };
}
