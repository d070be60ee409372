// Foreign text made fit to be looked at: bounded before it touches the page, without control codes, honest about direction.

const ANSI = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[PX^_][^\u001b]*(?:\u001b\\)?|[@-Z\\^_])/g;
const CONTROL = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g;
const DIRECTION = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** Make characters that reorder or hide their neighbours visible, as `\u202e`. For names, commands and paths. */
export function showDirection(text) {
  return text.replace(DIRECTION, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Return terminal output as it would have looked: colours gone, lines overwritten by carriage returns resolved. */
export function plain(text) {
  let clean = text;
  if (clean.includes("\u001b")) clean = clean.replace(ANSI, "");
  if (clean.includes("\r")) {
    clean = clean
      .replace(/\r\n/g, "\n")
      .split("\n")
      .map((line) => {
        const parts = line.replace(/\r+$/, "").split("\r");
        return parts[parts.length - 1];
      })
      .join("\n");
  }
  return showDirection(clean.replace(CONTROL, "\ufffd"));
}

export const PREVIEW = { chars: 4096, lines: 50, line: 500 };
export const WHOLE = { chars: 262144, lines: 5000, line: 4000 };

/** Return the start of `text` bounded in size, lines and line length, and whether anything was left out. */
export function bounded(text, limits = PREVIEW) {
  let cut = text.length > limits.chars;
  const head = plain(cut ? text.slice(0, limits.chars) : text);
  let lines = head.split("\n");
  if (lines.length > limits.lines) {
    lines = lines.slice(0, limits.lines);
    cut = true;
  }
  const short = lines.map((line) => {
    if (line.length <= limits.line) return line;
    cut = true;
    return `${line.slice(0, limits.line)}…`;
  });
  return { text: short.join("\n"), cut };
}

/** Return a value as readable JSON, or as it is when that is not possible. */
export function pretty(value) {
  if (typeof value === "string") {
    const start = value.trimStart()[0];
    if (value.length > 200000 || (start !== "{" && start !== "[")) return value;
    try {
      return JSON.stringify(JSON.parse(value), null, 2);
    } catch {
      return value;
    }
  }
  try {
    return JSON.stringify(value, null, 2) ?? "";
  } catch {
    return "…";
  }
}

/** One short line for a row: no line breaks, bounded. */
export function oneLine(text, max = 120) {
  const line = plain(String(text).slice(0, max * 4)).replace(/\s+/g, " ").trim();
  return line.length > max ? `${line.slice(0, max - 1)}…` : line;
}

export function duration(ms, t) {
  if (ms < 1000) return t("time.ms", { ms: Math.max(0, Math.round(ms)) });
  const seconds = Math.floor(ms / 1000);
  if (ms < 10000) return t("time.s", { s: (Math.floor(ms / 100) / 10).toFixed(1) });
  return elapsed(ms, t, seconds);
}

export function elapsed(ms, t, seconds = Math.max(0, Math.floor(ms / 1000))) {
  if (seconds < 60) return t("time.s", { s: seconds });
  if (seconds < 3600) return t("time.min", { m: Math.floor(seconds / 60), s: seconds % 60 });
  return t("time.h", { h: Math.floor(seconds / 3600), m: Math.floor((seconds % 3600) / 60) });
}

export function bytes(count, t) {
  if (count < 1024) return t("size.b", { n: count });
  if (count < 1048576) return t("size.kb", { n: Math.round(count / 1024) });
  return t("size.mb", { n: (count / 1048576).toFixed(1) });
}
