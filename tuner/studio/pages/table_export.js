// What the page "Table" gives to take away: CSV, commands, requests.
import { csv } from "./export.js";
import { curl, shellWord } from "./shell.js";
import { shapeOf } from "./table_model.js";

/** Return every rule, one row each. */
export function rulesCsv(table) {
  const rows = [[
    "collective", "nodes", "ppn", "memory", "operators", "placement", "start_bytes", "stop_bytes", "algorithm", "basis",
    "gain", "gain_low", "gain_high", "runner_up",
  ]];
  for (const [id, rules] of table.ruleLists) {
    const { collective, nodes, ppn, memory, operators, placement } = table.keys.get(id);
    for (const { start, stop, name, evidence } of rules) {
      const [low, high] = evidence.gain_ci95 ?? [];
      rows.push([
        collective, nodes, ppn, memory, operators, placement, start, stop === Infinity ? "inf" : stop,
        name, evidence.basis, evidence.gain, low, high, evidence.runner_up,
      ]);
    }
  }
  return csv(rows);
}

/** Return the points of the chart, one row each. */
export function pointsCsv(row, points, candidates) {
  const head = [
    "collective", "nodes", "ppn", "nbytes", "what", "algorithm", "seconds", "gain", "gain_low", "gain_high", "samples",
  ];
  const start = [row.collective, row.nodes, row.ppn];
  const line = (one, what, name, [low, high] = []) =>
    [...start, one.nbytes, what, name, one.seconds, one.gain, low, high, one.samples];
  return csv([
    head,
    ...points.map((one) => line(one, "table", one.rule.name, one.interval ?? [])),
    ...candidates.map((one) => line(one, "probe", one.label, one.gain_ci95 ?? [])),
  ]);
}

export function tableUrl(version, query = {}) {
  const search = new URLSearchParams(query).toString();
  return `/v1/tables/${version}${search ? `?${search}` : ""}`;
}

export function curlTable(version, file, query = {}) {
  return curl(tableUrl(version, query), `-o ${file}`);
}

/** Return what to type to see the same in a terminal. */
export function shellCommands(table, row, nbytes, before) {
  const fetched = (version) => curlTable(version, `table-${version}.json`);
  if (before) {
    return [
      fetched(before.version), fetched(table.version),
      `tuner table diff table-${before.version}.json table-${table.version}.json --plot diff.svg`, "",
    ].join("\n");
  }
  const [nodes, ppn] = shapeOf(row).split("x");
  const call = `--collective ${row.collective} --nodes ${nodes} --ppn ${ppn} --size ${nbytes}`;
  return [
    fetched(table.version), `tuner table show table-${table.version}.json`,
    `tuner select table-${table.version}.json ${call}`, "",
  ].join("\n");
}

/** Return the request for the decision of one call by what is published. */
export function curlSelect(table, row, nbytes) {
  const query = new URLSearchParams({
    cluster: table.cluster, library: table.library, collective: row.collective, nodes: row.nodes, ppn: row.ppn,
    nbytes, memory: row.memory, operators: row.operators, placement: row.placement,
  });
  return `${curl(`/v1/select?${query}`)}\n`;
}

/** Return the command with which the command line writes a file in a native format. */
export function exportCommand(table, form, options) {
  const words = [`tuner table export table-${table.version}.json --format ${form.name} --out ${form.file}`];
  if (options.operators === "commutative") words.push("--commutative-only");
  if (options.fallback_algorithm) words.push(`--fallback-algorithm ${shellWord(options.fallback_algorithm)}`);
  if (options.ranks) words.push(`--ranks ${options.ranks}`);
  return words.join(" ");
}
