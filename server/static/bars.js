// Messages over time as bars, all partitions together: drag to look closer, click for the messages.

import { note, numbers } from "/static/address.js";
import { ask, Refused } from "/static/api.js";
import { stepOf, tickNames, ticksOf } from "/static/axis.js";
import { byId, html, replace, setText, svg } from "/static/dom.js";
import { count, goneSince, several, span, time } from "/static/format.js";
import { showWindow } from "/static/messages.js";

const AXIS = 34;
const HEIGHT = 120;
const FOOT = 16;
const DAY_MS = 86400000;
const LAST_MS = Number.MAX_SAFE_INTEGER;
const SHORTEST_MS = 10;
const MOST_BARS = 200;
const MOST_PARTS = 500; // of one count
const DRAG_PIXELS = 5;

const FRESH = { mayRead: true, maySeeRetention: true, whole: null, kind: "usual", range: null, before: [], answer: null, chosen: null, seen: null, trouble: "" };
const view = { topic: null, ...FRESH };
let asked = 0; // goes up when another count begins: what an older one brings is dropped then
let drag = null;
let lastDrawn = "";

export function select(topic) {
  asked += 1;
  drag = null;
  Object.assign(view, FRESH, { topic });
  setText("bars-note", "");
  setText("bar", "");
  replace(byId("bars"));
  lastDrawn = "";
}

// Shows the stretch of an address, and the bar whose messages it shows.
export function restore(address) {
  const [from, until] = [numbers(address, "from", 1)?.[0], numbers(address, "until", 1)?.[0]];
  const zoom = from !== undefined && until !== undefined && from < until;
  const named = ["all", "day"].find((kind) => kind === address.get("bars")) ?? "usual";
  const chosen = numbers(address, "window", 2)?.[0] ?? null;
  Object.assign(view, {
    kind: zoom ? "zoom" : named, range: zoom ? { from, until } : null, chosen, seen: null,
    before: zoom ? [{ kind: "usual", range: null }] : [],
  });
}

function noteStretch() {
  const { kind, range } = view;
  note({ bars: ["all", "day"].includes(kind) ? kind : null, from: range?.from, until: range?.until }, { step: true });
}

// The stretch that is shown; all times if none is.
export function shownStretch() {
  return view.answer ? { from: view.answer.from_ms, until: view.answer.until_ms } : {};
}

// Whether the user may read the messages behind the bars, and see when the retention time starts.
export function allow(mayRead, maySeeRetention) {
  Object.assign(view, { mayRead, maySeeRetention });
  showDownload();
}

// Counts again if `seen`, which tells what the topic has, is new.
export function follow(seen) {
  if (view.seen === seen) return null;
  view.seen = seen;
  return load();
}

// The sums of all parts of a count; `onPart` is given those so far.
async function gather(query, onPart) {
  const mine = asked;
  let sum = null;
  let next = {};
  for (let part = 0; next && part < MOST_PARTS; part += 1) {
    const answer = await ask("histogram", { topic: view.topic, ...query, ...next });
    if (mine !== asked) return null;
    sum = sum ? added(sum, answer) : answer;
    next = answer.next;
    onPart?.(sum);
  }
  return sum;
}

function added(sum, answer) {
  const least = (a, b) => (a === null ? b : b === null ? a : Math.min(a, b));
  return {
    ...answer,
    counts: sum.counts.map((number, place) => number + answer.counts[place]),
    first_ms: least(sum.first_ms, answer.first_ms),
    last_ms: sum.last_ms === null ? answer.last_ms : Math.max(sum.last_ms, answer.last_ms ?? 0),
    untimed: sum.untimed + answer.untimed,
    complete_from_ms: sum.complete_from_ms === null || answer.complete_from_ms === null ? null : Math.max(sum.complete_from_ms, answer.complete_from_ms),
    removed: [...sum.removed, ...answer.removed],
  };
}

async function load() {
  asked += 1;
  view.trouble = "";
  try {
    if (view.kind !== "zoom" || !view.whole) {
      const whole = await gather({});
      if (!whole) return;
      view.whole = whole;
    }
    const { from, until, bars } = rangeOf();
    await gather({ from, until, bars }, (answer) => {
      view.answer = answer;
      draw();
    });
  } catch (error) {
    // The poll shows that the broker does not answer at all.
    view.seen = null;
    if (error instanceof Refused) view.trouble = error.message;
    showNote();
  }
}

// The stretch to show, in bars of a round length.
function rangeOf() {
  const { first_ms: first, last_ms: last, now_ms: now } = view.whole;
  let range = view.range;
  if (view.kind === "day") range = { from: Math.max(now - DAY_MS, 0), until: now + 1 };
  else if (view.kind !== "zoom" && first === null) range = { from: Math.max(now - DAY_MS, 0), until: now + 1 };
  else if (view.kind !== "zoom") {
    const untilNow = view.kind === "usual" && first <= now && now < last;
    range = { from: first, until: (untilNow ? now : last) + 1 };
  }
  const from = Math.min(range.from, LAST_MS - SHORTEST_MS);
  const until = Math.min(Math.max(range.until, from + SHORTEST_MS), LAST_MS);
  const most = Math.min(Math.max(Math.floor(byId("bars").clientWidth / 9), 20), MOST_BARS);
  const step = stepOf(until - from, most - 2);
  const start = Math.floor(from / step) * step;
  const end = Math.min(Math.ceil(until / step) * step, LAST_MS);
  return { from: start, until: end, bars: Math.ceil((end - start) / step) };
}

