// Messages of a partition. Keys and values are shown as text, whatever is in them.

import { ask } from "/static/api.js";
import { byId, html, replace, setText } from "/static/dom.js";
import { count, several, size, span, time } from "/static/format.js";

const LIMIT = 20;

const view = { topic: null, partition: 0, from: null, wanted: null, answer: null, seen: null };

export function select(topic, partition) {
  Object.assign(view, { topic, partition, from: null, wanted: null, answer: null, seen: null });
  replace(byId("messages").tBodies[0]);
  setText("messages-note", "");
}

// Shows the messages from an offset on, which stays until somebody asks for the latest again.
export async function showFrom(offset) {
  view.from = offset;
  view.wanted = offset;
  await load();
  byId("messages-title").scrollIntoView({ block: "nearest" });
}

// Follows the end; `appended` tells whether there can be anything new.
export async function follow(appended) {
  if (view.from !== null && view.answer) return;
  if (view.answer && view.seen === appended) return;
  view.seen = appended;
  await load();
}

async function load() {
  const { topic, partition, from } = view;
  const answer = await ask("messages", { topic, partition, from, limit: LIMIT });
  if (topic !== view.topic || partition !== view.partition || from !== view.from) return;
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
    html("td", {}, count(message.offset)),
    html("td", { title: `${message.timestamp_type ?? "no time"}; ${appended}` }, time(message.timestamp_ms)),
    html("td", {}, latencyOf(message)),
    html("td", {}, valueOf(message.key)),
    html("td", {}, valueOf(message.value), headersOf(message)));
}

function render() {
  const { answer } = view;
  const live = view.from === null;
  const rows = answer.messages.map(rowOf);
  if (live) rows.reverse();
  replace(byId("messages").tBodies[0], rows);
  const last = answer.messages.at(-1);
  const which = last
    ? `${count(answer.messages[0].offset)} to ${count(last.offset)} of ${count(answer.log_start_offset)} to ${count(answer.end_offset - 1)}${live ? ", newest first, live" : ""}`
    : "Nothing to show here";
  setText("messages-note", `${which}. ${answer.problem}`.trim());
  byId("older").disabled = answer.from <= answer.log_start_offset;
  byId("newer").disabled = live || answer.next_offset === null || answer.next_offset >= answer.end_offset;
  byId("latest").setAttribute("aria-pressed", String(live));
}

export function listen(failed) {
  const go = (from) => {
    view.from = from;
    load().catch(failed);
  };
  byId("older").addEventListener("click", () => view.answer && go(Math.max(view.answer.from - LIMIT, view.answer.log_start_offset)));
  byId("newer").addEventListener("click", () => view.answer && go(view.answer.next_offset));
  byId("latest").addEventListener("click", () => {
    view.wanted = null;
    go(null);
  });
}
