// The page: one poll after the other, and what was chosen.

import * as address from "/static/address.js";
import { ask, logOut, Poller, Refused } from "/static/api.js";
import * as bars from "/static/bars.js";
import * as consumers from "/static/consumers.js";
import { byId, html, replace, setText } from "/static/dom.js";
import * as finding from "/static/finding.js";
import { count, rate, several, size, span, time } from "/static/format.js";
import * as latency from "/static/latency.js";
import * as members from "/static/members.js";
import * as messages from "/static/messages.js";
import * as search from "/static/search.js";
import * as segments from "/static/segments.js";
import * as settings from "/static/settings.js";
import * as topics from "/static/topics.js";

const EVERY_MS = 2000;
const SEGMENTS_EVERY = 3;
const CONSUMERS_EVERY = 2;
const BARS_EVERY = 5;
const MOST_PAGES = 10;

const state = {
  place: null, topic: null, answer: null, user: null, pages: 1, polls: 0,
  before: null, segmentsPoll: -SEGMENTS_EVERY, barsPoll: -BARS_EVERY, last: new Map(), rates: new Map(), totals: null, lastMs: null,
};

async function poll() {
  await loadTopics();
  const { topic, place } = state;
  let counted = null;
  const work = state.polls % CONSUMERS_EVERY === 0 ? [consumers.load()] : [];
  if (work.length && !state.answer.alone) work.push(members.load());
  state.polls += 1;
  if (topic) {
    latency.show(topic, state.answer.latency_buckets_ms, state.answer.latency_window_ms);
    work.push(showContent(topic));
    if (state.polls - state.segmentsPoll >= SEGMENTS_EVERY) work.push(loadSegments(place));
    if (state.polls - state.barsPoll >= BARS_EVERY) {
      state.barsPoll = state.polls;
      counted = bars.follow(`${topic.messages} ${topic.appended}`);
    }
  }
  await Promise.all(work);
  if (topic) Promise.resolve(counted).then(address.scrollBack);
}

// Messages, and what shows them, as far as the user may read the topic.
async function showContent(topic) {
  const maySeeSettings = !topic.hidden.includes("settings");
  settings.allow(maySeeSettings);
  const mayRead = !topic.hidden.includes("messages");
  finding.allow(mayRead);
  bars.allow(mayRead, maySeeSettings);
  search.allow(mayRead);
  if (mayRead) await messages.follow(`${topic.messages} ${topic.appended}`);
  else messages.hide();
}

async function loadSegments(place) {
  state.segmentsPoll = state.polls;
  const answer = await ask("segments", { ...place, before: state.before });
  if (place !== state.place) return;
  segments.show(answer);
  finding.suggest();
}

async function loadTopics() {
  const like = byId("filter").value.trim();
  const found = [];
  let answer;
  let after = "";
  for (let page = 0; page < state.pages; page += 1) {
    answer = await ask("topics", { like, after, totals: page ? 0 : 1 });
    found.push(...answer.topics);
    if (answer.totals) noteTotals(answer);
    after = answer.next;
    if (!after) break;
  }
  if (like !== byId("filter").value.trim()) return;
  state.answer = answer;
  measure(found, answer.now_ms);
  byId("more").hidden = !answer.next || state.pages >= MOST_PAGES;
  if (!state.place && found.length) choose({ topic: found[0].name, partition: 0 });
  state.topic = await chosenOf(found);
  if (state.topic && state.place.partition >= state.topic.partitions) choose({ topic: state.topic.name, partition: 0 });
  topics.show(found, state.rates, state.place?.topic);
  showUser(answer.user);
  showTiles(answer);
  showMissing(answer);
  byId("detail").hidden = !state.topic;
  if (state.topic) showHead();
}

