// Measurements: what the probe noticed, and which hosts and links are slow.
import { allItems, getJson, problemText, send } from "./api.js";
import { commandLine, copyText, h } from "./dom.js";
import { formatSize, formatTime } from "./format.js";
import { css } from "./palette.js";
import { curl } from "./shell.js";

const SHOWN_RATIO = 2; // times of the usual time at which a pair has the full colour

/** Show measurements in a place; `onJob` is told the id of a job that was started. */
export async function showMeasurements(place, id, maySubmit, onJob) {
  const [about, map, tables] = await Promise.all([
    getJson(`/v1/measurements/${id}`),
    getJson(`/v1/measurements/${id}/hosts`),
    allItems("/v1/tables"),
  ]);
  const made = tables.filter((table) => table.measurements_id === id);
  const problem = h("p.error", { role: "alert", hidden: true });
  async function tune() {
    try {
      const job = await (await send("POST", "/v1/jobs", { kind: "tune", measurements: id })).json();
      onJob(job.id);
    } catch (error) {
      problem.textContent = problemText(error);
      problem.hidden = false;
    }
  }
  const file = `/v1/measurements/${id}/file`;
  place.replaceChildren(
    h("h1", {}, `Measurements ${id}: ${about.cluster}, ${about.library}`),
    h("p", {}, `${about.series} series.`, made.flatMap((table) =>
      [" ", h("a", { href: `/studio/report/${table.version}` }, `Report of table ${table.version}`)])),
    h(
      "div.actions",
      {},
      maySubmit && h("button", { click: tune }, "Make a table"),
      h("a.button", { href: file, download: `measurements-${id}.ndjson` }, "Save the file"),
      h("button", { click: () => copyText(location.href, "Link") }, "Copy link"),
      h("button", { click: () => copyText(`${curl(file, "-o measurements.ndjson")}\n`, "Command") }, "Copy as curl"),
    ),
    problem,
    noticedCard(map.notes),
    hostsCard(map),
  );
}

function noticedCard(notes) {
  const content = notes.length
    ? h("ul", {}, notes.map((note) => h("li.caution", {}, note)))
    : h("p.muted", {}, "Nothing: no drift, no outliers, and time enough for all that was asked.");
  return h("section.card", {}, h("h2", {}, "What the probe noticed"), content);
}

function hostsCard(map) {
  if (!map.pairs.length) {
    return h(
      "section.card",
      {},
      h("h2", {}, "Hosts"),
      h("p.muted", {}, "In this probe no hosts met in pairs, so nothing is known about single links. This has every host meet others:"),
      commandLine("tuner probe --hosts n[0-7] --measure messages,sweep --out measurements.ndjson"),
    );
  }
  const sizes = [...new Set(map.pairs.map((pair) => pair.nbytes))];
  const place = h("div");
  const draw = () => drawMap(place, map, Number(select.value));
  const select = h("select", { id: "map-size", change: draw },
    sizes.map((size) => h("option", { value: size }, formatSize(size))));
  draw();
  return h("section.card", {}, h("h2", {}, "Time between hosts"),
    h("div.row", {}, h("label", { for: "map-size" }, "Message size"), select), place);
}

/** Draw a cell for each pair that met, the darker the slower, and list those that are outliers. */
function drawMap(place, map, nbytes) {
  const pairs = map.pairs.filter((pair) => pair.nbytes === nbytes);
  const count = Math.max(map.hosts.length, ...pairs.map((pair) => pair.second + 1));
  const name = (number) => map.hosts[number] ?? `host ${number}`;
  const canvas = h("canvas.host-map", { width: 1280, height: 1280, role: "img", "aria-label": "Time between each two hosts" });
  const hover = h("p.hover", {}, "Point at a cell for two hosts and their time.");
  const known = new Map();
  for (const pair of pairs) {
    known.set(`${pair.first} ${pair.second}`, pair);
    known.set(`${pair.second} ${pair.first}`, pair);
  }
  paint(canvas, pairs, count);
  writeNames(canvas, count, name);
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const at = [event.clientX - box.left, event.clientY - box.top].map((one) => Math.floor((one / box.width) * count));
    const pair = known.get(at.join(" "));
    if (pair) hover.textContent = pairSentence(pair, name);
  });
  const slow = pairs.filter((pair) => pair.is_slow).sort((a, b) => b.seconds - a.seconds);
  place.replaceChildren(
    canvas,
    hover,
    slow.length
      ? h("ul", {}, slow.slice(0, 50).map((pair) => h("li.slow", {}, pairSentence(pair, name))))
      : h("p.muted", {}, `No pair of the ${count} hosts is an outlier.`),
  );
}

function paint(canvas, pairs, count) {
  const context = canvas.getContext("2d");
  const cell = canvas.width / count;
  const gap = cell > 8 ? 1 : 0;
  for (const pair of pairs) {
    const share = Math.log(pair.seconds / pair.usual_seconds) / Math.log(SHOWN_RATIO);
    for (const [column, row] of [[pair.first, pair.second], [pair.second, pair.first]]) {
      context.globalAlpha = pair.is_slow ? 1 : 0.12 + 0.6 * Math.min(Math.max(share + 0.5, 0), 1);
      context.fillStyle = css(pair.is_slow ? "--error" : "--accent");
      context.fillRect(column * cell, row * cell, cell - gap, cell - gap);
    }
  }
}

/** Write the names of the hosts where they meet themselves, if they fit there. */
function writeNames(canvas, count, name) {
  const context = canvas.getContext("2d");
  const cell = canvas.width / count;
  context.globalAlpha = 1;
  context.fillStyle = css("--text");
  context.textAlign = "center";
  context.font = `${Math.min(30, cell / 3)}px sans-serif`;
  for (let number = 0; number < count && cell > 40; number += 1) {
    context.fillText(name(number), (number + 0.5) * cell, (number + 0.55) * cell, cell - 8);
  }
}

function pairSentence(pair, name) {
  const more = pair.seconds / pair.usual_seconds;
  return `${name(pair.first)} and ${name(pair.second)}: ${formatTime(pair.seconds)}, ${more.toFixed(2)} times the usual`;
}
