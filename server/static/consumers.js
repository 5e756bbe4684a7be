// Named positions and their lag, in messages and in seconds.
//
// There is no time to catch up both where a consumer does not get closer and where its pace is not
// known yet, as with one that committed once: a dash says as much as is known.

import { ask } from "/static/api.js";
import { byId, html, replace, setText } from "/static/dom.js";
import { count, several, span, time } from "/static/format.js";

export async function load() {
  const answer = await ask("consumers");
  const { consumers } = answer;
  byId("consumers").hidden = !consumers.length && !answer.hidden;
  byId("lags").hidden = !consumers.length;
  replace(byId("lags").tBodies[0], consumers.map(rowOf));
  const left = answer.count - consumers.length + answer.left_out;
  setText("lags-note", [
    left ? `${count(left)} more are not shown.` : "",
    answer.hidden ? "Hidden: positions of groups or topics that you may not Describe." : "",
  ].join(" ").trim());
}

function secondsOf({ seconds, estimated }) {
  if (seconds === null) return "unknown";
  return (estimated ? "about " : "") + span(1000 * seconds);
}

function caughtUp({ messages, catch_up_seconds: seconds }) {
  if (!messages) return "at the end";
  return seconds === null ? "–" : span(1000 * seconds);
}

function rowOf(lag) {
  const cells = [
    ["", lag.name], ["", `${lag.topic}-${lag.partition}`],
    ["at", lag.offset === null ? "–" : count(lag.offset)],
    ["behind by", several(lag.messages, "message")], ["late by", secondsOf(lag)],
    ["caught up in", caughtUp(lag)],
  ];
  return html("tr", { "data-name": lag.name, title: `committed ${time(lag.commit_time_ms)}` },
    cells.map(([label, text], place) => html("td", {
      "data-label": label || null, class: place === 4 ? "behind" : null,
    }, text)));
}
