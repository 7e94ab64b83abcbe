// A picture of a machine: nodes, switches and links, or the inside of one node. Links can be lit with
// their load, and ranks be marked. What repeats often is drawn together in one box.
import { h, svg } from "./dom.js";

const MAX_BOXES = 32; // in a row; more nodes or switches share boxes
const MANY_LINES = 120; // with more, those off the critical path are drawn faintly
const MAX_LABELS = 12; // of loads on lines
const [ROW, BOX] = [92, 46]; // pixels from row to row, height of a box
const LEAST_WIDTH = 44; // pixels of a box with its share of the gaps
const RADII = [1, 0.6, 0.26]; // of the rings of nodes, their routers and the other routers
const [BOW_ABOVE, BOW_BELOW] = [34, 70]; // pixels that links within a row of devices need
const SAMPLE = "sample"; // class of the lines of a legend
const KINDS = { gpu: "GPU", cpu: "CPU", nic: "NIC" };

/** Return the row of each vertex of the network: 0 for nodes, then the levels of switches. */
function rowsOf(machine) {
  const nodes = machine.nodes.map((_, node) => node);
  const rows = [nodes];
  machine.switches.level.forEach((level, place) => {
    (rows[Math.max(1, level)] ??= []).push(nodes.length + place);
  });
  return rows.filter(Boolean);
}

/** Cut a row into at most so many boxes of equally many neighbours. */
function boxesOf(row, most) {
  const each = Math.ceil(row.length / Math.max(1, most));
  const boxes = [];
  for (let at = 0; at < row.length; at += each) boxes.push(row.slice(at, at + each));
  return boxes;
}

/** Return the name of a box: node4, node4–7, or the first and the last of other names. */
function nameOf(names) {
  if (names.length === 1) return names[0];
  const [first, last] = [names[0], names.at(-1)].map((name) => /^(.*?)(\d+)$/.exec(name));
  if (first && last && first[1] === last[1]) return `${names[0]}–${last[2]}`;
  return `${names[0]} … ${names.at(-1)}`;
}

/** Lay out the network: {boxes, lines, height}; boxes have x, y, width, name, nodes, kind. */
function networkLayout(machine, width) {
  const rows = rowsOf(machine);
  const names = [...machine.nodes, ...machine.switches.name];
  const isNode = (vertex) => vertex < machine.nodes.length;
  const boxes = [];
  const boxOf = new Map();
  const isRing = hasLinksWithinRows(machine, rows);
  const height = isRing ? Math.min(width, 520) : ROW * rows.length;
  const most = Math.max(4, Math.min(MAX_BOXES, Math.floor((isRing ? width + height : width) / LEAST_WIDTH)));
  if (isRing) rows.splice(2, rows.length, ...(rows[2] ? [rows.slice(2).flat()] : []));
  rows.forEach((row, level) => {
    const own = boxesOf(row, isRing ? Math.ceil(most * RADII[level]) : most);
    own.forEach((vertices, place) => {
      const at = isRing
        ? onRing(place / own.length, width, height, RADII[level])
        : { x: (width * (place + 0.5)) / own.length, y: height - ROW * (level + 0.5) };
      const room = isRing ? 46 : Math.min(150, (width / own.length) * 0.86);
      const box = {
        ...at, width: room, height: isRing ? 30 : BOX, vertices,
        name: nameOf(vertices.map((vertex) => names[vertex])),
        kind: level === 0 ? "node" : "switch", nodes: vertices.filter(isNode),
      };
      for (const vertex of vertices) boxOf.set(vertex, boxes.length);
      boxes.push(box);
    });
  });
  return { boxes, lines: linesBetween(machine.links, (vertex) => boxOf.get(vertex), boxes, 0), height };
}

function onRing(turn, width, height, radius) {
  const angle = 2 * Math.PI * turn;
  return {
    x: width / 2 + (width / 2 - 40) * radius * Math.sin(angle),
    y: height / 2 - (height / 2 - 30) * radius * Math.cos(angle),
  };
}

function hasLinksWithinRows(machine, rows) {
  const rowOf = new Map(rows.flatMap((row, level) => row.map((vertex) => [vertex, level])));
  const { source, target } = machine.links;
  return source.some((from, link) => rowOf.get(from) > 0 && rowOf.get(from) === rowOf.get(target[link]));
}

