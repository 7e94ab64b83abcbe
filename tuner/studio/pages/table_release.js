// Taking a version away in a library's format, and putting it in force.
import { getText, problemText, send } from "./api.js";
import { announce, commandLine, confirmAction, h, headRow, saveFile } from "./dom.js";
import { formatAge, formatDate, plural } from "./format.js";
import { curlTable, exportCommand, tableUrl } from "./table_export.js";

const OPERATORS = { any: "any operator, order kept", commutative: "commutative operators, such as sums" };

/** Return the section with every native format of a version.
 *
 * forms        what the service offers for these operators
 * operators    whose rules the files hold: those of the view; `onOperators` changes the view
 */
export function exportSection(table, forms, operators, onOperators) {
  const isChosen = table.valuesOf("operators").includes("commutative") && forms.some((form) => form.options.includes("operators"));
  return [
    h("h2", {}, "Take it along"),
    forms.length
      ? h("p.muted", {}, `Tuning files that ${table.library} reads by itself, and the command that uses each.`)
      : h("p", {}, `${table.library} reads no tuning file: programs follow the table with python -m tuner.run.`),
    ...(isChosen ? operatorsChoice(operators, onOperators) : []),
    ...forms.map((form) => formatItem(table, form, form.options.includes("operators") ? operators : "any")),
    h("details", { id: "export-tuner" }, h("summary", {}, "The table itself, for programs under tuner: it holds all rules"),
      commandLine(curlTable(table.version, "table.json")),
      commandLine(`TUNER_SERVICE=${location.origin} mpirun -n 4 python -m tuner.run program.py`)),
  ];
}

/** A select of the operators that the files are for, the same as those of the map. */
function operatorsChoice(operators, onOperators) {
  const select = h("select", { id: "export-operators", change: () => onOperators(select.value) },
    Object.entries(OPERATORS).map(([value, text]) => h("option", { value, selected: value === operators }, text)));
  return [
    h("div.row.export-operators", {}, h("label", { for: "export-operators" }, "Rules for"), select),
    operators === "commutative"
      ? h("p.caution", {}, "Only for programs all of whose reduction operators commute, such as sum, product, minimum and maximum: " +
          "these files cannot tell operators apart, and other reductions may give wrong results.")
      : h("p.muted", {}, "Safe for every program: reductions keep the order of their operands. The map shows these rules, too."),
  ];
}

function formatItem(table, form, operators) {
  const options = operators === "any" ? {} : { operators };
  const problem = h("p.error", { role: "alert", hidden: true });
  const id = (name) => `export-${form.name}-${name}`;
  const field = (name, title, attributes) => {
    const input = h("input", { id: id(name), ...attributes, change: () => { options[name] = input.value; fillCommands(); } });
    return h("span.field", {}, h("label", { for: id(name) }, title), input);
  };
  const controls = [
    form.options.includes("ranks") && field("ranks", "Ranks", { type: "number", min: 1 }),
    form.options.includes("fallback_algorithm") && field("fallback_algorithm", "Instead of the default", { type: "text" }),
  ].filter(Boolean);
  const others = h("div");
  fillCommands();
  if (form.refusal) return h("section.format", {}, h("h3", {}, form.name), h("p.muted", {}, `Not to be had: ${form.refusal}.`));
  return h("section.format", {}, h("h3", {}, form.name),
    h("div.actions", {}, h("button", { type: "button", click: save }, `Download ${form.file}`), controls), problem,
    leftOut(form.left_out, id("left-out")),
    commandLine(form.command),
    form.note && h("p.muted", {}, form.note),
    h("details", { id: id("others") }, h("summary", {}, "Other ways to get the file"), others));

  function query() {
    return Object.fromEntries([["format", form.name], ...Object.entries(options).filter(([, value]) => value)]);
  }
  function fillCommands() {
    others.replaceChildren(
      commandLine(curlTable(table.version, form.file, query())), commandLine(exportCommand(table, form, options)),
    );
  }
  async function save() {
    problem.hidden = true;
    try {
      saveFile(form.file, await getText(tableUrl(table.version, query())), "text/plain");
    } catch (error) {
      problem.textContent = problemText(error);
      problem.hidden = false;
    }
  }
}

/** Say which rules a file does not hold. */
function leftOut(rules, id) {
  if (!rules.length) return null;
  return h("details", { id },
    h("summary.caution", {}, `This file leaves out ${plural(rules.length, "rule")}; such calls run the library's default`),
    h("ul.left-out", {}, rules.map((rule) => h("li", {}, rule))));
}

/** Return who published; without tokens the service knows the address alone. */
function publisher(by) {
  if (!by) return "by nobody named";
  return /^[\d.]+$|:/.test(by) ? `from ${by}` : `by ${by}`;
}

/** Return the publication that a rollback would go back to; null where there is none. */
function rollbackTarget(publications) {
  const current = publications.at(-1);
  if (!current) return null;
  const first = current.restores ?? current.id;
  return publications.filter((one) => one.id < first).at(-1) ?? null;
}

/** Return the section with the history of what was in force, and the two changes to it. */
export function publicationSection(table, publications, scopes, onChange) {
  const current = publications.at(-1) ?? null;
  const target = rollbackTarget(publications);
  const mayPublish = scopes.includes("publish");
  const isCurrent = current?.version === table.version;
  const place = `${table.library} on ${table.cluster}`;
  const publish = () => confirmAction(
    `Publish version ${table.version}?`,
    `Programs that follow the service will use version ${table.version} for ${place}` +
      (current ? ` instead of version ${current.version}.` : ", for which nothing is published yet."),
    `Publish version ${table.version}`,
    async () => {
      await send("POST", "/v1/publications", { version: table.version });
      announce(`Version ${table.version} is in force`);
      await onChange();
    },
  );
  const rollBack = () => confirmAction(
    `Roll back to version ${target.version}?`,
    `Programs that follow the service will use version ${target.version} for ${place} again, instead of version ${current.version}.`,
    `Roll back to version ${target.version}`,
    async () => {
      await send("POST", "/v1/publications/rollback", { cluster: table.cluster, library: table.library });
      announce(`Version ${target.version} is in force again`);
      await onChange();
    },
  );
  return [
    h("h2", {}, "In force"),
    h("p", {}, current
      ? `Version ${current.version} since ${formatDate(current.published_at)} (${formatAge(current.published_at)}), ${publisher(current.by)}.`
      : `No version is published for ${place}: programs keep the library's default.`),
    h("div.actions", {},
      h("button", { type: "button", disabled: isCurrent || !mayPublish, click: publish, class: isCurrent ? null : "primary" },
        isCurrent ? `Version ${table.version} is in force` : `Publish version ${table.version} …`),
      target && h("button", { type: "button", disabled: !mayPublish, click: rollBack }, `Roll back to version ${target.version} …`)),
    !mayPublish && h("p.muted", {}, "Your token lacks the scope publish, which both need."),
    publications.length > 0 && h("details", {}, h("summary", {}, "History"), historyTable(publications)),
  ].filter(Boolean);
}

function historyTable(publications) {
  const versions = new Map(publications.map((one) => [one.id, one.version]));
  const rows = [...publications].reverse().map((one) =>
    h("tr", {}, h("th", { scope: "row" }, h("a", { href: `/studio/table/${one.version}` }, `version ${one.version}`)),
      h("td", {}, formatDate(one.published_at)), h("td", {}, publisher(one.by)),
      h("td", {}, one.restores ? `rolled back to version ${versions.get(one.restores) ?? one.version}` : "published")));
  return h("table", {}, headRow(["version", "when", "who", "what"]),
    h("tbody", {}, rows));
}
