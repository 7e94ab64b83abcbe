// The reference of the REST API, made from the service's own description.
import { getJson } from "./api.js";
import { h } from "./dom.js";
import { applyTheme, themeButton } from "./theme.js";

/** Return the name of a schema, with what is inside lists and choices. */
function typeName(schema = {}) {
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.anyOf) return schema.anyOf.map(typeName).join(" or ");
  if (schema.type === "array") return `list of ${typeName(schema.items)}`;
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.const !== undefined) return String(schema.const);
  if (schema.type === "object" && schema.additionalProperties?.type) {
    return `object of ${typeName(schema.additionalProperties)}`;
  }
  return schema.type ?? "any";
}

function schemaLink(schema = {}) {
  const inner = schema.$ref ?? schema.items?.$ref;
  const name = typeName(schema);
  return inner ? h("a", { href: `#schema-${inner.split("/").at(-1)}` }, name) : name;
}

function fieldTable(caption, rows) {
  return rows.length
    ? h("div.scroll", { tabindex: 0, role: "region", "aria-label": caption },
        h("table", {}, h("caption", {}, caption), h("tbody", {}, rows)))
    : null;
}

function field(name, required, schema, description) {
  const example = schema?.examples?.[0];
  return h("tr", {},
    h("th", { scope: "row" }, h("code", {}, name), required ? "" : h("small", {}, " optional")),
    h("td", {}, schemaLink(schema)),
    h("td", {}, description ?? schema?.description ?? "",
      example === undefined ? null : h("small", {}, ` such as ${JSON.stringify(example)}`)));
}

function operation(path, method, one) {
  const id = `${method}-${path.replaceAll(/[^\w]+/g, "-")}`;
  const parameters = (one.parameters ?? []).map((each) =>
    field(each.name, each.required, each.schema, each.description));
  const bodies = Object.entries(one.requestBody?.content ?? {}).map(([type, { schema }]) =>
    h("p", {}, "Body: ", h("code", {}, type), " ", schemaLink(schema)));
  const answers = Object.entries(one.responses).map(([status, each]) =>
    h("tr", {}, h("th", { scope: "row" }, status), h("td", {}, each.description ?? ""),
      h("td", {}, Object.entries(each.content ?? {}).map(([type, { schema }]) =>
        h("div", {}, h("code", {}, type), " ", schemaLink(schema))))));
  return h("section.card.operation", { id },
    h("h3", {}, h("span.method", {}, method.toUpperCase()), " ", h("code", {}, path)),
    (one.description ?? "").split("\n\n").map((text) => h("p", {}, text.replaceAll("`", ""))),
    fieldTable("Parameters", parameters), bodies,
    h("details", {}, h("summary", {}, "Answers"), fieldTable("Answers", answers)));
}

function schemaCard(name, schema) {
  const required = new Set(schema.required ?? []);
  const rows = Object.entries(schema.properties ?? {}).map(([key, each]) =>
    field(key, required.has(key), each));
  return h("section.card", { id: `schema-${name}` }, h("h3", {}, name),
    h("p", {}, schema.description ?? ""), fieldTable(`Fields of ${name}`, rows));
}

async function start() {
  applyTheme();
  const main = h("main.reference", { id: "main", tabindex: -1 });
  document.body.replaceChildren(
    h("a.skip", { href: "#main" }, "Skip to the content"),
    h("header", {}, h("a.brand", { href: "/studio/" }, "tuner", h("span", {}, "studio")),
      h("nav", { "aria-label": "Pages" }, h("a", { href: "/studio/what-if" }, "What if"),
        h("a", { href: "/docs", "aria-current": "page" }, "REST reference")),
      h("span"), themeButton()),
    main);
  const document_ = await getJson("/openapi.json");
  const byTag = new Map();
  for (const [path, operations] of Object.entries(document_.paths)) {
    for (const [method, one] of Object.entries(operations)) {
      const tag = one.tags?.[0] ?? "other";
      byTag.set(tag, [...(byTag.get(tag) ?? []), operation(path, method, one)]);
    }
  }
  const sections = [...byTag].map(([tag, cards]) => h("section", { id: `tag-${tag}` }, h("h2", {}, tag), cards));
  const filter = h("input", {
    type: "search", id: "filter", placeholder: "/v1/tables",
    input: () => {
      for (const card of main.querySelectorAll(".operation")) {
        card.hidden = !card.textContent.toLowerCase().includes(filter.value.toLowerCase());
      }
    },
  });
  main.replaceChildren(
    h("h1", {}, `${document_.info.title} ${document_.info.version}`),
    h("p", {}, document_.info.description),
    h("p", {}, "For programs: ", h("a", { href: "/openapi.json" }, "openapi.json"), "."),
    h("div.row", {}, h("label", { for: "filter" }, "Show what contains"), filter),
    h("nav.tags", { "aria-label": "Resources" }, [...byTag.keys(), "schemas"].map((tag) => h("a", { href: `#tag-${tag}` }, tag))),
    ...sections,
    h("section", { id: "tag-schemas" }, h("h2", {}, "schemas"),
      Object.entries(document_.components.schemas).map(([name, schema]) => schemaCard(name, schema))),
  );
  if (location.hash) document.querySelector(location.hash)?.scrollIntoView();
}

start();