/** Join the links between two boxes to one line, with the numbers of those links. */
function linesBetween(links, boxOf, boxes, first) {
  const found = new Map();
  links.source.forEach((from, link) => {
    const [a, b] = [boxOf(from), boxOf(links.target[link])];
    if (a === b) return;
    const key = a < b ? `${a}-${b}` : `${b}-${a}`;
    const line = found.get(key) ?? { ends: [boxes[Math.min(a, b)], boxes[Math.max(a, b)]], links: [], cables: 0, kind: links.kind[link] };
    line.links.push(first + link);
    line.cables = Math.max(line.cables, links.cables[link]);
    found.set(key, line);
  });
  return [...found.values()];
}

/** Lay out the inside of a node: CPUs above, then switches, GPUs and NICs, the switches of NVLink below. */
function interiorLayout(machine, node, width, firstLink) {
  const type = machine.node_types[machine.node_type[node]];
  const { name, kind, product } = type.devices;
  const hubs = new Set(type.links.target.filter((to, link) => type.links.kind[link] === "nvlink" && kind[to] === "switch"));
  const { order, depth } = treeOf(type, hubs);
  const leafRow = Math.max(1, ...depth.values());
  const rowOf = (device) => hubs.has(device) ? leafRow + 1
    : ["gpu", "nic"].includes(kind[device]) ? leafRow : depth.get(device);
  const rows = [];
  for (const device of [...order, ...hubs]) (rows[rowOf(device)] ??= []).push(device);
  const boxes = [];
  const boxOf = new Map();
  rows.filter(Boolean).forEach((row, level) => {
    row.forEach((device, place) => {
      boxOf.set(device, boxes.length);
      boxes.push({
        x: (width * (place + 0.5)) / row.length, y: BOW_ABOVE + ROW * (level + 0.5), level,
        width: Math.min(130, (width / row.length) * 0.86), height: BOX, kind: kind[device],
        name: deviceLabel(name[device], product[device]), device, nodes: [],
      });
    });
  });
  const height = BOW_ABOVE + ROW * rows.filter(Boolean).length + (hubs.size ? 0 : BOW_BELOW);
  return { boxes, lines: linesBetween(type.links, (device) => boxOf.get(device), boxes, firstLink), height };
}

/** Return the devices below the CPUs in the order of their branches, and how far below they are. */
function treeOf(type, hubs) {
  const { kind } = type.devices;
  const devices = kind.map((_, device) => device);
  const roots = devices.filter((device) => kind[device] === "cpu");
  const depth = new Map((roots.length ? roots : [0]).map((device) => [device, 0]));
  const children = new Map();
  for (const device of depth.keys()) {
    if (kind[device] === "gpu" || kind[device] === "nic") continue;
    type.links.source.forEach((from, link) => {
      const to = type.links.target[link];
      if (from !== device || depth.has(to) || hubs.has(to)) return;
      depth.set(to, depth.get(device) + 1);
      children.set(device, [...(children.get(device) ?? []), to]);
    });
  }
  for (const device of devices) if (!depth.has(device) && !hubs.has(device)) depth.set(device, 1);
  const order = [];
  const visit = (device) => {
    order.push(device);
    for (const child of children.get(device) ?? []) visit(child);
  };
  for (const [device, level] of depth) if (level === 0) visit(device);
  order.push(...devices.filter((device) => !order.includes(device) && !hubs.has(device)));
  return { order, depth };
}

function deviceLabel(name, product) {
  const [, kind, number] = /^(gpu|cpu|nic)(\d+)$/.exec(name) ?? [];
  return kind ? `${KINDS[kind]} ${number}` : product || name;
}

/** Return the path of a line: straight between rows, a bow between boxes of one row. */
function pathOf({ ends: [a, b] }) {
  if (a.y !== b.y || a.level === undefined) return `M${a.x} ${a.y}L${b.x} ${b.y}`;
  const most = a.level === 0 ? BOW_ABOVE : BOW_BELOW;
  const away = Math.min(most, 18 + Math.abs(a.x - b.x) * 0.12) * (a.level === 0 ? -1 : 1);
  const edge = a.y + (Math.sign(away) * a.height) / 2;
  return `M${a.x} ${edge}Q${(a.x + b.x) / 2} ${edge + 2 * away} ${b.x} ${edge}`;
}

