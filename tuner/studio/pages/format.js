// Sizes, times and rates as people write them; the same forms as on the command line.

const SIZE_UNITS = ["B", "KiB", "MiB", "GiB"];

/** Return 64KiB for 65536: at most three significant figures. */
export function formatSize(bytes) {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < SIZE_UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${Number(value.toPrecision(3))}${SIZE_UNITS[unit]}`;
}

/** Return 12.3us for 1.23e-5. */
export function formatTime(seconds) {
  for (const [unit, scale] of /** @type {[string, number][]} */ ([["s", 1], ["ms", 1e-3], ["us", 1e-6]])) {
    if (seconds >= scale * 0.9995) return `${Number((seconds / scale).toPrecision(3))}${unit}`;
  }
  return `${Number((seconds * 1e9).toPrecision(3))}ns`;
}

/** Return 400Gb/s for 5e10: a line rate in bits. */
export function formatLineRate(rate) {
  return `${Number(((rate * 8) / 1e9).toPrecision(3))}Gb/s`;
}

/** Return 47.2GB/s for 4.72e10. */
export function formatRate(rate) {
  return `${Number((rate / 1e9).toPrecision(3))}GB/s`;
}

/** Return 1.25× for a ratio. */
export function formatRatio(ratio) {
  return `${ratio.toFixed(ratio < 10 ? 2 : 0)}×`;
}

/** Return 16KiB to 1MiB for half-open ranges; stop may be Infinity. */
export function formatRange(start, stop) {
  if (stop === Infinity) return start === 0 ? "all sizes" : `from ${formatSize(start)}`;
  return start === 0 ? `below ${formatSize(stop)}` : `${formatSize(start)} to ${formatSize(stop)}`;
}

/** Return 26 Nov 2026, 14:05 in the reader's time zone. */
export function formatDate(text) {
  return new Date(text).toLocaleString("en-GB", {
    day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit",
  });
}

/** Return 26 Nov 2026. */
export function formatDay(text) {
  return new Date(text).toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
}

/** @type {[string, number][]} */
const AGES = [["year", 31557600], ["month", 2629800], ["day", 86400], ["hour", 3600], ["minute", 60]]; // seconds

/** Return "3 days ago" for a moment in the past. */
export function formatAge(text, now = Date.now()) {
  const seconds = Math.max(0, (now - new Date(text).getTime()) / 1000);
  for (const [unit, length] of AGES) {
    const count = Math.floor(seconds / length);
    if (count >= 1) return `${count} ${unit}${count > 1 ? "s" : ""} ago`;
  }
  return "just now";
}

/** Return a text with sizes for people: ring(segment=65536) becomes ring (segment=64KiB). */
export function humanize(text) {
  return text
    .replace(/(?<=\w)\((?=\w+=)/g, " (")
    .replace(/segment=(\d+)/g, (_, size) => `segment=${formatSize(Number(size))}`);
}

/** Return a text as a sentence, with a capital letter and a full stop. */
export function sentence(text) {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}

/** Return "1 rule" or "2 rules". */
export function plural(count, noun) {
  return `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** Return a count with thin spaces between thousands. */
export function formatCount(count) {
  return count.toLocaleString("en").replaceAll(",", "\u2009");
}

/** Return 8.2% for 0.082: two significant figures. */
export function formatPercent(share) {
  const percent = 100 * share;
  return `${percent < 100 ? Number(percent.toPrecision(2)) : Math.round(percent)}%`;
}
