// All settings of the topic, with the place that gives each value.

import { ask, Refused } from "/static/api.js";
import { byId, html, replace, setText } from "/static/dom.js";
import { span } from "/static/format.js";

const SOURCES = { topic: "set for this topic", broker: "set for the broker", default: "default" };

let topic = null;
let mayDescribe = true;

export function select(name) {
  topic = name;
  byId("settings").open = false;
}

export function allow(may) {
  mayDescribe = may;
}

async function load() {
  const asked = topic;
  if (!byId("settings").open) return;
  replace(byId("settings-list"));
  setText("settings-note", mayDescribe ? "" : "Hidden: needs the right DescribeConfigs on the topic.");
  byId("settings-list").hidden = !mayDescribe;
  if (!mayDescribe) return;
  try {
    const { settings } = await ask("settings", { topic });
    if (asked === topic) replace(byId("settings-list"), settings.map(rowOf));
  } catch (error) {
    byId("settings-list").hidden = true;
    setText("settings-note", error instanceof Refused ? error.message : "The broker did not answer.");
  }
}

function rowOf({ name, value, source, default: normal }) {
  const length = /\.ms$/.test(name) && /^\d{4,15}$/.test(value) ? ` (${span(Number(value))})` : "";
  const where = source === "default" ? SOURCES.default : `${SOURCES[source]}; default ${normal || "empty"}`;
  return [html("dt", {}, name), html("dd", {}, html("b", {}, value || "empty"), `${length}, ${where}`)];
}

export function listen() {
  byId("settings").addEventListener("toggle", load);
}