// Why no topic is shown, if none is.
function showMissing({ topic_count: all, limited }) {
  const nothing = !all && limited;
  const gone = Boolean(state.place) && !state.topic && all > 0;
  byId("empty").hidden = all > 0 || limited;
  byId("missing").hidden = !nothing && !gone;
  const hidden = limited ? ", or you may not Describe it" : "";
  if (gone) setText("missing", `There is no topic ${state.place.topic} (any more)${hidden}.`);
  if (nothing) setText("missing", "There is no topic that you may Describe.");
}

// Another user, who logged in elsewhere in this browser, begins with a page of their own.
function showUser(user) {
  if (state.user && state.user.principal !== user?.principal) location.reload();
  state.user = user;
  byId("user").hidden = !user;
  byId("logout").hidden = !user?.has_session;
  if (!user) return;
  setText("user", user.name);
  byId("user").title = user.principal;
}

// The chosen topic need not be among those that are listed.
async function chosenOf(found) {
  if (!state.place) return null;
  const name = state.place.topic;
  const listed = found.find((topic) => topic.name === name);
  if (listed) return listed;
  const answer = await ask("topics", { name });
  const topic = answer.topics[0] ?? null;
  if (topic) latency.note(name, topic.latency_counts, answer.now_ms);
  return topic;
}

function measure(found, nowMs) {
  const seconds = state.lastMs === null ? 0 : (nowMs - state.lastMs) / 1000;
  for (const topic of found) {
    latency.note(topic.name, topic.latency_counts, nowMs);
    const before = state.last.get(topic.name);
    if (seconds > 0 && before !== undefined) {
      state.rates.set(topic.name, Math.max(topic.appended - before, 0) / seconds);
    }
    state.last.set(topic.name, topic.appended);
  }
  const names = new Set(found.map((topic) => topic.name));
  if (state.place) names.add(state.place.topic);
  latency.forgetAllBut(names);
  for (const name of state.last.keys()) {
    if (!names.has(name)) {
      state.last.delete(name);
      state.rates.delete(name);
    }
  }
  state.lastMs = nowMs;
}

// Of all topics that the user may see, whatever the filter is.
function noteTotals({ totals, now_ms: now }) {
  const before = state.totals;
  const seconds = before ? (now - before.now) / 1000 : 0;
  const perSecond = seconds > 0 ? Math.max(totals.appended - before.appended, 0) / seconds : null;
  state.totals = { ...totals, now, perSecond: perSecond ?? before?.perSecond ?? null };
}

function showTiles(answer) {
  const { messages: most, size_bytes: bytes, part, perSecond } = state.totals;
  const more = part ? "+" : "";
  byId("topics-note").hidden = !answer.limited;
  setText("tile-topics-name", answer.limited ? "Your topics" : "Topics");
  setText("tile-topics", count(answer.topic_count));
  setText("tile-messages", count(most) + more);
  setText("tile-bytes", size(bytes) + more);
  setText("tile-rate", rate(perSecond));
  setText("kernel", `Kernel: ${answer.kernel}.`);
}

function limit(value, format) {
  if (value === undefined) return "unknown";
  return value < 0 ? "no limit" : format(value);
}

function settingsOf(topic) {
  if (topic.hidden.includes("settings")) return [["settings", "hidden: needs the right DescribeConfigs on the topic"]];
  return [
    ["time", topic.timestamp_type ?? "unknown"], ["kept for", limit(topic.retention_ms, span)],
    ["kept up to", limit(topic.retention_bytes, size)], ["segments of", limit(topic.segment_bytes, size)],
    ["or", limit(topic.segment_ms, span)],
  ];
}

function showHead() {
  const { topic, place } = state;
  setText("detail-title", topic.name);
  document.title = `${topic.name} - Horolog`;
  const select = byId("partition");
  if (select.options.length !== topic.partitions) {
    select.replaceChildren(...Array.from({ length: topic.partitions }, (_, number) => html("option", { value: number }, String(number))));
  }
  if (document.activeElement !== select) select.value = String(place.partition);
  const chips = settingsOf(topic);
  if (topic.rejected) chips.push(["refused", several(topic.rejected, "message")]);
  replace(byId("chips"), chips.map(([name, value]) => html("li", {}, `${name} `, html("b", {}, value))));
  const problem = topic.problem || (topic.damaged_segments ? `${several(topic.damaged_segments, "damaged segment")}: stop the broker and run horolog repair.` : "");
  byId("problem").hidden = !problem;
  setText("problem", problem);
}

