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
  const { machines, algorithms } = await getJson("/v1/what-if/catalogue");
  const page = new Open(main, machines, Object.keys(algorithms));
  if (files.length) await page.open(files);
}

class Open {
  constructor(main, machines, collectives) {
    this.main = main;
    this.files = [];
    this.told = {};
    this.answer = h("div.answer");
    main.classList.add("open");
    const field = h("input.visually-hidden", { id: "files", type: "file", multiple: true, change: () => this.#choose(field) });
    const known = machines.map((one) => [one.topology, one.title]).filter(([name]) => name.startsWith("preset:"));
    main.replaceChildren(
      h("div.columns", {},
        h("div.controls", {},
          h("section", { "aria-label": "Files" },
            h("div.upload", {}, field, h("label.button", { for: "files" }, "Choose files")),
            h("p.muted", {}, "or drop them anywhere: results of benchmarks, topologies, rules, traces, tables. Nothing is stored.")),
          h("section", { "aria-label": "What files do not say" },
            COUNTS.map(([name, label]) => this.#countRow(name, label)),
            selectRow("collective", "Collective", [["", "as the file says"], ...collectives.map((name) => [name, name])], "",
              (value) => this.#tell("collective", value || null)),
            selectRow("machine", "Compare with", [NO_MACHINE, ...known], "", (value) => this.#tell("machine", value || null)))),
        this.answer),
    );
    this.#fill(h("p.muted", {}, "No file is open."));
  }

  #countRow(name, label) {
    const read = () => field.checkValidity() && (this.told[name] = field.value ? Number(field.value) : null);
    const field = h("input", { id: name, type: "number", min: 1, input: read, change: () => this.files.length && this.#ask() });
    return h("div.row", {}, h("label", { for: name }, label), field);
  }

  #tell(name, value) {
    this.told[name] = value;
    if (this.files.length) this.#ask();
  }

  async #choose(field) {
    await this.open([...field.files]);
    field.value = ""; // so that the same file can be chosen again
  }

  /** Open files, and forget those of before. */
  async open(files) {
    this.#wait(`Reading ${files.map((file) => file.name).join(", ")} \u2026`);
    try {
      this.files = await Promise.all(files.map(async (file) => ({ name: plainName(file.name), content: await base64(file) })));
    } catch {
      this.#fill(h("p.error", { role: "alert" }, "A folder or a file that has gone cannot be read: choose files."));
      return;
    }
    await this.#ask();
  }

  #wait(text) {
    delete this.main.dataset.state;
    fill(this.answer, h("h1", {}, "Open"), h("p.muted", { role: "status" }, text));
  }

  async #ask() {
    this.#wait(`Opening ${this.files.map((file) => file.name).join(", ")} \u2026`);
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

/** Return a name as the service takes it, of letters, digits and a few other characters. */
function plainName(name) {
  return name.replaceAll(/[^\w.+@=,-]/g, "_").replace(/^\.+/, "").slice(-60) || "file";
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

function comparison({ title, columns, summary, note, calls, commands }) {
  const names = ["call", ...columns, "ratio", calls.some((one) => one.algorithm) && "algorithm"];
  return h("section", { "aria-label": title },
    h("h2", {}, title),
    summary && h("p", {}, summary),
    note && h("p.muted", {}, note),
    calls.length > 0 && h("div.scroll", {}, h("table", {}, headRow(names), h("tbody", {}, calls.map((one) =>
      h("tr", {}, h("th", { scope: "row" }, one.call), h("td", {}, formatTime(one.reference)),
        h("td", {}, formatTime(one.seconds)), h(one.ratio > NOISE ? "td.slow" : "td", {}, one.ratio.toFixed(2)),
        one.algorithm && h("td", {}, one.algorithm)))))),
    ...commands.map(({ purpose, text }) => h("div", {}, h("small", {}, purpose), commandLine(text))));
}