function go(kind, range = null) {
  if (kind === "zoom") view.before = [...view.before, { kind: view.kind, range: view.range }];
  else view.before = [];
  Object.assign(view, { kind, range, chosen: null });
  noteStretch();
  load();
}

function out() {
  const last = view.before.at(-1);
  if (!last) return;
  Object.assign(view, last, { before: view.before.slice(0, -1), chosen: null });
  noteStretch();
  load();
}

function barsOf({ counts, from_ms: from, until_ms: until, every_ms: every, now_ms: now, retention_start_ms: kept }) {
  return counts.map((number, place) => {
    const begin = from + place * every;
    const end = Math.min(begin + every, until);
    const kind = begin > now ? "ahead" : kept !== null && end <= kept ? "past" : "kept";
    return { number, begin, end, kind };
  });
}

function showNote() {
  const { whole, answer, trouble } = view;
  for (const kind of ["usual", "all", "day"]) byId(`bars-${kind}`).setAttribute("aria-pressed", String(view.kind === kind));
  byId("bars-out").disabled = !view.before.length;
  if (!whole || !answer || trouble) {
    setText("bars-note", trouble ? `It could not be counted: ${trouble}` : "");
    return;
  }
  const shown = answer.counts.reduce((a, b) => a + b, 0);
  const others = whole.counts[0] - shown;
  setText("bars-note", `${several(shown, "message")} from ${time(answer.from_ms)} to before ${time(answer.until_ms)} UTC, in bars of ${span(answer.every_ms)}.`
    + (others > 0 && !answer.next ? ` ${several(others, "message")} of other times.` : "")
    + (whole.untimed ? ` ${several(whole.untimed, "message")} without a time.` : "")
    + goneSince(answer.from_ms, answer, "topic")
    + (answer.next ? " Counting goes on." : "")
    + (view.maySeeRetention ? "" : " The retention start is hidden: needs the right DescribeConfigs on the topic."));
}

export function draw() {
  if (!view.answer || drag) return;
  showNote();
  const { answer } = view;
  const container = byId("bars");
  const width = Math.max(container.clientWidth, 200);
  const state = JSON.stringify([answer, view.chosen, width]);
  if (state === lastDrawn) return;
  lastDrawn = state;
  const bars = barsOf(answer);
  const filled = bars.filter((bar) => bar.number);
  if (!filled.some((bar) => bar.begin === view.chosen)) view.chosen = null;
  showDownload();
  const { from_ms: start, until_ms: end } = answer;
  const x = (ms) => width * (ms - start) / (end - start);
  const bottom = AXIS + HEIGHT;
  const most = Math.max(...answer.counts, 1);
  const { ticks, step } = ticksOf({ start, end }, Math.max(Math.floor(width / 96), 2));
  const names = tickNames(ticks, step);
  const parts = ticks.map((at, place) => svg("g", {},
    svg("line", { class: "grid", x1: x(at), x2: x(at), y1: AXIS - 4, y2: bottom }),
    x(at) < width - 70 ? names[place].map((name, line) => svg("text", { x: x(at) + 3, y: 12 + 13 * line }, name)) : null));
  parts.push(svg("line", { class: "grid", x1: 0, x2: width, y1: bottom, y2: bottom }));
  filled.forEach((bar, place) => parts.push(drawBar(bar, { x, most, bottom, first: place === 0 })));
  parts.push(...lineAt(answer.now_ms, "now", "now", { x, width, bottom }));
  if (answer.retention_start_ms !== null) parts.push(...lineAt(answer.retention_start_ms, "kept-from", "retention start", { x, width, bottom }));
  const focused = container.contains(document.activeElement);
  replace(container, svg("svg", {
    viewBox: `0 0 ${width} ${bottom + FOOT}`, height: bottom + FOOT, role: "group",
    "aria-label": `Messages in time from ${time(start)} to ${time(end)}, UTC; the highest bar has ${count(most)}`,
    on: { pointerdown: beginDrag, pointermove: goOnDragging, pointerup: endDrag, pointercancel: dropDrag },
  }, parts));
  // The bar that the keyboard was on need not be there any more, or another one was chosen or comes first.
  if (focused && document.activeElement.getAttribute("tabindex") !== "0") container.querySelector('[tabindex="0"]')?.focus({ preventScroll: true });
  if (!filled.length) container.append(html("p", { class: "note" }, "No message has a time in this stretch."));
}

function lineAt(ms, kind, text, { x, width, bottom }) {
  const at = x(ms);
  if (at < 0 || at > width) return [];
  const left = at < 100;
  return [
    svg("line", { class: kind, x1: at, x2: at, y1: AXIS - 4, y2: bottom + FOOT - 2 }),
    svg("text", { class: kind === "now" ? "now-label" : null, x: at + (left ? 4 : -4), y: bottom + FOOT - 4, "text-anchor": left ? "start" : "end" }, text),
  ];
}

