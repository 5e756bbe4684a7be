// What the address holds: topic, partition, stretch of the bars, messages that are shown, scroll
// position. `#clicks/0?from=1&until=9&window=3-5&y=400`

const SCROLL_MS = 150;

let current = { place: null, view: new URLSearchParams() };

export function addressOf(topic, partition, view = "") {
  return `#${encodeURIComponent(topic)}/${partition}${String(view) && `?${view}`}`;
}

// Returns the topic and partition of an address, and the rest of it; null if it names no topic. What
// is no partition stands for the first.
export function parse(hash) {
  const [path, query = ""] = hash.split("?", 2);
  const cut = path.lastIndexOf("/");
  if (!path.startsWith("#") || cut < 2) return null;
  try {
    const partition = path.slice(cut + 1);
    const place = { topic: decodeURIComponent(path.slice(1, cut)), partition: /^\d{1,15}$/.test(partition) ? Number(partition) : 0 };
    return { place, view: new URLSearchParams(query) };
  } catch {
    return null;
  }
}

// Numbers that are joined by "-": an offset, or the start and end of a window; null for anything else.
export function numbers(view, name, many) {
  const parts = (view.get(name) ?? "").split("-");
  const found = parts.map(Number);
  const good = parts.length === many && parts.every((part) => /^\d{1,16}$/.test(part)) && found.every(Number.isSafeInteger);
  return good ? found : null;
}

// Makes an address the present one, as after a link or the browser's Back.
export function take({ place, view }) {
  current = { place, view };
  write(false);
}

// Changes the parts of `changes`; null takes a part out. With `step`, Back returns to what was before.
export function note(changes, { step = false } = {}) {
  if (!current.place) return;
  const view = new URLSearchParams(current.view);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined) view.delete(name);
    else view.set(name, value);
  }
  if (String(view) === String(current.view)) return;
  if (step) noteScroll();
  current.view = view;
  write(step);
}

// Returns the part that holds for all partitions.
export function stretch() {
  const names = ["bars", "from", "until"].filter((name) => current.view.has(name));
  return new URLSearchParams(names.map((name) => [name, current.view.get(name)]));
}

function write(step) {
  const address = addressOf(current.place.topic, current.place.partition, current.view);
  if (location.hash === address) return;
  if (step) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}

function noteScroll() {
  const y = Math.round(scrollY);
  note({ y: y > 0 ? y : null });
}

let wanted = null;
let timer = null;

// Remembers a position for `scrollBack`, which scrolls there unless the user acted first.
export function restoreScroll(y) {
  wanted = y;
}

export function scrollBack() {
  if (wanted === null) return;
  const y = wanted;
  wanted = null;
  scrollTo(0, y);
}

export function listen() {
  history.scrollRestoration = "manual";
  for (const kind of ["wheel", "touchstart", "pointerdown", "keydown"]) {
    addEventListener(kind, () => { wanted = null; }, { passive: true });
  }
  addEventListener("scroll", () => {
    clearTimeout(timer);
    timer = setTimeout(() => wanted === null && noteScroll(), SCROLL_MS);
  }, { passive: true });
}
