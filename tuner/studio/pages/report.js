// The report of a stored table: the service's own page, taken into this one.
import { choiceOf, enliven } from "./report_content.js";
import { allItems, getText, problemText } from "./api.js";
import { commandLine, copyText, h, saveFile } from "./dom.js";
import { csv, drawingButtons } from "./export.js";
import { DARK, LIGHT, isDark } from "./palette.js";
import { curl } from "./shell.js";

const PATH = "/studio/report";

export async function show(main) {
  const page = new Report(main);
  setColours();
  addEventListener("themechange", setColours);
  addEventListener("popstate", () => page.show());
  await page.start();
}

/** Give the report's style sheet the colours of algorithms. */
function setColours() {
  const { style } = document.documentElement;
  (isDark() ? DARK : LIGHT).forEach((colour, place) => style.setProperty(`--a${place}`, colour));
}

class Report {
  constructor(main) {
    this.main = main;
  }

  async start() {
    this.tables = await allItems("/v1/tables");
    await this.show();
  }

  /** Show what the URL says: the report of a version, or of the newest one. */
  async show() {
    delete this.main.dataset.state;
    if (this.tables.length === 0) {
      this.main.replaceChildren(noTables());
      this.main.dataset.state = "complete";
      return;
    }
    const named = Number(location.pathname.slice(PATH.length + 1));
    this.version = named || this.tables.at(-1).version;
    history.replaceState(null, "", `${PATH}/${this.version}${location.search}`);
    const place = h("div", {}, h("p.muted", {}, "The report is being drawn\u2026"));
    this.main.replaceChildren(this.#bar(), place);
    try {
      this.#take(place, await getText(`/v1/tables/${this.version}/report`));
    } catch (error) {
      place.replaceChildren(h("p.error", { role: "alert" }, problemText(error)));
    }
    if (place.isConnected) this.main.dataset.state = "complete";
  }

  #bar() {
    const versions = this.tables.map(({ version, cluster, library }) =>
      h("option", { value: version, selected: version === this.version }, `${cluster}, ${library}: version ${version}`),
    );
    const select = h("select", { id: "version", change: () => this.#open(select.value) }, versions.reverse());
    const file = `/v1/tables/${this.version}/report`;
    const name = `report-${this.version}.html`;
    return h(
      "div.report-bar",
      {},
      h("label", { for: "version" }, "Table", select),
      h("a.button", { href: file, download: name }, "Save as one file"),
      h("button", { click: () => copyText(location.href, "Link") }, "Copy link"),
      h("button", { click: () => copyText(`${curl(file, `-o ${name}`)}\n`, "Command") }, "Copy as curl"),
      h("button", { click: () => this.#saveCsv() }, "CSV"),
    );
  }

  #open(version) {
    history.pushState(null, "", `${PATH}/${version}${location.search}`);
    this.show();
  }

  /** Take over what the report shows; its own style and script stay behind. */
  #take(place, html) {
    const body = html.slice(html.indexOf("<body>"));
    const report = new DOMParser().parseFromString(body, "text/html").querySelector(".report");
    place.replaceChildren(document.adoptNode(report));
    for (const figure of report.querySelectorAll("figure")) {
      const drawing = () => figure.querySelector(".plot");
      figure.append(h("div.actions", {}, drawingButtons(drawing, `report-${this.version}`)));
    }
    enliven(report, choiceOf(location.search), (choice) => {
      const query = new URLSearchParams(choice).toString();
      history.replaceState(null, "", `${PATH}/${this.version}${query ? `?${query}` : ""}`);
    });
  }

  #saveCsv() {
    const rows = [["call", "nbytes", "config", "time", "relative_time", "interval"]];
    for (const section of this.main.querySelectorAll("section[data-collective]:not([hidden])")) {
      const title = section.querySelector("h3").textContent;
      for (const row of section.querySelectorAll(".values tbody tr")) {
        rows.push([title, row.dataset.size, ...[...row.cells].slice(1).map((cell) => cell.textContent)]);
      }
    }
    saveFile(`report-${this.version}.csv`, csv(rows), "text/csv");
  }
}

function noTables() {
  return h(
    "section.card.empty",
    {},
    h("h1", {}, "No tables yet"),
    h("p", {}, "A report is about a table of this service. Measure, and look at what was found:"),
    commandLine("tuner quickstart"), commandLine("tuner studio"),
    h("p", {}, "Or give a table to this service:"),
    commandLine(`tuner publish tuner-out/openmpi/table.json --service ${location.origin}`),
  );
}
