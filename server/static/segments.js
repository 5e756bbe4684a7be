// Segments on a time axis: each from its first to its largest time, and when it expires.

import { tickNames, ticksOf } from "/static/axis.js";
import { byId, html, replace, setText, svg } from "/static/dom.js";
import { count, several, size, span, time } from "/static/format.js";

const AXIS = 34;
const FOOT = 18;
const LABEL = 74;
const HIDDEN = "hidden: needs the right DescribeConfigs on the topic";

let shown = null;
let chosen = null;
let picked = false; // by hand; else the newest one is chosen
let markMs = null;
let lastDrawn = "";

export function reset() {
  shown = null;
  chosen = null;
  picked = false;
  markMs = null;
  lastDrawn = "";
  replace(byId("chart"));
  replace(byId("segment"));
}

// Draws a line at the time that was asked for.
export function mark(ms) {
  markMs = ms;
  draw();
}

export function show(answer) {
  shown = answer;
  const { segments, segment_count: all, older, newer } = answer;
  const range = older || newer ? ` (${count(segments.length)} of ${count(all)} shown)` : "";
  const pinned = segments.filter((segment) => kindOf(segment) === "pinned").length;
  setText("segments-note", `${several(all, "segment")}${range}, ${offsetsFrom(answer.log_start_offset, answer.log_end_offset)}.`
    + (pinned ? ` ${several(pinned, "segment")} kept by times in the future.` : "")
    + (answer.caution ? ` ${answer.caution}` : ""));
  byId("older-segments").hidden = !older;
  byId("newest-segments").hidden = !newer;
  if (!picked || !segments.some((segment) => segment.base_offset === chosen)) {
    chosen = segments.length ? segments[segments.length - 1].base_offset : null;
  }
  draw();
}

// `end` is the offset after the last one.
function offsetsFrom(start, end) {
  return end > start ? `offsets ${count(start)} to ${count(end - 1)}` : "no messages";
}

export function shownSegments() {
  return shown?.segments ?? [];
}

function kindOf(segment) {
  if (segment.damage) return "damaged";
  if (segment.verdict === "expired") return "expired";
  if (segment.largest_ms !== null && segment.largest_ms > shown.now_ms) return "pinned";
  return segment.active ? "active" : "closed";
}

// From when to when the axis goes: where the messages are; now too if it is not far from them.
function domainOf(segments, now) {
  const times = segments.flatMap((segment) => {
    const from = segment.first_ms ?? segment.largest_ms;
    return from === null ? [] : [Math.min(from, segment.largest_ms, now), Math.min(segment.largest_ms, now)];
  });
  if (!times.length) return { start: now - 60000, end: now };
  const start = Math.min(...times);
  const latest = Math.max(...times);
  const length = Math.max(latest - start, 60000);
  const end = now - latest <= length ? now : latest;
  const ahead = segments.some((segment) => segment.largest_ms > now) ? 0.12 : 0.03;
  return { start: start - 0.02 * length, end: end + ahead * (end - start || length) };
}

export function draw() {
  if (!shown) return;
  const container = byId("chart");
  const width = Math.max(container.clientWidth, 200);
  const state = JSON.stringify([shown, chosen, markMs, width]);
  if (state === lastDrawn) return;
  lastDrawn = state;
  const { segments, now_ms: now } = shown;
  const label = width > 520 ? LABEL : 0;
  const row = segments.length <= 14 ? 24 : segments.length <= 40 ? 14 : 7;
  const domain = domainOf(segments, now);
  const x = (ms) => label + (width - label) * Math.min(Math.max((ms - domain.start) / (domain.end - domain.start), 0), 1);
  const height = AXIS + row * segments.length + FOOT;
  const { ticks, step } = ticksOf(domain, Math.max(Math.floor((width - label) / 96), 2));
  const names = tickNames(ticks, step);
  const parts = ticks.map((at, place) => svg("g", {},
    svg("line", { class: "grid", x1: x(at), x2: x(at), y1: AXIS - 4, y2: height }),
    x(at) < width - 70 ? names[place].map((name, line) => svg("text", { x: x(at) + 3, y: 12 + 13 * line }, name)) : null));
  segments.forEach((segment, number) => parts.push(drawSegment(segment, { y: AXIS + number * row, row, label, width, x, domain })));
  if (now >= domain.start && now <= domain.end) {
    parts.push(svg("line", { class: "now", x1: x(now), x2: x(now), y1: AXIS - 4, y2: height - 2 }),
      svg("text", { class: "now-label", x: x(now) + (x(now) < 60 ? 4 : -4), y: height - 3, "text-anchor": x(now) < 60 ? "start" : "end" }, "now"));
  }
  if (markMs !== null && markMs >= domain.start && markMs <= domain.end) {
    parts.push(svg("line", { class: "mark", x1: x(markMs), x2: x(markMs), y1: 0, y2: height }));
  }
  replace(container, svg("svg", {
    viewBox: `0 0 ${width} ${height}`, height, role: "group",
    "aria-label": `Segments on a time axis from ${time(domain.start)} to ${time(domain.end)}, UTC`,
  }, parts));
  showFacts();
}

