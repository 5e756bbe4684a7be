// Latency over time as a heat map, from the difference between two polls, beside all since the
// broker started. The buckets are the broker's.

import { byId, html, replace, setText, svg } from "/static/dom.js";
import { count, several, span } from "/static/format.js";

const COLUMNS = 150;
const ROW = 10;
const SHOWN_ROW = 18;

const histories = new Map();

// Notes what was counted for a topic; a broker that started again begins anew.
export function note(topic, counts, nowMs) {
  let history = histories.get(topic);
  if (!history || counts.some((value, place) => value < history.last[place])) {
    history = { last: counts, columns: [] };
    histories.set(topic, history);
    return;
  }
  const added = counts.map((value, place) => value - history.last[place]);
  history.last = counts;
  history.columns.push({ nowMs, added, sum: added.reduce((a, b) => a + b, 0) });
  if (history.columns.length > COLUMNS) history.columns.shift();
}

export function forgetAllBut(names) {
  for (const name of histories.keys()) if (!names.has(name)) histories.delete(name);
}

function boundName(bounds, place) {
  return place < bounds.length ? `≤ ${span(bounds[place])}` : `> ${span(bounds[bounds.length - 1])}`;
}

// The bound below which a share of the messages is.
function quantile(bounds, counts, share) {
  const total = counts.reduce((a, b) => a + b, 0);
  let seen = 0;
  for (const [place, number] of counts.entries()) {
    seen += number;
    if (total && seen >= share * total) return boundName(bounds, place);
  }
  return "unknown";
}

function usedRows(totals) {
  const used = totals.flatMap((value, place) => (value ? [place] : []));
  let low = used.length ? Math.max(used[0] - 1, 0) : 0;
  let high = used.length ? Math.min(used[used.length - 1] + 1, totals.length - 1) : 7;
  while (high - low < 7) {
    if (high < totals.length - 1) high += 1;
    if (low > 0 && high - low < 7) low -= 1;
  }
  return { low, high };
}

export function show(topic, bounds, windowMs) {
  const totals = topic.latency_counts;
  const all = totals.reduce((a, b) => a + b, 0);
  const columns = histories.get(topic.name)?.columns ?? [];
  const recent = columns.reduce((sum, column) => sum + column.sum, 0);
  setText("latency-note", all
    ? `${several(all, "message")} since the broker started; ${count(recent)} while this page looked.`
    : "No message with a create time came since the broker started.");
  const { low, high } = usedRows(totals);
  const rows = high - low + 1;
  const y = (place) => (high - place) * ROW;
  const cells = [];
  columns.forEach((column, number) => {
    column.added.forEach((value, place) => {
      if (!value) return;
      const x = COLUMNS - columns.length + number;
      const strength = 0.25 + 0.75 * Math.sqrt(value / column.sum);
      cells.push(svg("rect", {
        class: "cell", x, y: y(place) + 0.5, width: 1, height: ROW - 1,
        "fill-opacity": strength.toFixed(2), "data-bucket": place, "data-count": value,
      }));
    });
  });
  const half = quantile(bounds, totals, 0.5);
  const most = quantile(bounds, totals, 0.99);
  const largest = topic.largest_latency_ms;
  const map = svg("svg", {
    viewBox: `0 0 ${COLUMNS} ${rows * ROW}`, height: rows * SHOWN_ROW, preserveAspectRatio: "none", role: "img",
    "aria-label": `Latency over time: ${several(recent, "message")} while this page looked; since the start, half ${half}, 99 of 100 ${most}.`,
  }, cells);
  const widest = Math.max(...totals, 1);
  const bars = totals.flatMap((value, place) => value && place >= low && place <= high
    ? [svg("rect", { class: "total", x: 0, y: y(place) + 1, width: Math.max(100 * value / widest, 1), height: ROW - 2, "data-bucket": place, "data-count": value },
      svg("title", {}, `${boundName(bounds, place)}: ${count(value)}`))]
    : []);
  const sums = svg("svg", {
    viewBox: `0 0 100 ${rows * ROW}`, height: rows * SHOWN_ROW, preserveAspectRatio: "none", role: "img",
    "aria-label": `Since the broker started: half ${half}, 99 of 100 ${most}`,
  }, bars);
  const labels = [];
  for (let place = high; place >= low; place -= 1) labels.push(html("span", {}, boundName(bounds, place)));
  const first = columns.length ? columns[columns.length - 1].nowMs - columns[0].nowMs : 0;
  replace(byId("latency"),
    html("p", { class: "figures" },
      html("span", {}, "Half ", html("b", {}, half)), html("span", {}, "99 of 100 ", html("b", {}, most)),
      html("span", {}, `Largest of the last ${span(windowMs)}: `, html("b", { id: "largest-latency" }, largest === null || largest === undefined ? "none came" : span(largest))),
      topic.skewed ? html("span", { class: "late" }, `${count(topic.skewed)} from the future (clocks differ)`) : null),
    html("div", { class: "rows", "aria-hidden": "true" }, labels), map, sums,
    html("span", {}), html("span", { class: "caption", "aria-hidden": "true" }, html("span", {}, first ? `last ${span(first)}` : "collecting"), html("span", {}, "now")),
    html("span", { class: "caption", "aria-hidden": "true" }, "since start"));
}
