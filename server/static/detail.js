// One message in full: both times, every header, key and value.

import { ask } from "/static/api.js";
import { html } from "/static/dom.js";
import { count, several, size, span, time } from "/static/format.js";

const KINDS = { CreateTime: "set by the producer", LogAppendTime: "set by the broker on append" };

export function valueOf(shown) {
  if (shown === null) return html("span", { class: "odd" }, "null");
  const more = shown.cut ? html("span", { class: "odd" }, ` … ${size(shown.bytes)}`) : null;
  if (shown.hex !== undefined) {
    return html("span", {}, html("bdi", { class: "hex", title: "bytes, in hexadecimal" }, shown.hex), more);
  }
  if (shown.text === "") return html("span", { class: "odd" }, "empty");
  return html("span", {}, html("bdi", {}, shown.text), more);
}

export function latencyOf(message) {
  if (message.append_time_ms === null || message.timestamp_ms === null) return "–";
  if (message.timestamp_type === "LogAppendTime") return "–";
  return span(message.append_time_ms - message.timestamp_ms);
}

// The message at an offset as a row below its own; null if it is gone.
export async function loadDetail(topic, partition, offset) {
  const answer = await ask("messages", { topic, partition, from: offset, whole: 1 });
  const message = answer.messages.find((one) => one.offset === offset);
  return html("tr", { class: "opened", "data-detail": offset },
    html("td", { colspan: 5 }, message ? factsOf(message, topic, partition) : html("p", { class: "note" }, `The message is not there any more. ${answer.problem}`)));
}

function factsOf(message, topic, partition) {
  const sizeOf = (shown) => (shown === null ? "" : ` (${size(shown.bytes)})`);
  const headers = message.headers.map(({ name, value }) => html("div", { class: "header" },
    html("bdi", {}, name), html("span", { class: "odd" }, " = "), valueOf(value)));
  if (message.headers_left_out) headers.push(html("div", { class: "odd" }, several(message.headers_left_out, "more header")));
  const kind = KINDS[message.timestamp_type] ?? "";
  const facts = [
    ["Place", `${topic}, partition ${partition}, offset ${count(message.offset)}`],
    ["Message time", `${withZone(message.timestamp_ms)}${kind && `, ${kind}`}`],
    ["Append time", message.append_time_ms === null ? "unknown" : withZone(message.append_time_ms)],
    ["Latency", latencyOf(message)],
    [`Headers (${count(message.headers.length + message.headers_left_out)})`, headers.length ? headers : html("span", { class: "odd" }, "none")],
    [`Key${sizeOf(message.key)}`, valueOf(message.key)], [`Value${sizeOf(message.value)}`, valueOf(message.value)],
  ];
  return html("dl", {}, facts.map(([name, content]) => [html("dt", {}, name), html("dd", {}, content)]));
}

function withZone(ms) {
  return ms === null ? "none" : `${time(ms)} UTC (${ms})`;
}
