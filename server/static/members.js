// The brokers that have the same data: who leads, who follows, how far behind.

import { ask } from "/static/api.js";
import { byId, html, replace, setText } from "/static/dom.js";
import { several, span, time } from "/static/format.js";

const STATES = { leader: "leads", "in-sync": "in sync", "catching-up": "catches up", down: "down" };

export async function load() {
  const answer = await ask("members");
  const { members, hidden } = answer;
  byId("members").hidden = !members.length && !hidden;
  byId("members-hidden").hidden = !hidden;
  byId("brokers").hidden = hidden;
  if (!members.length) {
    setText("members-note", "");
    byId("members-problem").hidden = true;
    return;
  }
  replace(byId("brokers").tBodies[0], members.map((member) => rowOf(member, answer)));
  const leads = answer.leader === null ? "nobody leads" : `broker ${answer.leader} leads`;
  setText("members-note", `This is broker ${answer.broker}; ${leads}, epoch ${answer.epoch}.`);
  byId("members-problem").hidden = !answer.problem;
  setText("members-problem", answer.problem);
}

function rowOf(member, answer) {
  const since = member.since_ms === null ? "–" : time(member.since_ms);
  const messages = member.lag_messages === null ? "unknown" : several(member.lag_messages, "message");
  const cells = [
    ["", String(member.id)], ["", STATES[member.state] ?? member.state], ["at", member.address ?? "–"],
    ["behind by", messages], ["late by", member.lag_ms === null ? "unknown" : span(member.lag_ms)],
    ["since", since],
  ];
  const ago = member.since_ms === null ? null : `for ${span(answer.now_ms - member.since_ms)}`;
  return html("tr", { "data-broker": member.id, "data-state": member.state, title: ago },
    cells.map(([label, text], place) => html("td", {
      "data-label": label || null, class: place === 1 ? "role" : null,
    }, text)));
}
