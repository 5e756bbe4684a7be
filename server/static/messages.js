// Messages of a partition, or of a window of time in all partitions. Keys and values are shown as
// text, whatever is in them.

import { note, numbers } from "/static/address.js";
import { ask, Refused } from "/static/api.js";
import { latencyOf, loadDetail, valueOf } from "/static/detail.js";
import { byId, html, replace, setText } from "/static/dom.js";
import { count, several, time } from "/static/format.js";

const LIMIT = 20;
const MOST_PARTS = 10; // of one page of messages

// `window` is a stretch of time, `at` where its messages are shown from, and `earlier` from where
// they were shown before; `found` has the matches of a search.
const NOTHING = { found: null, from: null, wanted: null, answer: null, seen: null, window: null, at: null, earlier: [] };
const NO_DETAIL = { key: null, row: null };
const view = { topic: null, partition: 0, ...NOTHING };

let detail = NO_DETAIL; // the message that is open, and the row that shows it
let otherView = () => {};

export function select(topic, partition) {
  Object.assign(view, { topic, partition, ...NOTHING });
  detail = NO_DETAIL;
  replace(byId("messages").tBodies[0]);
  setText("messages-note", "");
}

// Shows the messages that an address names; the latest if it names a window that ends before it begins.
export function restore(address) {
  const named = numbers(address, "window", 2);
  const window = named && named[0] <= named[1] ? named : null;
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

// Calls a function when something else than the matches of a search is shown.
export function onOtherView(call) {
  otherView = call;
}

// Shows the matches of a search, which may go on.
export function showFound(found, { begin = false } = {}) {
  Object.assign(view, NOTHING, { found, answer: { messages: found, problem: "" } });
  if (begin) note({ window: null, at: null, offset: null });
  render();
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
  if ((view.from !== null || view.window || view.found) && view.answer) return;
  if (view.answer && view.seen === appended) return;
  view.seen = appended;
  try {
    await load();
  } catch (error) {
    // A place that the topic does not have; all else is still shown.
    if (!view.window || !(error instanceof Refused) || ![400, 404].includes(error.status)) throw error;
    view.answer = { messages: [], next: null, problem: `${error.message}.` };
    render();
  }
}

// An answer may end early, with few messages or none: the work for each is bounded.
async function loadWindow(query) {
  let answer = await ask("window", { ...query, limit: LIMIT });
  for (let part = 1; part < MOST_PARTS && answer.next && !answer.problem && answer.messages.length < LIMIT; part += 1) {
    const { messages } = answer;
    const more = await ask("window", { ...query, ...answer.next, limit: LIMIT - messages.length });
    answer = { ...more, messages: [...messages, ...more.messages] };
  }
  return answer;
}

async function load() {
  const { topic, partition, from, window, at } = view;
  if (!view.found) otherView();
  const answer = window
    ? await loadWindow({ topic, ...window, ...at })
    : await ask("messages", { topic, partition, from, limit: LIMIT });
  if (topic !== view.topic || partition !== view.partition || from !== view.from) return;
  if (window !== view.window || at !== view.at || view.found) return;
  view.answer = answer;
  render();
}

// Below the value, a line for each: most messages have none.
function headersOf({ headers, headers_left_out: left }) {
  const lines = headers.map(({ name, value }) => html("div", { class: "header" },
    html("bdi", {}, name), html("span", { class: "odd" }, " = "), valueOf(value)));
  if (left) lines.push(html("div", { class: "header odd" }, several(left, "more header")));
  return lines;
}

function keyOf({ partition = view.partition, offset }) {
  return `${partition}-${offset}`;
}

// Opens a message below its row, or closes it.
async function toggle(message) {
  const key = keyOf(message);
  if (detail.key === key) {
    detail = NO_DETAIL;
    render();
    return;
  }
  const mine = { key, row: null };
  detail = mine;
  render();
  try {
    mine.row = await loadDetail(view.topic, message.partition ?? view.partition, message.offset);
  } catch (error) {
    mine.row = html("tr", { class: "opened" }, html("td", { colspan: 5 }, `The message could not be read: ${error.message}`));
  }
  if (detail !== mine) return;
  render();
  mine.row.scrollIntoView({ block: "nearest" });
}

function rowOf(message) {
  const appended = message.append_time_ms === null ? "append time unknown" : `appended ${time(message.append_time_ms)}`;
  const key = keyOf(message);
  return html("tr", {
    class: message.offset === view.wanted ? "wanted" : null, "data-offset": message.offset,
    on: { click: (event) => event.target.closest("button") || getSelection().toString() || toggle(message) },
  },
    html("td", {}, html("button", {
      type: "button", class: "open", "data-key": `message-${key}`, "aria-expanded": String(detail.key === key),
      title: "Show the whole message", on: { click: () => toggle(message) },
    }, message.partition === undefined ? count(message.offset) : `${message.partition} : ${count(message.offset)}`)),
    html("td", { title: `${message.timestamp_type ?? "no time"}; ${appended}` }, time(message.timestamp_ms)),
    html("td", {}, latencyOf(message)),
    html("td", {}, valueOf(message.key)),
    html("td", {}, valueOf(message.value), headersOf(message)));
}

function render() {
  const { answer } = view;
  const live = view.from === null && !view.window && !view.found;
  const shown = live ? answer.messages.toReversed() : answer.messages;
  replace(byId("messages").tBodies[0], shown.map((message) => [rowOf(message), detail.key === keyOf(message) ? detail.row : null]));
  setText("messages-offset", view.window || view.found ? "Partition : offset" : "Offset");
  const which = view.found ? "Matches of the search, by partition and offset" : view.window ? whichOfWindow() : whichOfPartition(live);
  setText("messages-note", `${which}. ${answer.problem}`.trim());
  if (view.found) {
    byId("older").disabled = true;
    byId("newer").disabled = true;
  } else if (view.window) {
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
