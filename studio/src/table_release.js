// Taking a version away in a library's format, and putting it in force.
import { getJson, getText, problemText, send } from "./api.js";
import { announce, commandLine, confirmAction, h, saveFile } from "./dom.js";
import { formatAge, formatDate } from "./format.js";
import { curlTable, exportCommand, tableUrl } from "./table_export.js";

/** Return the section with every native format of a version. */
export async function exportSection(table) {
  const forms = await getJson(`/v1/tables/${table.version}/formats`);
  return [
    h("h2", {}, "Take it along"),
    forms.length
      ? h("p.muted", {}, `Tuning files that ${table.library} reads by itself, and the command that uses each.`)
      : h("p", {}, `${table.library} reads no tuning file: programs follow the table with python -m tuner.run.`),
    ...forms.map((form) => formatItem(table, form)),
    h("details", {}, h("summary", {}, "The table itself, for programs under tuner"),
      commandLine(curlTable(table.version, "table.json")),
      commandLine(`TUNER_SERVICE=${location.origin} mpirun -n 4 python -m tuner.run program.py`)),
  ];
}

function formatItem(table, form) {
  const options = {};
  const problem = h("p.error", { role: "alert", hidden: true });
  const commands = h("div");
  const id = (name) => `export-${form.name}-${name}`;
  const labelled = (name, title, input) => h("span.field", {}, h("label", { for: id(name) }, title), input);
  const field = (name, title, attributes) => {
    const input = h("input", { id: id(name), ...attributes, change: () => { options[name] = input.value; fill(); } });
    return labelled(name, title, input);
  };
  const operators = form.options.includes("operators") && h("select",
    { id: id("operators"), change: () => { options.operators = operators.value; fill(); } },
    h("option", { value: "any" }, "any operator"), h("option", { value: "commutative" }, "commutative operators only"));
  const controls = [
    operators && labelled("operators", "Rules for", operators),
    form.options.includes("ranks") && field("ranks", "Ranks", { type: "number", min: 1 }),
    form.options.includes("fallback_algorithm") && field("fallback_algorithm", "Instead of the default", { type: "text" }),
  ].filter(Boolean);
  const download = h("button", { type: "button", click: save }, `Download ${form.file}`);
  fill();
  return h("section.format", {}, h("h3", {}, form.name),
    h("div.actions", {}, download, controls), problem, commands);

  function query() {
    return Object.fromEntries([["format", form.name], ...Object.entries(options).filter(([, value]) => value)]);
  }
  function fill() {
    commands.replaceChildren(
      commandLine(form.command),
      ...(form.note ? [h("p.muted", {}, form.note)] : []),
      h("details", {}, h("summary", {}, "Other ways to get the file"),
        commandLine(curlTable(table.version, form.file, query())), commandLine(exportCommand(table, form, options))),
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
      ? `Version ${current.version} since ${formatDate(current.published_at)} (${formatAge(current.published_at)}), by ${current.by || "nobody named"}.`
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
      h("td", {}, formatDate(one.published_at)), h("td", {}, one.by),
      h("td", {}, one.restores ? `rolled back to version ${versions.get(one.restores) ?? one.version}` : "published")));
  return h("table", {}, h("thead", {}, h("tr", {}, ["version", "when", "by", "what"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows));
}
