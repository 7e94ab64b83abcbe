// Where axes have their lines and names.

/** Return ticks of a linear axis: about `count` round numbers. */
export function linearTicks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= rough * 0.999);
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high * (1 + 1e-9); at += 1) {
    ticks.push(Number((at * step).toPrecision(12)));
  }
  return ticks;
}

/** Return ticks of a logarithmic axis: 1, 2 and 5 times powers of ten, or powers of ten alone. */
export function logTicks(low, high) {
  const factors = high / low > 300 ? [1] : [1, 2, 5];
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
    for (const factor of factors) {
      const tick = Number((factor * 10 ** power).toPrecision(12));
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  }
  return ticks;
}

const WIDE = [0.05, 0.1, 0.15, 0.25, 0.5, 0.7, 1, 1.5, 2, 3, 4];
const NARROW = [0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 4];

/** Return ticks of a logarithmic axis of ratios about one. */
export function ratioTicks(low, high) {
  return (high / low > 3 ? WIDE : NARROW).filter((ratio) => ratio >= low && ratio <= high);
}
