// The page "Open": what files hold, what is slow in them, and which commands take them.
import { getJson, problemText, send } from "./api.js";
import { selectRow } from "./controls.js";
import { commandLine, fill, h, headRow } from "./dom.js";
import { formatTime } from "./format.js";

const PATH = "/v1/overviews";
const COUNTS = [["ranks", "Ranks"], ["nodes", "Nodes"], ["ppn", "Ranks per node"]];
const NOISE = 1.05; // ratio of two times up to which they count as equal
const NO_MACHINE = ["", "none"];

/** Show the page, and open files that were dropped on another page. */
export async function show(main, files = []) {
  const { machines } = await getJson("/v1/what-if/catalogue");
  const page = new Open(main, machines);
  if (files.length) await page.open(files);
}

class Open {
  constructor(main, machines) {
    this.main = main;
    this.files = [];
    this.told = {};
    this.answer = h("div.answer");
    main.classList.add("open");
    const field = h("input.visually-hidden", { id: "files", type: "file", multiple: true, change: () => this.open([...field.files]) });
    const known = machines.map((one) => [one.topology, one.title]).filter(([name]) => name.startsWith("preset:"));
    main.replaceChildren(
      h("div.columns", {},
        h("div.controls", {},
          h("section", { "aria-label": "Files" },
            h("div.upload", {}, field, h("label.button", { for: "files" }, "Choose files")),
            h("p.muted", {}, "or drop them anywhere: results of benchmarks, topologies, rules, traces, tables. Nothing is stored.")),
          h("section", { "aria-label": "What files do not say" },
            COUNTS.map(([name, label]) => this.#countRow(name, label)),
            selectRow("machine", "Compare with", [NO_MACHINE, ...known], "", (value) => this.#tell("machine", value || null)))),
        this.answer),
    );
    this.#fill(h("p.muted", {}, "No file is open."));
  }

  #countRow(name, label) {
    const field = h("input", { id: name, type: "number", min: 1, change: () => {
      if (field.checkValidity()) this.#tell(name, field.value ? Number(field.value) : null);
    } });
    return h("div.row", {}, h("label", { for: name }, label), field);
  }

  #tell(name, value) {
    this.told[name] = value;
    if (this.files.length) this.#ask();
  }

  /** Open files, and forget those of before. */
  async open(files) {
    this.files = await Promise.all(files.map(async (file) => ({ name: file.name, content: await base64(file) })));
    await this.#ask();
  }

  async #ask() {
    delete this.main.dataset.state;
    const asked = (this.asked = { files: this.files, ...this.told });
    try {
      const found = await (await send("POST", PATH, asked)).json();
      if (asked !== this.asked) return; // what was asked since will be answered
      this.#fill(...found.comparisons.map(comparison), ...found.files.map(overview));
    } catch (error) {
      if (asked === this.asked) this.#fill(h("p.error", { role: "alert" }, problemText(error)));
    }
  }

  #fill(...children) {
    fill(this.answer, h("h1", {}, "Open"), ...children);
    this.main.dataset.state = "complete";
  }
}

/** Return the content of a file in Base64. */
function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).split(",")[1] ?? "");
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

function overview({ file, kind, facts, slow, commands }) {
  const list = (title, texts) => texts.length ? [title && h("h3", {}, title), h("ul", {}, texts.map((text) => h("li", {}, text)))] : [];
  return h("section", { "aria-label": file },
    h("h2", {}, `${file}: ${kind}`),
    ...list("", facts),
    ...list("What is slow in it", slow),
    commands.length > 0 && h("h3", {}, "What to type"),
    ...commands.map(({ purpose, text }) => h("div", {}, h("small", {}, purpose), commandLine(text))));
}

function comparison({ title, columns, calls }) {
  const mean = Math.exp(calls.reduce((sum, { ratio }) => sum + Math.log(ratio), 0) / calls.length);
  const names = ["call", ...columns, "ratio", calls.some((one) => one.algorithm) && "algorithm"];
  return h("section", { "aria-label": title },
    h("h2", {}, title),
    h("p", {}, calls.length ? `${mean.toFixed(2)} times as long (geometric mean)` : "They have no call in common."),
    calls.length > 0 && h("div.scroll", {}, h("table", {}, headRow(names), h("tbody", {}, calls.map((one) =>
      h("tr", {}, h("th", { scope: "row" }, one.call), h("td", {}, formatTime(one.reference)),
        h("td", {}, formatTime(one.seconds)), h(one.ratio > NOISE ? "td.slow" : "td", {}, one.ratio.toFixed(2)), one.algorithm && h("td", {}, one.algorithm)))))));
}
