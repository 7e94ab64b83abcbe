// One traced call: its transfers by rank and by link, what is under way at a time, its rounds.

export const COMPONENTS = ["flight", "bandwidth", "contention", "reduction", "copying", "overhead"];

/** Bars of one row, sorted by their beginnings, of which the visible ones are found by bisection. */
class Lane {
  constructor(begins, ends, items) {
    this.begins = begins;
    this.ends = ends;
    this.items = items;
    this.longest = 0;
    for (let at = 0; at < items.length; at += 1) {
      this.longest = Math.max(this.longest, ends[at] - begins[at]);
    }
  }

  /** Return the first and one past the last bar that may be visible between two times. */
  between(from, to) {
    return [bisect(this.begins, from - this.longest), bisect(this.begins, to)];
  }
}

/** Return how many of the sorted values are smaller than one. */
export function bisect(values, value) {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Sort items into lanes by their keys; within a lane they keep the order in which they come. */
function lanesBy(order, keyOf, lanes, begins, ends) {
  const first = new Uint32Array(lanes + 1);
  for (const item of order) first[keyOf(item) + 1] += 1;
  for (let lane = 0; lane < lanes; lane += 1) first[lane + 1] += first[lane];
  const next = first.slice();
  const items = new Uint32Array(order.length);
  for (const item of order) items[next[keyOf(item)]++] = item;
  return Array.from({ length: lanes }, (_, lane) => {
    const own = items.subarray(first[lane], first[lane + 1]);
    const of = (column) => Float64Array.from(own, (item) => column[item]);
    return new Lane(of(begins), of(ends), own);
  });
}

export class CallModel {
  constructor(record) {
    this.record = record;
    this.transfers = record.transfers;
    this.ranks = record.ranks.node.length;
    this.tick = record.tick;
    this.path = record.critical_path;
    const { started, released, arrived, src, dst } = this.transfers;
    this.end = Math.max(1, arrived.reduce((a, b) => Math.max(a, b), 0), this.path.end.at(-1) ?? 0);
    const order = Uint32Array.from(started.keys());
    order.sort((a, b) => started[a] - started[b]);
    this.order = order;
    this.starts = [...new Set(Array.from(order, (item) => started[item]))];
    this.sends = lanesBy(order, (item) => src[item], this.ranks, started, released);
    this.receives = lanesBy(order, (item) => dst[item], this.ranks, started, arrived);
    const { rank, begin, end } = record.work;
    const work = Uint32Array.from(rank.keys()).sort((a, b) => begin[a] - begin[b]);
    this.work = lanesBy(work, (item) => rank[item], this.ranks, begin, end);
    this.#indexLinks(record.machine);
    this.#indexCrossings();
    this.onPath = new Uint8Array(src.length);
    for (const transfer of this.path.transfer) if (transfer >= 0) this.onPath[transfer] = 1;
  }

  /** Give every link its number, name and capacity: the network's, the nodes', the memory buses. */
  #indexLinks(machine) {
    const ends = [...machine.nodes, ...machine.switches.name];
    const { source, target, capacity } = machine.links;
    this.linkNames = source.map((_, link) => `${ends[source[link]]} → ${ends[target[link]]}`);
    this.capacity = capacity.slice();
    machine.node_type.forEach((type, node) => {
      if (type < 0) return;
      const { devices, links } = machine.node_types[type];
      links.source.forEach((a, link) => {
        const [from, to] = [devices.name[a], devices.name[links.target[link]]];
        this.linkNames.push(`${machine.nodes[node]}: ${from} → ${to}`);
        this.capacity.push(links.capacity[link]);
      });
    });
    for (const node of machine.nodes) {
      this.linkNames.push(`${node}: memory`);
      this.capacity.push(machine.memory_bandwidth);
    }
  }

  /** Find the transfers over each link, and how much of it they use on average. */
  #indexCrossings() {
    const { paths } = this.record;
    const { path, nbytes } = this.transfers;
    const crossing = new Map(); // link -> its transfers in the order of their beginnings
    for (const item of this.order) {
      for (let at = paths.start[path[item]]; at < paths.start[path[item] + 1]; at += 1) {
        const link = paths.links[at];
        const known = crossing.get(link) ?? { items: [], factors: [], bytes: 0 };
        known.items.push(item);
        known.factors.push(paths.load[at]);
        known.bytes += nbytes[item] * paths.load[at];
        crossing.set(link, known);
      }
    }
    const { flowing, released } = this.transfers;
    this.links = new Map();
    for (const [link, { items, factors, bytes }] of crossing) {
      const of = (column) => Float64Array.from(items, (item) => column[item]);
      const lane = new Lane(of(flowing), of(released), Uint32Array.from(items));
      const mean = this.capacity[link] ? bytes / (this.capacity[link] * this.end * this.tick) : 0;
      this.links.set(link, { lane, factors: Float32Array.from(factors), bytes, mean });
    }
    this.busiest = [...this.links.keys()].sort((a, b) => this.links.get(b).mean - this.links.get(a).mean);
  }

  seconds(ticks) {
    return ticks * this.tick;
  }

  /** Return the links of the path of a transfer. */
  linksOf(transfer) {
    const { start, links } = this.record.paths;
    const path = this.transfers.path[transfer];
    return links.slice(start[path], start[path + 1]);
  }

  /** Return the part of its capacity that a transfer takes of a link while it flows. */
  #share(transfer, link, factor) {
    const { nbytes, flowing, released } = this.transfers;
    const flows = (released[transfer] - flowing[transfer]) * this.tick;
    const capacity = this.capacity[link];
    return capacity && flows > 0 ? (nbytes[transfer] * factor) / flows / capacity : 0;
  }

  /** Return the load of each link that carries something at a time: link -> part of its capacity. */
  loadsAt(time) {
    const { started, flowing, released, path } = this.transfers;
    const { start, links, load } = this.record.paths;
    const found = new Map();
    const last = countUpTo(this.order, started, time);
    for (let place = 0; place < last; place += 1) {
      const item = this.order[place];
      if (released[item] <= time || flowing[item] > time) continue;
      for (let at = start[path[item]]; at < start[path[item] + 1]; at += 1) {
        const more = this.#share(item, links[at], load[at]);
        found.set(links[at], (found.get(links[at]) ?? 0) + more);
      }
    }
    return found;
  }

  /** Return how many messages are on their way at a time. */
  underWayAt(time) {
    const { started, arrived } = this.transfers;
    let count = 0;
    const last = countUpTo(this.order, started, time);
    for (let place = 0; place < last; place += 1) count += Number(arrived[this.order[place]] > time);
    return count;
  }

  /** Return the number of the segment of the critical path at a time; -1 after its end. */
  segmentAt(time) {
    const at = bisect(this.path.end, time + 0.5);
    return at < this.path.end.length ? at : -1;
  }

  /** Return the load of one link in `bins` equal parts of the time between two times. */
  loadOverTime(link, from, to, bins) {
    const { lane, factors } = this.links.get(link);
    const sums = new Float32Array(bins);
    const scale = bins / (to - from);
    const [first, last] = lane.between(from, to);
    for (let at = first; at < last; at += 1) {
      const [x0, x1] = [(lane.begins[at] - from) * scale, (lane.ends[at] - from) * scale];
      const share = this.#share(lane.items[at], link, factors[at]);
      const end = Math.min(bins, Math.ceil(x1));
      for (let bin = Math.max(0, Math.floor(x0)); bin < end; bin += 1) {
        sums[bin] += share * (Math.min(bin + 1, x1) - Math.max(bin, x0));
      }
    }
    return sums;
  }

  /** Return the next or previous time at which a transfer starts. */
  stepFrom(time, forwards) {
    if (forwards) return this.starts[bisect(this.starts, time + 0.5)] ?? this.end;
    return this.starts[bisect(this.starts, time - 0.5) - 1] ?? 0;
  }

  /** Return one row for each round: transfers, bytes, times, and its part of the critical path. */
  get rounds() {
    if (this.roundRows) return this.roundRows;
    const { round, nbytes, started, arrived } = this.transfers;
    const rows = [];
    round.forEach((number, item) => {
      const row = (rows[number] ??= {
        number, transfers: 0, bytes: 0, begin: Infinity, end: 0, longest: 0, critical: 0,
      });
      row.transfers += 1;
      row.bytes += nbytes[item];
      row.begin = Math.min(row.begin, started[item]);
      row.end = Math.max(row.end, arrived[item]);
      row.longest = Math.max(row.longest, arrived[item] - started[item]);
    });
    const { transfer, begin, end } = this.path;
    transfer.forEach((item, at) => {
      if (item >= 0) rows[round[item]].critical += end[at] - begin[at];
    });
    this.roundRows = rows.filter(Boolean);
    return this.roundRows;
  }

  /** Return the rank and the chunk that leave first, or else some that are held at the beginning. */
  get firstChunk() {
    const { src, src_chunk } = this.transfers;
    const chunk = src.length ? src_chunk[0] - this.slotsBefore : 0;
    if (src.length && chunk >= 0 && this.holdsAtFirst(src[0], chunk)) return [src[0], chunk];
    const rank = this.record.holders === "root" ? this.record.root : 0;
    if (this.slotsBefore) return [0, Math.floor(this.record.chunks / this.ranks) % this.record.chunks];
    return [rank, this.firstChunkOf(rank)];
  }

  /** Return by how many slots the chunks that ranks hold at the beginning lie further on. */
  get slotsBefore() {
    return this.record.holders === "all_in_scratch" ? this.record.chunks : 0;
  }

  holdsAtFirst(rank, chunk) {
    const { holders, root, chunks } = this.record;
    if (chunk >= chunks) return false;
    if (holders.startsWith("all")) return true;
    return holders === "root" ? rank === root : Math.floor((chunk * this.ranks) / chunks) === rank;
  }

  /** Return the first chunk that a rank holds at the beginning. */
  firstChunkOf(rank) {
    const { holders, chunks } = this.record;
    return holders === "owner" ? Math.ceil((rank * chunks) / this.ranks) : 0;
  }

  /** Follow what one rank holds in one chunk: the transfers that carry it, and who has it from when. */
  follow(rank, chunk) {
    const { round, src, dst, src_chunk, dst_chunk, count, reduce, arrived } = this.transfers;
    const held = new Map([[rank, new Set([chunk + this.slotsBefore])]]); // rank -> slots
    const carries = new Uint8Array(src.length);
    const since = new Float64Array(this.ranks).fill(Infinity);
    since[rank] = 0;
    const local = this.record.local;
    const rounds = Math.max(0, (round.at(-1) ?? -1) + 1, (local.round.at(-1) ?? -1) + 1);
    let [item, own] = [0, 0];
    for (let number = 0; number < rounds; number += 1) {
      const [gone, come] = [[], []];
      const move = (from, to, a, b, chunks, isCombined) => {
        const slots = [...(held.get(from) ?? [])].filter((slot) => slot >= a && slot < a + chunks);
        for (const slot of slots) come.push([to, b + slot - a]);
        const old = isCombined ? [] : [...(held.get(to) ?? [])];
        for (const slot of old) if (slot >= b && slot < b + chunks) gone.push([to, slot]);
        return slots.length > 0;
      };
      for (; item < src.length && round[item] === number; item += 1) {
        const [a, b] = [src_chunk[item], dst_chunk[item]];
        if (move(src[item], dst[item], a, b, count[item], reduce[item] !== 0)) {
          carries[item] = 1;
          since[dst[item]] = Math.min(since[dst[item]], arrived[item]);
        }
      }
      for (; own < local.src.length && local.round[own] === number; own += 1) {
        const [at, a, b] = [local.src[own], local.src_chunk[own], local.dst_chunk[own]];
        move(at, at, a, b, local.count[own], local.reduce[own] !== 0);
      }
      for (const [to, slot] of gone) held.get(to).delete(slot);
      for (const [to, slot] of come) held.set(to, (held.get(to) ?? new Set()).add(slot));
    }
    return { carries, since };
  }
}

/** Return how many items, in their order, have a value of at most `most`. */
function countUpTo(order, column, most) {
  let [low, high] = [0, order.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[order[middle]] <= most) low = middle + 1;
    else high = middle;
  }
  return low;
}
