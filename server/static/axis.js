// Round steps and their names for axes of time.

import { time } from "/static/format.js";

const DAY = 86400;

const STEPS = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
  3600, 7200, 10800, 21600, 43200, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 90 * DAY, 180 * DAY,
  365 * DAY, 730 * DAY, 1825 * DAY, 3650 * DAY,
].map((seconds) => Math.round(seconds * 1000));

// The shortest round step of which at most so many fit into a length of time.
export function stepOf(lengthMs, most) {
  const found = STEPS.find((step) => lengthMs / step <= most);
  if (found) return found;
  let step = STEPS[STEPS.length - 1];
  while (lengthMs / step > most) step *= 10;
  return step;
}

export function ticksOf({ start, end }, most) {
  const step = stepOf(end - start, most);
  const ticks = [];
  for (let at = Math.ceil(start / step) * step; at < end; at += step) ticks.push(at);
  return { ticks, step };
}

// Two lines for each tick: the date, where it is another one than at the tick before, and the time.
export function tickNames(ticks, step) {
  let last = "";
  return ticks.map((at) => {
    const [day, clock = ""] = time(at).split(" ");
    if (step >= 86400000) return [step >= 2592000000 ? day.slice(0, -3) : day, ""];
    const name = day === last ? "" : day;
    last = day;
    return [name, step >= 60000 ? clock.slice(0, 5) : step >= 1000 ? clock.slice(0, 8) : clock];
  });
}
