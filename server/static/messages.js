// Messages of a partition, or of a window of time in all partitions. Keys and values are shown as
// text, whatever is in them.

import { note, numbers } from "/static/address.js";
import { ask } from "/static/api.js";
import { byId, html, replace, setText } from "/static/dom.js";
import { count, several, size, span, time } from "/static/format.js";

const LIMIT = 20;

// `window` is a stretch of time, `at` where its messages are shown from, and `earlier` from where
// they were shown before.
const NOTHING = { from: null, wanted: null, answer: null, seen: null, window: null, at: null, earlier: [] };
const view = { topic: null, partition: 0, ...NOTHING };

export function select(topic, partition) {
  Object.assign(view, { topic, partition, ...NOTHING });
  replace(byId("messages").tBodies[0]);
  setText("messages-note", "");
}

// Shows the messages that an address names.
export function restore(address) {
  const window = numbers(address, "window", 2);
  const at = numbers(address, "at", 2);
  const offset = numbers(address, "offset", 1);
  if (window) Object.assign(view, NOTHING, { window: { from: window[0], until: window[1] } });
  else Object.assign(view, NOTHING, { from: offset?.[0] ?? null, wanted: offset?.[0] ?? null });
  if (window && at) Object.assign(view, { at: { partition: at[0], offset: at[1] }, earlier: [null] });
}

function noteView() {
  const { window, at, from } = view;
  note({
    window: window && `${window.from}-${window.until}`, at: window && at && `${at.partition}-${at.offset}`,
    offset: window ? null : from,
  }, { step: true });
}

// Shows the messages from an offset on, which stays until the latest are asked for again.
export async function showFrom(offset) {
  Object.assign(view, NOTHING, { from: offset, wanted: offset });
  noteView();
  await load();
  showFirst();
}

// Shows the messages of all partitions whose time is in a window, and no others.
export async function showWindow(from, until) {
  Object.assign(view, NOTHING, { window: { from, until } });
  noteView();
  await load();
  showFirst();
}

// The title and the first message, at the top: more of them are below.
function showFirst() {
  const title = byId("messages-title");
  const first = byId("messages").tBodies[0].rows[0] ?? byId("messages-note");
  const seen = title.getBoundingClientRect().top >= 0 && first.getBoundingClientRect().bottom <= innerHeight;
  if (!seen) title.scrollIntoView({ block: "start" });
}

// Shows that the messages are there and hidden, and nothing of them.
export function hide() {
  Object.assign(view, NOTHING);
  replace(byId("messages").tBodies[0]);
  setText("messages-note", "Hidden: needs the right Read on the topic.");
  for (const id of ["older", "newer", "latest"]) byId(id).disabled = true;
}

// Follows the end; `appended` tells whether there can be anything new.
export async function follow(appended) {
  if ((view.from !== null || view.window) && view.answer) return;
  if (view.answer && view.seen === appended) return;
  view.seen = appended;
  await load();
}

async function load() {
  const { topic, partition, from, window, at } = view;
  const answer = window
    ? await ask("window", { topic, ...window, ...at, limit: LIMIT })
    : await ask("messages", { topic, partition, from, limit: LIMIT });
  if (topic !== view.topic || partition !== view.partition || from !== view.from) return;
  if (window !== view.window || at !== view.at) return;
  view.answer = answer;
  render();
}

export function valueOf(shown) {
  if (shown === null) return html("span", { class: "odd" }, "null");
  const more = shown.cut ? html("span", { class: "odd" }, ` … ${size(shown.bytes)}`) : null;
  if (shown.hex !== undefined) {
    return html("span", {}, html("bdi", { class: "hex", title: "bytes, in hexadecimal" }, shown.hex), more);
  }
  if (shown.text === "") return html("span", { class: "odd" }, "empty");
  return html("span", {}, html("bdi", {}, shown.text), more);
}

// Below the value, a line for each: most messages have none.
function headersOf({ headers, headers_left_out: left }) {
  const lines = headers.map(({ name, value }) => html("div", { class: "header" },
    html("bdi", {}, name), html("span", { class: "odd" }, " = "), valueOf(value)));
  if (left) lines.push(html("div", { class: "header odd" }, several(left, "more header")));
  return lines;
}

export function latencyOf(message) {
  if (message.append_time_ms === null || message.timestamp_ms === null) return "–";
  if (message.timestamp_type === "LogAppendTime") return "–";
  return span(message.append_time_ms - message.timestamp_ms);
}

function rowOf(message) {
  const appended = message.append_time_ms === null ? "append time unknown" : `appended ${time(message.append_time_ms)}`;
  return html("tr", { class: message.offset === view.wanted ? "wanted" : null, "data-offset": message.offset },
    html("td", {}, message.partition === undefined ? count(message.offset) : `${message.partition} : ${count(message.offset)}`),
    html("td", { title: `${message.timestamp_type ?? "no time"}; ${appended}` }, time(message.timestamp_ms)),
    html("td", {}, latencyOf(message)),
    html("td", {}, valueOf(message.key)),
    html("td", {}, valueOf(message.value), headersOf(message)));
}

function render() {
  const { answer } = view;
  const live = view.from === null && !view.window;
  const rows = answer.messages.map(rowOf);
  if (live) rows.reverse();
  replace(byId("messages").tBodies[0], rows);
  setText("messages-offset", view.window ? "Partition : offset" : "Offset");
  setText("messages-note", `${view.window ? whichOfWindow() : whichOfPartition(live)}. ${answer.problem}`.trim());
  if (view.window) {
    byId("older").disabled = !view.earlier.length;
    byId("newer").disabled = !answer.next;
  } else {
    byId("older").disabled = answer.from <= answer.log_start_offset;
    byId("newer").disabled = live || answer.next_offset === null || answer.next_offset >= answer.end_offset;
  }
  byId("latest").disabled = false;
  byId("latest").setAttribute("aria-pressed", String(live));
}

function whichOfPartition(live) {
  const { messages, log_start_offset: start, end_offset: end } = view.answer;
  if (!messages.length) return "Nothing to show here";
  return `${count(messages[0].offset)} to ${count(messages.at(-1).offset)} of ${count(start)} to ${count(end - 1)}`
    + (live ? ", newest first, live" : "");
}

function whichOfWindow() {
  const { answer, window, at } = view;
  const some = at || answer.next ? `${several(answer.messages.length, "message")} of those` : several(answer.messages.length, "message");
  return `${some} from ${time(window.from)} to before ${time(window.until)}, by partition and offset`;
}

export function listen(failed) {
  const go = (changes) => {
    Object.assign(view, changes);
    noteView();
    load().catch(failed);
  };
  byId("older").addEventListener("click", () => {
    const { answer, earlier } = view;
    if (!answer) return;
    if (view.window) go({ at: earlier.at(-1), earlier: earlier.slice(0, -1) });
    else go({ from: Math.max(answer.from - LIMIT, answer.log_start_offset) });
  });
  byId("newer").addEventListener("click", () => {
    const { answer, at, earlier } = view;
    if (!answer) return;
    if (view.window) go({ at: answer.next, earlier: [...earlier, at] });
    else go({ from: answer.next_offset });
  });
  byId("latest").addEventListener("click", () => go(NOTHING));
}
