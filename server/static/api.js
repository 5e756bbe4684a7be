// Asking the broker. What it answers is bounded, so is how long it may take.

const DEADLINE_MS = 12000;

export class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

// `signal` ends the request early.
export async function ask(name, query = {}, signal = null) {
  const address = new URL(`/page/${name}`, location.origin);
  for (const [key, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") address.searchParams.set(key, value);
  }
  const deadline = AbortSignal.timeout(DEADLINE_MS);
  const response = await fetch(address, { signal: signal ? AbortSignal.any([signal, deadline]) : deadline });
  if (response.status === 401) leave();
  const body = await response.json();
  if (!response.ok) throw new Refused(body.error, response.status);
  return body;
}

// Goes to the login, with nothing left to be seen, also where the browser keeps the page.
function leave() {
  document.body.hidden = true;
  window.location.assign("/login");
}

addEventListener("pageshow", (event) => event.persisted && window.location.reload());

// Ends the session at the broker.
export async function logOut() {
  const response = await fetch("/logout", {
    method: "POST", headers: { "Content-Type": "application/json" }, body: "{}", signal: AbortSignal.timeout(DEADLINE_MS),
  });
  if (!response.ok) throw new Refused((await response.json()).error, response.status);
  leave();
}

const LONGEST_WAIT_MS = 30000;

// Calls `task` again and again, each time `everyMs` after it was done; more seldom while it fails,
// and not while the page is hidden.
export class Poller {
  constructor(task, everyMs, onState) {
    this.task = task;
    this.everyMs = everyMs;
    this.onState = onState;
    this.failures = 0;
    this.paused = false;
    this.running = false;
    document.addEventListener("visibilitychange", () => this.poke());
  }

  // Now, not when the time has come; while it is paused, this once.
  poke() {
    clearTimeout(this.timer);
    if (this.running) this.again = true;
    else this.run();
  }

  pause(paused) {
    this.paused = paused;
    if (!paused) this.poke();
  }

  async run() {
    if (document.hidden) return;
    this.running = true;
    this.again = false;
    try {
      await this.task();
      this.failures = 0;
      this.onState(null);
    } catch (error) {
      this.failures += 1;
      this.onState(error);
    }
    this.running = false;
    clearTimeout(this.timer);
    const wait = Math.min(this.everyMs * 2 ** Math.min(this.failures, 5), LONGEST_WAIT_MS);
    if (this.again) this.run();
    else this.timer = setTimeout(() => this.paused || this.run(), wait);
  }
}