function drawSegment(segment, { y, row, label, width, x, domain }) {
  const kind = kindOf(segment);
  const from = segment.first_ms ?? segment.largest_ms ?? segment.modified_ms;
  const to = segment.largest_ms ?? segment.modified_ms;
  const left = x(Math.min(from, to));
  const right = Math.max(x(to), left + 3);
  const middle = y + row / 2;
  const thick = Math.max(row - (row > 10 ? 10 : 2), 4);
  const is = segment.base_offset === chosen;
  const parts = [svg("rect", { class: "hit", x: 0, y, width, height: row, rx: 4 })];
  if (label && row > 10) parts.push(svg("text", { x: 4, y: middle + 4 }, count(segment.base_offset)));
  if (segment.expires_ms !== null && segment.verdict !== "expired" && segment.expires_ms > to) {
    parts.push(svg("line", { class: "expiry", x1: right, x2: x(segment.expires_ms), y1: middle, y2: middle }));
    if (segment.expires_ms < domain.end) {
      parts.push(svg("line", { class: "expiry-end", x1: x(segment.expires_ms), x2: x(segment.expires_ms), y1: middle - thick / 2, y2: middle + thick / 2 }));
    }
  }
  parts.push(svg("rect", { class: "bar", x: left, y: middle - thick / 2, width: right - left, height: thick, rx: Math.min(thick / 2, 4) }));
  if (to > domain.end && row > 10 && right - left > 90) parts.push(svg("text", { class: "beyond", x: width - 6, y: middle + 4, "text-anchor": "end" }, `${time(to).split(" ")[0]} ▸`));
  return svg("g", {
    class: `segment ${kind}`, role: "button", tabindex: is ? 0 : -1, "aria-pressed": String(is),
    "aria-label": nameOf(segment, kind), "data-key": String(segment.base_offset), "data-kind": kind,
    on: { click: () => open(segment.base_offset), keydown: onKey },
  }, parts);
}

function nameOf(segment, kind) {
  return `Segment ${segment.base_offset}, ${kind}, ${count(segment.next_offset - segment.base_offset)} offsets, `
    + `${time(segment.first_ms)} to ${time(segment.largest_ms)}`;
}

function choose(baseOffset) {
  chosen = baseOffset;
  picked = true;
  draw();
}

// The facts are below the chart, which may be higher than the window.
function open(baseOffset) {
  choose(baseOffset);
  byId("segment").scrollIntoView({ block: "nearest" });
}

const MOVES = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1, Home: -Infinity, End: Infinity, Enter: 0, " ": 0 };

function onKey(event) {
  const move = MOVES[event.key];
  if (move === undefined) return;
  event.preventDefault();
  const { segments } = shown;
  const now = segments.findIndex((segment) => String(segment.base_offset) === event.currentTarget.dataset.key);
  const next = segments[Math.min(Math.max(now + move, 0), segments.length - 1)].base_offset;
  open(next);
  const element = byId("chart").querySelector(`[data-key="${next}"]`);
  element?.focus({ preventScroll: true });
  element?.scrollIntoView({ block: "nearest" });
}

function showFacts() {
  const segment = shown.segments.find((candidate) => candidate.base_offset === chosen);
  if (!segment) return;
  const now = shown.now_ms;
  const largest = segment.largest_ms === null ? "no message has a time"
    : time(segment.largest_ms) + (segment.largest_offset === null ? "" : `, at offset ${count(segment.largest_offset)}`);
  const isHidden = shown.hidden.includes("expiry");
  const expires = isHidden ? HIDDEN : segment.expires_ms === null ? "never by time"
    : `${time(segment.expires_ms)}, ${segment.expires_ms > now ? `in ${span(segment.expires_ms - now)}` : `${span(now - segment.expires_ms)} ago`}`;
  const facts = [
    ["Offsets", offsetsFrom(segment.base_offset, segment.next_offset).replace("offsets ", "") + (segment.active ? ", active" : "")],
    ["Size", size(segment.size_bytes)],
    ["First time", time(segment.first_ms)], ["Largest time", largest],
    ["Expires", expires], ["Retention", isHidden ? HIDDEN : segment.reason],
  ];
  if (segment.damage) facts.push(["Damage", segment.damage]);
  replace(byId("segment"),
    html("dl", {}, facts.flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)])));
}

new ResizeObserver(() => draw()).observe(byId("chart"));
