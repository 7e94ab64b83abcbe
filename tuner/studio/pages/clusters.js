// The clusters page: what is known of every cluster and library, and what to do next.
import { allItems, getJson, problemText } from "./api.js";
import { commandLine, h, headRow } from "./dom.js";
import { formatAge, formatDate, formatRatio, formatSize, plural } from "./format.js";
import { curl, curlPost, shellWord } from "./shell.js";

const SURE = 1.05; // up to it a gain is noise

export async function show(main) {
  main.replaceChildren(h("h1", {}, "Clusters"));
  try {
    const [clusters, tables, publications, probes] = await Promise.all(
      ["clusters", "tables", "publications", "measurements"].map((name) => allItems(`/v1/${name}`)),
    );
    const places = placesOf(clusters, tables, publications, probes);
    if (!places.length) {
      main.append(...emptyState());
    } else {
      main.append(h("div.clusters", {}, places.map((place) => clusterCard(place))));
      await Promise.all(places.flatMap((place) => place.libraries.map((library) => fillLibrary(place, library))));
    }
  } catch (error) {
    main.append(h("p.error", { role: "alert" }, problemText(error)));
  }
  main.dataset.state = "complete";
}

function emptyState() {
  return [
    h("section.card.empty", {},
      h("h2", {}, "Nothing is known yet"),
      h("p", {}, "Tune this computer in five minutes, and hand the table to this service:"),
      commandLine("tuner quickstart"),
      commandLine(`tuner publish tuner-out/openmpi/table.json --service ${location.origin}`),
      h("p", {}, "Or send a probe of several hosts, and have the service make the table:"),
      commandLine("tuner probe --hosts node0,node1 --out measurements.ndjson"),
      commandLine(curl("/v1/measurements", "--data-binary @measurements.ndjson")),
      commandLine(curlPost("/v1/jobs", { kind: "tune", measurements: 1, publish: true })),
      h("p", {}, "To try machines without measuring anything: ", h("a", { href: "/studio/what-if" }, "What if"), ".")),
  ];
}

/** Return {name, machines, libraries} of every cluster; libraries have tables, publications, probes. */
function placesOf(clusters, tables, publications, probes) {
  const found = new Map();
  for (const cluster of clusters) {
    if (!found.has(cluster.name)) found.set(cluster.name, { name: cluster.name, machines: [], libraries: new Map() });
    found.get(cluster.name).machines.push(cluster);
  }
  const kinds = { tables, publications, probes };
  for (const [kind, items] of Object.entries(kinds)) {
    for (const item of items) {
      const libraries = found.get(item.cluster)?.libraries;
      if (!libraries) continue;
      if (!libraries.has(item.library)) {
        libraries.set(item.library, { name: item.library, tables: [], publications: [], probes: [], place: h("section.library") });
      }
      libraries.get(item.library)[kind].push(item);
    }
  }
  return [...found.values()].map((place) => ({ ...place, libraries: [...place.libraries.values()] }));
}

function clusterCard(place) {
  const machines = place.machines.map(
    ({ nodes, cores, cpu, memory }) =>
      [`${plural(nodes, "node")} of ${plural(cores, "core")}`, cpu, memory ? formatSize(memory) : ""].filter(Boolean).join(", "),
  );
  return h("section.card.cluster", {},
    h("h2.cluster-name", {}, place.name), h("p.muted", {}, machines.join("; ")),
    place.libraries.length
      ? place.libraries.map((library) => library.place)
      : [h("p", {}, "Nothing is measured here yet. On this cluster:"),
          commandLine(`tuner tune --measurements measurements.ndjson --out table.json && tuner publish table.json --service ${location.origin}`)]);
}

/** Fill the part of a library: at once what the lists say, then what the service works out. */
async function fillLibrary(place, library) {
  const current = library.publications.at(-1) ?? null;
  const shown = current?.version ?? library.tables.at(-1)?.version ?? null;
  draw(place, library, current, null, null);
  if (shown === null) return;
  try {
    const [overview, staleness] = await Promise.all([
      getJson(`/v1/tables/${shown}/overview`), getJson(`/v1/tables/${shown}/feedback`),
    ]);
    draw(place, library, current, overview, staleness);
  } catch (error) {
    library.place.querySelector("dl").replaceWith(h("p.error", { role: "alert" }, problemText(error)));
  }
}

