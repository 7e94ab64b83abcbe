// The controls of the table page: the version, what it is compared with, and the call.
import { selectRow } from "./controls.js";
import { fill, h } from "./dom.js";
import { formatDay, formatSize } from "./format.js";
import { shapeOf } from "./table_model.js";

const PART_TITLES = { operators: "Operators", memory: "Buffers in", placement: "Placement of ranks" };
const PART_VALUES = {
  any: "any, order kept", commutative: "commutative, such as sums", host: "host memory", cuda: "GPU memory",
};

/** Return those of some versions or publications that are for the cluster and library of a table. */
export function alike(records, table) {
  return records.filter((one) => one.cluster === table.cluster && one.library === table.library);
}

/** Fill the controls.
 *
 * page    {table, before, state, view, rows, row, limits, stored, publications}
 * size    the size that is selected
 * on      {go, change, chooseSize}: what to call for other versions, another view, another size
 */
export function tableControls(place, page, size, on) {
  const { table, before, state, view, row } = page;
  fill(
    place,
    clusterRow(page, on),
    ...versionRows(page, on),
    before && checkbox("changed", "Only what changed", state.changed, (changed) => on.change({ changed })),
    selectRow("collective", "Collective", [["all", "all"], ...table.valuesOf("collective").map((name) => [name, name])],
      view.collective || "all", (collective) => on.change({ collective, call: "", at: null })),
    row && callRow(page, on),
    row && sizeRow(page, size, on),
    ...Object.keys(PART_TITLES).map((part) => partRow(page, part, on)),
  );
}

function clusterRow({ stored, publications, table }, on) {
  const clusters = [...new Map(stored.map((one) => [`${one.cluster}\n${one.library}`, one])).values()];
  const latest = (one) => alike(publications, one).at(-1)?.version ?? one.version;
  const options = clusters.map((one) => [latest(one), `${one.cluster}, ${one.library}`]);
  const isStored = alike(clusters, table).length > 0;
  return selectRow("place", "Cluster and library", options, isStored ? latest(table) : "", (value) =>
    on.go({ version: Number(value), against: null, call: "", at: null, collective: "", changed: false }));
}

function versionRows({ stored, publications, table, state }, on) {
  const current = alike(publications, table).at(-1)?.version;
  const option = (one) =>
    [one.version, `${one.version}${one.version === current ? ", in force" : ""}, of ${formatDay(one.stored_at)}`];
  const versions = alike(stored, table);
  const others = versions.filter((one) => one.version !== state.version);
  return [
    selectRow("version", "Version", versions.map(option), state.version, (value) => on.go({ version: Number(value) })),
    selectRow("against", "Compare with", [["", "no other version"], ...others.map(option)], state.against ?? "",
      (value) => on.go({ against: Number(value) || null, changed: false })),
  ];
}

function callRow({ rows, row }, on) {
  const option = (one) => [`${one.collective}/${shapeOf(one)}`, `${one.collective} on ${one.nodes} × ${one.ppn}`];
  return selectRow("call", "Call", rows.map(option), option(row)[0], (call) => on.change({ call, at: null }));
}

/** Return a select of sizes to look up: powers of two, and the one that is selected. */
function sizeRow({ limits: [low, high] }, selected, on) {
  const powers = Array.from({ length: high - low + 1 }, (_, at) => 2 ** (low + at));
  const sizes = [...new Set([...powers, selected])].sort((a, b) => a - b);
  return selectRow("size", "Size", sizes.map((size) => [size, formatSize(size)]), selected,
    (value) => on.chooseSize(Number(value)));
}

function partRow({ table, view }, part, on) {
  const known = table.valuesOf(part);
  if (known.length < 2) return "";
  return selectRow(part, PART_TITLES[part], known.map((value) => [value, PART_VALUES[value] ?? value]), view[part],
    (value) => on.change({ [part]: value }));
}

function checkbox(id, title, checked, onChange) {
  const box = h("input", { id, type: "checkbox", checked, change: () => onChange(box.checked) });
  return h("p.check", {}, box, h("label", { for: id }, title));
}
