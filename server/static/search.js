// Search for a text in the messages of the stretch that the bars show, part by part.

import { ask } from "/static/api.js";
import { shownStretch } from "/static/bars.js";
import { byId, setText } from "/static/dom.js";
import { count, several, size, time } from "/static/format.js";
import { onOtherView, showFound } from "/static/messages.js";

const LIMIT = 20;

let topic = null;
let running = null; // ends the request in progress
let last = null;

export function select(name) {
  topic = name;
  stop();
  last = null;
  setText("search-note", "");
  showButtons();
}

export function allow(mayRead) {
  for (const control of byId("search").elements) control.disabled = !mayRead;
  if (mayRead) showButtons();
}

function showButtons() {
  byId("search-stop").disabled = !running;
  byId("search-on").hidden = Boolean(running) || !last?.next;
}

function stop() {
  running?.abort();
  running = null;
}

function begin() {
  const text = byId("search-text").value;
  if (!text) {
    byId("search-text").focus();
    return;
  }
  const stretch = shownStretch();
  last = { query: { topic, ...stretch, text, in: byId("search-in").value }, next: {}, found: [], looked: 0, bytes: 0, ended: "", passed: "" };
  goOn();
}

async function goOn() {
  stop();
  const search = last;
  const mine = new AbortController();
  running = mine;
  showButtons();
  const wanted = search.found.length + LIMIT;
  search.ended = "";
  showFound(search.found, { begin: true });
  try {
    while (search.next && search.found.length < wanted && !search.ended) {
      showProgress(search, true);
      const answer = await ask("window", { ...search.query, ...search.next, limit: wanted - search.found.length }, mine.signal);
      search.found.push(...answer.messages);
      search.looked += answer.looked;
      search.bytes += answer.read_bytes;
      search.ended = stuck(search.next, answer.next) ? answer.problem : "";
      search.passed ||= search.ended ? "" : answer.problem;
      search.next = answer.next;
      if (running !== mine) return;
      showFound(search.found);
    }
  } catch (error) {
    if (!mine.signal.aborted) search.ended = error.message;
  }
  if (running !== mine && running) return;
  running = null;
  showProgress(search, false, mine.signal.aborted);
  showButtons();
}

function stuck(before, next) {
  return Boolean(next) && before.partition === next.partition && before.offset === next.offset;
}

function showProgress(search, goesOn, stopped = false) {
  if (search !== last) return;
  const { query, next, found, looked, bytes, ended, passed } = search;
  const range = query.from === undefined ? "of all times" : `from ${time(query.from)} to before ${time(query.until)}`;
  const place = next?.partition === undefined ? "" : `, up to partition ${next.partition}, offset ${count(next.offset)}`;
  const how = goesOn ? "Searching" : stopped ? "Stopped" : ended ? `Ended early (${ended})` : next ? "More may follow" : "Searched to the end";
  setText("search-note", `${several(found.length, "match").replace("matchs", "matches")}. ${how}: looked at ${several(looked, "message")} ${range}, read ${size(bytes)}${place}.${passed && ` Not searched: ${passed}.`}`);
}

export function listen() {
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    begin();
  });
  byId("search").addEventListener("keydown", (event) => event.key === "Escape" && running && end());
  byId("search-stop").addEventListener("click", end);
  byId("search-on").addEventListener("click", goOn);
  onOtherView(() => {
    if (running) end();
    last = null;
    setText("search-note", "");
    showButtons();
  });
}

function end() {
  running?.abort();
}