function drawBar(bar, { x, most, bottom, first }) {
  const left = x(bar.begin);
  const wide = x(bar.end) - left;
  const high = Math.max(HEIGHT * bar.number / most, 2);
  const is = view.chosen === bar.begin;
  return svg("g", {
    class: `count ${bar.kind}`, role: "button", tabindex: is || (view.chosen === null && first) ? 0 : -1, "aria-pressed": String(is),
    "aria-label": nameOf(bar), "data-key": `bar-${bar.begin}`, "data-kind": bar.kind, "data-count": bar.number,
    on: { click: () => drag || open(bar), keydown: (event) => onKey(event, bar) },
  },
  svg("rect", { class: "hit", x: left, y: AXIS, width: wide, height: HEIGHT }),
  svg("rect", { class: "bar", x: left, y: bottom - high, width: wide > 3 ? wide - 1 : wide, height: high }),
  svg("title", {}, nameOf(bar)));
}

const KINDS = { past: ", late", ahead: ", early", kept: "" };

function nameOf({ number, begin, end, kind }) {
  return `${several(number, "message")} from ${time(begin)} to before ${time(end)}${KINDS[kind]}`;
}

// The messages of the chosen bar as a file, else those of all bars.
function showDownload() {
  const { answer, chosen, mayRead, topic } = view;
  const link = byId("download");
  link.hidden = !answer || !mayRead;
  if (link.hidden) return;
  const bar = barsOf(answer).find(({ begin }) => begin === chosen);
  const [from, until] = bar ? [bar.begin, bar.end] : [answer.from_ms, answer.until_ms];
  link.setAttribute("href", `/page/download?${new URLSearchParams({ topic, from, until })}`);
  setText("download", `Download the messages of ${bar ? "this bar" : "these bars"} as JSON lines`);
}

function choose(bar) {
  view.chosen = bar.begin;
  setText("bar", `${nameOf(bar)}.`);
  draw();
}

function open(bar) {
  choose(bar);
  if (!view.mayRead) {
    setText("bar", `${nameOf(bar)}. Hidden: needs the right Read on the topic.`);
    return;
  }
  showWindow(bar.begin, bar.end).catch((error) => setText("bar", `The messages could not be read: ${error.message}`));
}

const MOVES = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };

function onKey(event, bar) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const move = MOVES[event.key];
  const length = bar.end - bar.begin;
  if (move !== undefined) {
    const filled = barsOf(view.answer).filter((other) => other.number);
    const now = filled.findIndex((other) => other.begin === bar.begin);
    const next = filled[Math.min(Math.max(now + move, 0), filled.length - 1)];
    choose(next);
    byId("bars").querySelector(`[data-key="bar-${next.begin}"]`)?.focus({ preventScroll: true });
    byId("bars").scrollIntoView({ block: "nearest" });
  } else if (event.key === "Enter" || event.key === " ") open(bar);
  else if (event.key === "+" || event.key === "=") go("zoom", { from: Math.max(bar.begin - 2 * length, 0), until: bar.end + 2 * length });
  else if (event.key === "-") out();
  else return;
  event.preventDefault();
}

function placeOf(event) {
  const box = event.currentTarget.getBoundingClientRect();
  return Math.min(Math.max(event.clientX - box.left, 0), box.width);
}

function beginDrag(event) {
  if (event.button !== 0) return;
  drag = null;
  event.currentTarget.dataset.from = placeOf(event);
}

// It is a drag, and no click, once it has gone some way.
function goOnDragging(event) {
  const chart = event.currentTarget;
  if (chart.dataset.from === undefined) return;
  const from = Number(chart.dataset.from);
  const to = placeOf(event);
  if (!drag) {
    if (Math.abs(to - from) < DRAG_PIXELS) return;
    drag = svg("rect", { class: "drawn", y: AXIS, height: HEIGHT });
    chart.append(drag);
    chart.setPointerCapture(event.pointerId);
  }
  drag.setAttribute("x", Math.min(from, to));
  drag.setAttribute("width", Math.abs(to - from));
}

function endDrag(event) {
  const chart = event.currentTarget;
  const [from, to] = [Number(chart.dataset.from), placeOf(event)].sort((a, b) => a - b);
  const dragged = drag !== null;
  dropDrag(event);
  if (!dragged) return;
  const { from_ms: start, until_ms: end } = view.answer;
  const at = (place) => start + (end - start) * place / chart.viewBox.baseVal.width;
  go("zoom", { from: Math.floor(at(from)), until: Math.ceil(at(to)) });
}

function dropDrag(event) {
  delete event.currentTarget.dataset.from;
  drag?.remove();
  drag = null;
}

export function listen() {
  for (const kind of ["usual", "all", "day"]) byId(`bars-${kind}`).addEventListener("click", () => go(kind));
  byId("bars-out").addEventListener("click", out);
}

new ResizeObserver(() => draw()).observe(byId("bars"));