function draw(place, library, current, overview, staleness) {
  const shown = current?.version ?? library.tables.at(-1)?.version ?? null;
  library.place.replaceChildren(
    h("h3", {}, library.name),
    h("dl.facts", {},
      fact("In force", inForce(library, current)),
      fact("Does it still hold?", freshness(library, staleness, shown)),
      fact("Times as fast as the default", gain(overview)),
      fact("Next", nextStep(place, library, current, overview, staleness))),
    overview ? coverage(overview, shown) : "",
    library.tables.length ? versions(library, current) : "",
  );
}

function fact(title, contents) {
  return h("div", {}, h("dt", {}, title), h("dd", {}, contents));
}

function inForce(library, current) {
  if (current) {
    return [
      h("a.big", { href: `/studio/table/${current.version}` }, `version ${current.version}`),
      h("span.muted", {}, `since ${formatDate(current.published_at)}, ${formatAge(current.published_at)}`),
    ];
  }
  const newest = library.tables.at(-1);
  return [h("span.big", {}, "nothing"),
    h("span.muted", {}, newest ? "versions are stored, none is published" : `${plural(library.probes.length, "probe")}, no table`)];
}

function freshness(library, staleness, shown) {
  if (shown === null) return h("span.muted", {}, "no table");
  if (!staleness) return "…";
  const table = library.tables.find((one) => one.version === shown);
  const age = `made ${formatAge(table?.stored_at ?? Date.now())}`;
  if (staleness.stale) return [h("span.big.bad", {}, "no: stale"), h("span.muted", {}, `${staleness.reason}; ${age}`)];
  if (staleness.low === null) return [h("span.big", {}, "not known yet"), h("span.muted", {}, `${staleness.reason}; ${age}`)];
  return [h("span.big", {}, "yes"), h("span.muted", {}, `${staleness.reason}; ${age}`)];
}

function gain(overview) {
  if (!overview) return "…";
  const { proved, compared, changing } = overview;
  const isMeasured = !compared && overview.changing_bases.measured > 0;
  const big = proved ? formatRatio(proved[0]) : isMeasured ? formatRatio(overview.gain) : !compared && changing ? "expected" : "none";
  return [h("span.big", {}, big), h("span.muted", {}, overview.outcome)];
}

/** Return the one thing to do now: a sentence with a link or a command. */
function nextStep(place, library, current, overview, staleness) {
  const newest = library.tables.at(-1) ?? null;
  if (!newest) {
    const probe = library.probes.at(-1);
    return ["Have the service make a table of the probe:",
      commandLine(curlPost("/v1/jobs", { kind: "tune", measurements: probe.id, publish: true }))];
  }
  if (!current) return h("a", { href: `/studio/table/${newest.version}` }, `Look at version ${newest.version}, and publish it`);
  if (newest.version > current.version) {
    return h("a", { href: `/studio/table/${newest.version}?against=${current.version}` },
      `Compare the newer version ${newest.version} with version ${current.version}`);
  }
  if (staleness?.stale) {
    return ["Probe again, and publish the new table:",
      commandLine(`tuner tune --measurements again.ndjson --out again.json && tuner publish again.json --service ${location.origin}`)];
  }
  if (!overview) return "…";
  if (!overview.compared) {
    return ["Compare the table with the default at other sizes than those it was made from:",
      commandLine(`${curl(`/v1/tables/${current.version}`, "-o table.json")} && tuner table compare table.json`)];
  }
  if (staleness && staleness.low === null) {
    return ["Let programs follow it, and report how it does:",
      commandLine(`TUNER_FEEDBACK=1 TUNER_SERVICE=${location.origin} TUNER_CLUSTER=${shellWord(place.name)} mpiexec -n 2 python -m tuner.run program.py`)];
  }
  return h("span", {}, "Nothing: the table holds.");
}