function choose(place, view = new URLSearchParams()) {
  if (state.place && state.place.topic === place.topic && state.place.partition === place.partition) return;
  if (state.place?.topic !== place.topic) {
    bars.select(place.topic);
    search.select(place.topic);
    settings.select(place.topic);
    state.barsPoll = state.polls - BARS_EVERY;
  }
  state.place = place;
  state.before = null;
  state.segmentsPoll = state.polls - SEGMENTS_EVERY;
  segments.reset();
  finding.select(place.topic, place.partition);
  messages.select(place.topic, place.partition);
  address.take({ place, view });
  restore(view);
}

// Shows what an address holds, and scrolls to its position once that is there.
function restore(view) {
  bars.restore(view);
  messages.restore(view);
  state.barsPoll = state.polls - BARS_EVERY;
  address.restoreScroll(address.numbers(view, "y", 1)?.[0] ?? null);
}

function onState(error) {
  const element = byId("state");
  const late = poller.failures > 0;
  element.className = late ? "lost" : poller.paused ? "" : "live";
  const clock = state.answer ? `${time(state.answer.now_ms).slice(11, 19)} UTC` : "";
  setText("state", late ? `no answer: ${error.message}` : poller.paused ? `paused at ${clock}` : clock);
}

const poller = new Poller(poll, EVERY_MS, onState);

function again() {
  state.segmentsPoll = state.polls - SEGMENTS_EVERY;
  poller.poke();
}

function pause() {
  const button = byId("pause");
  const paused = button.getAttribute("aria-pressed") !== "true";
  button.setAttribute("aria-pressed", String(paused));
  poller.pause(paused);
  onState(null);
}

async function endSession() {
  const button = byId("logout");
  button.disabled = true;
  try {
    await logOut();
  } catch (error) {
    button.disabled = false;
    byId("logout-problem").hidden = false;
    setText("logout-problem", `Not logged out: ${error instanceof Refused ? error.message : "the broker did not answer"}`);
  }
}

const SHORTCUTS = { "/": () => byId("filter").focus(), t: () => byId("at").focus(), s: () => byId("search-text").focus(), p: pause };

function listen() {
  bars.listen();
  finding.listen();
  messages.listen(onState);
  search.listen();
  settings.listen();
  byId("pause").addEventListener("click", pause);
  byId("logout").addEventListener("click", endSession);
  byId("filter").addEventListener("input", () => {
    state.pages = 1;
    poller.poke();
  });
  byId("more").addEventListener("click", () => {
    state.pages += 1;
    poller.poke();
  });
  byId("partition").addEventListener("change", (event) => {
    location.hash = address.addressOf(state.place.topic, Number(event.target.value), address.stretch());
  });
  byId("older-segments").addEventListener("click", () => {
    state.before = segments.shownSegments()[0].base_offset;
    again();
  });
  byId("newest-segments").addEventListener("click", () => {
    state.before = null;
    again();
  });
  addEventListener("hashchange", () => {
    const found = address.parse(location.hash);
    if (!found) return;
    const { place, view } = found;
    if (state.place?.topic === place.topic && state.place.partition === place.partition) {
      address.take(found);
      restore(view);
    } else choose(place, view);
    again();
  });
  addEventListener("keydown", (event) => {
    const writing = event.target.closest("input, select, textarea");
    if (writing || event.ctrlKey || event.metaKey || event.altKey || !SHORTCUTS[event.key]) return;
    event.preventDefault();
    SHORTCUTS[event.key]();
  });
}

listen();
address.listen();
const first = address.parse(location.hash);
if (first) choose(first.place, first.view);
poller.run();
