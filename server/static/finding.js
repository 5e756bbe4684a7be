// "Which offset was it at ...?", and how that was found.

import { ask, Refused } from "/static/api.js";
import { valueOf } from "/static/detail.js";
import { byId, html, replace, setText } from "/static/dom.js";
import { count, goneSince, isoTime, size, time } from "/static/format.js";
import { showFrom } from "/static/messages.js";
import { mark, shownSegments } from "/static/segments.js";

let place = null;

export function select(topic, partition) {
  place = { topic, partition };
  replace(byId("found"));
  replace(byId("ideas"));
}

// An answer shows a message; a user who may not read the topic is told so before asking.
export function allow(mayRead) {
  setText("find-hidden", mayRead ? "" : "Hidden: an answer shows a message, which needs the right Read on the topic.");
  byId("find-hidden").hidden = mayRead;
  for (const control of byId("find").elements) control.disabled = !mayRead;
}

// Offers times that have an answer here.
export function suggest() {
  const times = shownSegments().filter((segment) => segment.largest_ms !== null);
  const ideas = ["@-5m", "@-1h", "@-1d"];
  if (times.length) {
    const middle = times[Math.floor(times.length / 2)];
    const from = middle.first_ms ?? middle.largest_ms;
    ideas.push(isoTime(Math.floor((Math.min(from, middle.largest_ms) + middle.largest_ms) / 2 / 1000) * 1000));
  }
  if (byId("ideas").textContent === ideas.join("")) return;
  replace(byId("ideas"), ideas.map((idea) => html("button", {
    type: "button", "data-key": idea, disabled: !byId("find-hidden").hidden, on: { click: () => { byId("at").value = idea; submit(); } },
  }, idea)));
}

export function listen() {
  byId("find").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
}

async function submit() {
  const asked = place;
  const at = byId("at").value.trim();
  if (!at) {
    byId("at").focus();
    return;
  }
  try {
    const answer = await ask("find", { ...asked, at, by: byId("by").value });
    if (asked !== place) return;
    if (answer.refused) refuse(answer.refused);
    else show(answer);
  } catch (error) {
    refuse(error instanceof Refused ? error.message : "The broker did not answer.");
  }
  byId("found").scrollIntoView({ block: "nearest" });
}

function refuse(text) {
  mark(null);
  replace(byId("found"), html("div", { class: "answer refused" }, text));
}

function show(answer) {
  const what = answer.by === "append" ? "appended then" : "of that time";
  mark(answer.target_ms);
  const asked = html("p", { class: "note" }, `${time(answer.target_ms)} UTC.${goneSince(answer.target_ms, answer, "partition")}`);
  if (answer.offset === null) {
    replace(byId("found"), html("div", { class: "answer" }, asked,
      html("p", {}, `No message is ${what} or later: the log ends at offset ${count(answer.end_offset)}.`), stepsOf(answer)));
    return;
  }
  replace(byId("found"), html("div", { class: "answer" }, asked,
    html("p", { class: "offset", id: "found-offset" }, `Offset ${count(answer.offset)}`),
    html("p", {}, `the first message ${what} or later: ${time(answer.timestamp_ms)}`),
    answer.message ? html("p", { class: "said" }, valueOf(answer.message.value)) : null,
    html("button", { type: "button", on: { click: () => showFrom(answer.offset) } }, "Show the messages from here"),
    stepsOf(answer)));
}

function stepsOf({ how, by }) {
  if (!how) {
    return html("ol", {}, html("li", {}, by === "append" ? "Found in the append times kept beside the log: they never fall." : ""));
  }
  const steps = [html("li", {}, html("b", {}, `${count(how.ruled_out)} of ${count(how.segments)} segments`),
    " ruled out by their largest times")];
  if (how.segment !== undefined) {
    steps.push(html("li", {}, "segment ", html("b", {}, count(how.segment)), ` reaches ${time(how.largest_ms)}`));
    steps.push(html("li", {}, how.entry
      ? ["time index, ", html("b", {}, `entry ${time(how.entry[0])} → ${count(how.entry[1])}`), ` of ${count(how.time_entries)}: nothing below offset ${count(how.entry[1])} is later than that`]
      : `time index, ${count(how.time_entries)} entries: none is earlier, so reading begins with the segment`));
    steps.push(html("li", {}, "from byte ", html("b", {}, count(how.start_byte)), `, ${size(how.read_bytes)} passed over to the message itself`));
  }
  return html("ol", { "aria-label": "How it was found" }, steps);
}
