// Numbers, sizes, times and lengths of time for people. Times are UTC.

export function count(number) {
  return number.toLocaleString("en-US");
}

// "1 message", "2 messages".
export function several(number, what) {
  return `${count(number)} ${what}${number === 1 ? "" : "s"}`;
}

export function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  let value = bytes;
  for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
    value /= 1024;
    if (value < 1024 || unit === "TiB") return `${value.toFixed(value < 10 ? 2 : 1)} ${unit}`;
  }
}

export function time(ms) {
  if (ms === null || ms === undefined) return "no time";
  const date = new Date(ms);
  if (!Number.isNaN(date.getTime())) return date.toISOString().replace("T", " ").replace("Z", "");
  // Beyond 2^53 a number has lost its last digits on its way here.
  return Number.isSafeInteger(ms) ? `${ms} ms` : `≈${ms.toExponential(3)} ms`;
}

const LAST_MS = Date.UTC(9999, 11, 31, 23, 59, 59);

// As the server reads it: years have four digits there.
export function isoTime(ms) {
  return new Date(Math.min(ms, LAST_MS)).toISOString();
}

const UNITS = [["y", 31557600000], ["d", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000]];

// The two largest units: 3 d 4 h; below ten seconds with a fraction.
export function span(ms) {
  if (ms === null || ms === undefined) return "unknown";
  const sign = ms < 0 ? "−" : "";
  const length = Math.abs(ms);
  if (length < 1000) return `${sign}${Math.round(length)} ms`;
  if (length < 10000) return `${sign}${(length / 1000).toFixed(1)} s`;
  const first = UNITS.findIndex(([, unit]) => length >= unit);
  const [name, unit] = UNITS[first];
  const next = UNITS[first + 1];
  const rest = next ? Math.floor((length % unit) / next[1]) : 0;
  return `${sign}${Math.floor(length / unit)} ${name}${rest ? ` ${rest} ${next[0]}` : ""}`;
}

export function rate(perSecond) {
  if (perSecond === null) return "–";
  return `${perSecond < 10 ? Number(perSecond.toFixed(1)) : count(Math.round(perSecond))}/s`;
}

// From when on nothing is missing, and what went, if a stretch of time begins before that.
export function goneSince(from, { complete_from_ms: complete, removed }, where) {
  if (complete === null) return ` It is not known what left the ${where}.`;
  if (complete <= from) return "";
  const causes = [...new Set(removed.map(({ cause }) => cause))].join(", ");
  const last = Math.max(...removed.map(({ at_ms: at }) => at));
  return ` Complete from ${time(complete)} UTC on: earlier messages are gone${causes ? ` (${causes}, last at ${time(last)} UTC)` : ""}.`;
}

// As the command line shows text (printable.py), but for ends of lines and tabs, which values have:
// what moves, hides or turns what is read is escaped.
export function printable(text) {
  return text.replace(/(?![ \t\r\n])[\p{C}\p{Z}]/gu, (letter) => {
    const code = letter.codePointAt(0);
    const [mark, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
    return `\\${mark}${code.toString(16).padStart(digits, "0")}`;
  });
}