/** A map of collectives and shapes: each cell has the gain of its calls, and leads to them. */
function coverage(overview, version) {
  const calls = new Map();
  for (const call of overview.calls) {
    const id = `${call.collective}/${call.nodes}x${call.ppn}`;
    const known = calls.get(id);
    if (!known || call.gain > known.gain) calls.set(id, call);
  }
  const every = [...calls.values()];
  const collectives = [...new Set(every.map((call) => call.collective))].sort();
  const shapes = [...new Map(every.map((call) => [`${call.nodes}x${call.ppn}`, call])).entries()].sort(
    ([, a], [, b]) => a.nodes * a.ppn - b.nodes * b.ppn || a.nodes - b.nodes,
  );
  const sizes = [...new Set(every.flatMap((call) => call.sizes))].sort((a, b) => a - b);
  const span = sizes.length ? `, with evidence from ${formatSize(sizes[0])} to ${formatSize(sizes.at(-1))}` : "";
  const cell = (collective, shape) => {
    const call = calls.get(`${collective}/${shape}`);
    return h("td", {}, call ? coverageLink(call, shape, version) : h("span.muted", { title: "no rule" }, "–"));
  };
  return h("div", {},
    h("p.coverage-title", {}, h("strong", {}, "Coverage: "),
      `${plural(collectives.length, "collective")} on ${plural(shapes.length, "shape")}${span}. `,
      h("span.muted", {}, "Cells, each a link to its rules: times as fast as the default where the table leaves it, dashed where only learned or simulated; = is the default at all sizes.")),
    h("div.scroll", { tabindex: 0, role: "region", "aria-label": `Coverage and gain of version ${version}` },
      h("table.coverage", {},
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "nodes × ranks"), shapes.map(([shape]) => h("th", { scope: "col" }, shape.replace("x", " × "))))),
        h("tbody", {}, collectives.map((collective) =>
          h("tr", {}, h("th", { scope: "row" }, collective), shapes.map(([shape]) => cell(collective, shape))))))),
    h("p.muted", {}, basisSentence(overview)));
}

function coverageLink(call, shape, version) {
  const query = new URLSearchParams({ call: `${call.collective}/${shape}`, operators: call.operators, memory: call.memory, placement: call.placement });
  const isChanged = call.changed > 0 && call.gain >= SURE;
  const text = isChanged ? formatRatio(call.gain) : "=";
  const isMeasured = call.measured > 0;
  const told = isChanged ? `${text} as fast, ${isMeasured ? "measured" : "not measured"}` : "the default";
  const link = h(isMeasured || !isChanged ? "a.cell" : "a.cell.expected", { href: `/studio/table/${version}?${query}`, "aria-label": `${call.collective} on ${shape.replace("x", " × ")}: ${told}`, title: `Show the rules for ${call.collective} on ${shape.replace("x", " × ")}` }, text);
  link.style.setProperty("--strength", isChanged ? `${Math.round(Math.min(1, Math.log(call.gain) / Math.log(3)) * 46 + 8)}%` : "0%");
  return link;
}

function basisSentence({ rules, changing, bases, changing_bases: changed, validated, confirmed }) {
  const kept = Object.fromEntries(Object.entries(bases).map(([name, count]) => [name, count - (changed[name] ?? 0)]));
  const told = validated
    ? ` ${confirmed} of ${plural(validated, "rule")} that were tried in the library were confirmed: it ran the algorithm that they name.`
    : " None was tried in the library itself.";
  return `${plural(rules, "rule")}: ${changing} leave the default${basesOf(changed)}, ${rules - changing} keep it${basesOf(kept)}.${told}`;
}

/** Return " (19 measured, 1 learned)" for counts of rules by their basis. */
function basesOf(counts) {
  const names = { measured: "measured", learned: "learned", simulated: "simulated", none: "without evidence" };
  const parts = Object.entries(names).filter(([name]) => counts[name]).map(([name, text]) => `${counts[name]} ${text}`);
  return parts.length ? ` (${parts.join(", ")})` : "";
}

function versions(library, current) {
  const rows = [...library.tables].reverse().map((one) => {
    const published = library.publications.filter((each) => each.version === one.version);
    return h("tr", { "aria-current": one.version === current?.version ? "true" : null },
      h("th", { scope: "row" }, h("a", { href: `/studio/table/${one.version}` }, `version ${one.version}`)),
      h("td", {}, formatDate(one.stored_at)), h("td.number", {}, plural(one.rules, "rule")),
      h("td", {}, published.length ? published.map((each) => formatDate(each.published_at)).join("; ") : "never"),
      h("td", {}, one.version !== current?.version && current
        ? h("a", { href: `/studio/table/${one.version}?against=${current.version}` }, `compare with version ${current.version}`) : one.version === current?.version ? "in force" : ""));
  });
  return h("details.versions", {}, h("summary", {}, plural(library.tables.length, "version")),
    h("div.scroll", { tabindex: 0, role: "region", "aria-label": `Versions for ${library.name} on ${library.tables[0].cluster}` }, h("table", {},
      headRow(["version", "stored", "rules", "published", "now"]),
      h("tbody", {}, rows))));
}
