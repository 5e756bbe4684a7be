// Groups with their members, named positions, and their lag in messages and in seconds.
//
// There is no time to catch up both where a consumer does not get closer and where its pace is not
// known yet, as with one that committed once: a dash says as much as is known.

import { ask } from "/static/api.js";
import { byId, html, replace, setText } from "/static/dom.js";
import { count, several, span, time } from "/static/format.js";

export async function load() {
  const answer = await ask("consumers");
  const { consumers } = answer;
  byId("consumers").hidden = !consumers.length && !answer.hidden && !answer.groups.length;
  showGroups(answer);
  byId("lags").hidden = !consumers.length;
  replace(byId("lags").tBodies[0], consumers.map(rowOf));
  const left = answer.count - consumers.length + answer.left_out;
  setText("lags-note", [
    left ? `${count(left)} more are not shown.` : "",
    answer.hidden ? "Hidden: positions of groups or topics that you may not Describe." : "",
  ].join(" ").trim());
}

const STATES = {
  Empty: "no members", Stable: "reads", PreparingRebalance: "rebalances", CompletingRebalance: "rebalances", Dead: "gone",
};

function showGroups({ groups, group_count: all }) {
  byId("groups").hidden = !groups.length;
  setText("groups-note", all > groups.length ? `${count(all - groups.length)} more groups are not shown.` : "");
  replace(byId("groups").tBodies[0], groups.map((group) => [
    cellsOf([
      ["", group.name], ["", STATES[group.state] ?? group.state], ["members", count(group.member_count)],
      ["positions", count(group.positions)], ["behind by", several(group.messages, "message")],
      ["late by", group.positions ? secondsOf(group) : "–"],
    ], { "data-group": group.name }),
    group.members.map((member) => memberOf(member)),
    group.member_count > group.members.length
      ? html("tr", { class: "member" }, html("td", { colspan: 6 }, `${count(group.member_count - group.members.length)} more members`)) : null,
  ]));
}

function memberOf(member) {
  const where = [member.client, member.host].filter(Boolean).join(" at ") || member.id;
  const more = member.partition_count - member.partitions.length;
  const has = member.partition_count ? `${member.partitions.join(", ")}${more ? ` and ${count(more)} more` : ""}` : "no partitions";
  return cellsOf([
    ["", where], ["", member.instance ? `static: ${member.instance}` : "member"], ["", has],
    ["positions", count(member.positions)], ["behind by", several(member.messages, "message")],
    ["late by", member.positions ? secondsOf(member) : "–"],
  ], { class: "member", "data-member": member.id, title: member.id });
}

function cellsOf(cells, attributes) {
  return html("tr", attributes, cells.map(([label, text], place) => html("td", {
    "data-label": label || null, class: place === 5 ? "behind" : null,
  }, text)));
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
