// What a what-if question and its answer become outside: commands, YAML, CSV, SVG.
import { chartRows, ratioRange } from "./charts.js";
import { svg } from "./dom.js";
import { csv, svgText } from "./export.js";
import { formatRatio, formatSize } from "./format.js";
import { inkOf } from "./palette.js";
import { isUploaded } from "./question.js";
import { FONT, label } from "./svg.js";
import { ratioTicks } from "./ticks.js";

const WIDTH = 960;
const HEIGHT = 540;
const MARGIN = { left: 70, right: 250, top: 60, bottom: 50 };

/** Return a value as YAML: quoted unless it is plain. */
function yamlValue(value) {
  return typeof value === "number" || /^[A-Za-z][\w:.-]*$/.test(value) || /^[\d.]+[A-Za-z/]+$/.test(value)
    ? String(value)
    : JSON.stringify(value);
}

/** Return the study that a question is, as `tuner study` reads it. */
export function studyYaml(question, machine) {
  const isPreset = !isUploaded(question.topology);
  const lines = [`name: what if`];
  if (!isPreset) {
    lines.unshift(`# curl ${location.origin}/v1/topologies/${question.topology}/source >topology.txt`);
  }
  lines.push(`topology: ${isPreset ? question.topology : "topology.txt"}  # ${machine.name.replace(/\s+/g, " ")}`);
  const axes = Object.entries(question.axes);
  if (axes.length) lines.push("vary:", ...axes.map(([name, v]) => `  ${name}: [${yamlValue(v)}]`));
  lines.push(`collectives: [${question.collective}]`);
  lines.push(`sizes: [${question.sizes.map(formatSize).join(", ")}]`);
  if (question.without) lines.push(`without: [${question.without.join(", ")}]`);
  if (question.library) lines.push(`table: default:${question.library}`);
  return `${lines.join("\n")}\n`;
}

/** Return what to type for the same answer: `tuner simulate` where it can say it, else a study. */
export function shellCommand(question, machine) {
  const axes = { ...question.axes };
  const { nodes, ppn } = axes;
  delete axes.nodes;
  delete axes.ppn;
  if (!isUploaded(question.topology) && Object.keys(axes).length === 0 && !question.without && !question.library) {
    const sizes = question.sizes.map(formatSize).join(",");
    return (
      `tuner simulate --topology ${question.topology}:${nodes} --ppn ${ppn}` +
      ` --collective ${question.collective} --sizes ${sizes}\n`
    );
  }
  return `cat >what-if.yaml <<'EOF'\n${studyYaml(question, machine)}EOF\ntuner study what-if.yaml\n`;
}

/** Return every time, one row each. */
export function answerCsv(answer, incumbent) {
  const rows = [["nbytes", "algorithm", "candidate", "seconds", "relative_to_incumbent", "predicted_by"]];
  answer.sizes.forEach((nbytes, at) => {
    const base = answer.incumbentSeconds(incumbent, at);
    for (const [name, curve] of answer.curves) {
      const call = curve[at];
      if (!call) continue;
      rows.push([nbytes, name, call.candidate, call.seconds, base ? call.seconds / base : "", call.predictedBy]);
    }
  });
  return csv(rows);
}

/** Return the chart of ratios as the text of an SVG file. */
export function ratioSvg(answer, view, title, base) {
  const winners = new Set(answer.winners);
  const ink = inkOf(true);
  const rows = chartRows(answer, "ratio", view).filter((row) => winners.has(row.label));
  const [low, high] = ratioRange(answer, view);
  const inner = [WIDTH - MARGIN.left - MARGIN.right, HEIGHT - MARGIN.top - MARGIN.bottom];
  const x = (at) => MARGIN.left + (at / Math.max(1, answer.sizes.length - 1)) * inner[0];
  const y = (ratio) => MARGIN.top + (1 - Math.log(ratio / low) / Math.log(high / low)) * inner[1];
  const grid = ratioTicks(low, high).flatMap((ratio) => [
    svg("path", { d: `M${x(0)} ${y(ratio)}H${MARGIN.left + inner[0]}`, stroke: ratio === 1 ? ink.text : ink.line }),
    label(MARGIN.left - 8, y(ratio) + 4, formatRatio(ratio), ink.text, "end"),
  ]);
  const sizes = answer.sizes.map((size, at) =>
    at % 3 === 0 && label(x(at), HEIGHT - MARGIN.bottom + 20, formatSize(size), ink.text, "middle"));
  const curves = rows.flatMap((row, number) => {
    const points = row.values.map((value, at) => [at, value]).filter(([, value]) => value);
    const path = points.map(([at, value]) => `${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("L");
    const look = {
      stroke: ink.colour(row.label), fill: "none", "stroke-width": 2, "stroke-dasharray": row.dash.join(" ") || null,
    };
    const [left, top] = [WIDTH - MARGIN.right + 16, MARGIN.top + 20 * number];
    return [
      path && svg("path", { "clip-path": "url(#area)", d: `M${path}`, ...look }),
      svg("path", { d: `M${left} ${top}h24`, ...look }), label(left + 32, top + 4, row.label, ink.text),
    ];
  });
  return svgText(
    svg("svg", { width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "font-family": FONT },
      svg("clipPath", { id: "area" },
        svg("rect", { x: MARGIN.left, y: MARGIN.top, width: inner[0], height: inner[1] })),
      label(MARGIN.left, 24, title, ink.text, "start", { "font-size": 16, "font-weight": "bold" }),
      label(MARGIN.left, 44, `time relative to ${base}`, ink.text), grid, sizes, curves),
  );
}