export class MachinePicture {
  loads;
  critical;

  /** `ranks` has the node and the device of each rank, or is null where no ranks are to be shown. */
  constructor(place, machine, ranks = null) {
    this.place = place;
    this.machine = machine;
    this.ranks = ranks;
    this.node = null; // whose inside is shown
    this.firstLink = firstLinks(machine);
    this.drawing = svg("svg.machine", { role: "img" });
    this.choice = h("select", { "aria-label": "Show", change: () => this.#choose() },
      h("option", { value: "" }, "the network"),
      machine.nodes.map((name, node) => machine.node_type[node] >= 0 &&
        h("option", { value: node }, `inside ${name}`)));
    place.replaceChildren(h("div.machine-choice", {}, this.choice), this.drawing, legend());
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(place);
  }

  /** Show the inside of a node, or the network for null. */
  showNode(node) {
    this.node = node;
    this.choice.value = node ?? "";
    this.draw();
  }

  #choose() {
    this.showNode(this.choice.value === "" ? null : Number(this.choice.value));
  }

  /** Lay out the picture for the width of its place, and light again what was lit. */
  draw() {
    const width = Math.max(240, Math.floor(this.place.clientWidth));
    const { boxes, lines, height } = this.node === null
      ? networkLayout(this.machine, width)
      : interiorLayout(this.machine, this.node, width, this.firstLink[this.node]);
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.drawing.setAttribute("height", height);
    this.drawing.setAttribute("aria-label", this.#description());
    this.lineOf = new Map();
    this.boxes = boxes;
    this.lines = lines.map((line) => {
      const path = svg("path.link", { d: pathOf(line) }, svg("title", {}, line.ends.map((end) => end.name).join(" – ")));
      path.classList.add(line.kind);
      path.style.setProperty("--cables", Math.min(line.cables, 5));
      for (const link of line.links) this.lineOf.set(link, line);
      return Object.assign(line, { path });
    });
    this.drawing.classList.toggle("dense", this.lines.length > MANY_LINES);
    this.cellOf = new Map();
    const drawn = boxes.map((box) => this.#drawBox(box));
    this.labels = svg("g");
    this.drawing.replaceChildren(svg("g", {}, this.lines.map((line) => line.path)), ...drawn, this.labels);
    this.litLines = [];
    this.light(this.loads ?? new Map(), this.critical ?? new Set());
    this.mark(this.marked ?? (() => false));
  }

  #description() {
    const { name, nodes, switches } = this.machine;
    if (this.node !== null) return `The inside of ${nodes[this.node]} of ${name}`;
    return `${name}: ${nodes.length} nodes, ${switches.name.length} switches`;
  }

  #drawBox(box) {
    const [left, top] = [box.x - box.width / 2, box.y - box.height / 2];
    const open = box.nodes.length === 1 && this.machine.node_type[box.nodes[0]] >= 0;
    const text = svg("text", { x: box.x, y: top + (this.#ranksIn(box).length ? 14 : box.height / 2 + 4) }, fitting(box.name, box.width));
    box.frame = svg("rect.box", { x: left, y: top, width: box.width, height: box.height, rx: 4 });
    box.frame.classList.add(box.kind);
    const group = svg("g", { click: open && (() => this.showNode(box.nodes[0])) },
      svg("title", {}, box.name), box.frame, text, this.#drawRanks(box, left, top));
    group.classList.toggle("open", open);
    return group;
  }

  #ranksIn(box) {
    if (!this.ranks) return [];
    const { node, device } = this.ranks;
    const isHere = this.node === null
      ? (rank) => box.nodes.includes(node[rank])
      : (rank) => node[rank] === this.node && device[rank] === box.device;
    return node.map((_, rank) => rank).filter(isHere);
  }

  /** Draw a cell for each rank, or where they are too many a bar of how many are marked. */
  #drawRanks(box, left, top) {
    const ranks = this.#ranksIn(box);
    if (!ranks.length) return [];
    const [room, high] = [box.width - 6, box.height - 24];
    const columns = Math.ceil(Math.sqrt((ranks.length * room) / high));
    const size = Math.min(16, room / columns, high / Math.ceil(ranks.length / columns));
    if (size < 3) {
      box.meter = svg("rect.rank.held", { x: left + 3, y: top + 20, width: 0, height: high });
      Object.assign(box, { ranks, room });
      return [svg("rect.rank", { x: left + 3, y: top + 20, width: room, height: high }), box.meter];
    }
    const wide = Math.min(columns, ranks.length) * size;
    return ranks.map((rank, place) => {
      const x = box.x - wide / 2 + (place % columns) * size;
      const y = top + 20 + Math.floor(place / columns) * size;
      const cell = svg("rect.rank", { x, y, width: size - 1, height: size - 1 }, svg("title", {}, `rank ${rank}`));
      this.cellOf.set(rank, cell);
      return cell;
    });
  }

  /** Light links: `loads` maps their numbers to parts of their capacity, `critical` are of the path. */
  light(loads, critical) {
    Object.assign(this, { loads, critical });
    if (!this.lines) return;
    for (const line of this.litLines) Object.assign(line, { load: 0, isCritical: false });
    const lit = new Set();
    for (const links of [loads.keys(), critical]) {
      for (const link of links) {
        const line = this.lineOf.get(link);
        if (!line) continue;
        line.load = Math.max(line.load ?? 0, loads.get(link) ?? 0);
        line.isCritical ||= critical.has(link);
        lit.add(line);
      }
    }
    for (const line of new Set([...this.litLines, ...lit])) {
      line.path.classList.toggle("lit", line.load > 0.001);
      line.path.classList.toggle("critical", line.isCritical);
      line.path.style.setProperty("--load", Math.min(1, line.load).toFixed(3));
    }
    this.litLines = [...lit];
    this.#labelLoads();
  }

  /** Write the load on the lines of the critical path. */
  #labelLoads() {
    const critical = this.litLines.filter((line) => line.isCritical);
    for (const { path } of critical) path.parentNode.append(path); // above all others
    const places = [];
    for (const { path, load } of critical) {
      const { x, y } = path.getPointAtLength(path.getTotalLength() / 2);
      const isFree = places.every((other) => Math.abs(other.x - x) > 36 || Math.abs(other.y - y) > 14);
      if (load >= 0.005 && isFree && places.length < MAX_LABELS) places.push({ x, y, load });
    }
    this.labels.replaceChildren(...places.map(({ x, y, load }) =>
      svg("text.load", { x, y: y + 4 }, `${Math.round(load * 100)}%`)));
  }

  /** Mark the ranks for which `isMarked` is true. */
  mark(isMarked) {
    this.marked = isMarked;
    for (const [rank, cell] of this.cellOf ?? []) cell.classList.toggle("held", isMarked(rank));
    for (const { meter, ranks, room } of this.boxes ?? []) {
      meter?.setAttribute("width", (room * ranks.filter(isMarked).length) / ranks.length);
    }
  }

  remove() {
    this.resized.disconnect();
  }
}

/** Return the number of the first link inside each node. */
function firstLinks(machine) {
  let next = machine.links.source.length;
  return machine.node_type.map((type) => {
    const first = next;
    if (type >= 0) next += machine.node_types[type].links.source.length;
    return first;
  });
}

/** Shorten a name to the width of its box; the number at its end stays. */
function fitting(text, width) {
  const most = Math.floor((width - 6) / 6.4);
  if (text.length <= most) return text;
  const number = /[\d.]+(–[\d.]+)?$/.exec(text)?.[0] ?? "";
  if (most > number.length + 4) return `${text.slice(0, most - number.length - 1)}…${number}`;
  return number.length <= most ? number : "";
}

function legend() {
  const item = (name, text) =>
    h("li", {}, svg(`svg.${SAMPLE}`, { width: 26, height: 10, "aria-hidden": "true" },
      svg(`path.link.lit.${name}`, { d: "M1 5H25" })), text);
  const [low, high] = [item("low", "little load"), item("high", "full")];
  low.querySelector("path").style.setProperty("--load", 0.15);
  high.querySelector("path").style.setProperty("--load", 1);
  return h("ul.legend", {}, low, high, item("critical", "carries the critical path, with its load"));
}
