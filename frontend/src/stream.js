// Reads one run's event stream: reconnects from the last seq it has, pauses in hidden tabs, notices silence.
//
// It reads with fetch instead of EventSource because only then the status of a refused request and the
// server's keepalive comments can be seen: a 204 is an end, silence is a broken line.

const SILENCE_MS = 20000;
const OFFLINE_MS = 5000;
const CHECK_MS = 1000;
const BACKOFF_MS = [250, 500, 1000, 2000, 4000];

// One open stream per tab, whichever build of this script asks: a browser has six connections per host.
const GUARD = Symbol.for("parley.stream");

/** Splits a byte stream into server-sent events. Never joins what it holds more often than a line ends. */
class EventSplitter {
  constructor() {
    this.decoder = new TextDecoder();
    this.held = [];
    this.fields = null;
  }

  push(bytes) {
    const events = [];
    const chunk = this.decoder.decode(bytes, { stream: true });
    if (!chunk.includes("\n")) {
      this.held.push(chunk);
      return events;
    }
    const lines = (this.held.length ? this.held.join("") + chunk : chunk).split("\n");
    const rest = lines.pop();
    this.held = rest ? [rest] : [];
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line === "") {
        if (this.fields) events.push({ event: this.fields.event, data: this.fields.data.join("\n") });
        this.fields = null;
      } else if (!line.startsWith(":")) {
        const colon = line.indexOf(":");
        const name = colon < 0 ? line : line.slice(0, colon);
        const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
        this.fields ??= { event: "message", data: [] };
        if (name === "event") this.fields.event = value;
        else if (name === "data") this.fields.data.push(value);
      }
    }
    return events;
  }
}

export class RunStream {
  /**
   * `url(after)` gives the address; `after()` the last seq applied. Calls back: `onEvents(list)`, `onLine(state)` with
   * connecting | live | lost | paused, `onOffline()` once per outage, `onEnd(why)` with finished | gone | denied,
   * `onServerTime(ms)` with the server's clock less ours.
   */
  constructor(handlers) {
    this.handlers = handlers;
    this.closed = false;
    this.failures = 0;
    this.troubleSince = null;
    this.offlineTold = false;
    this.controller = null;
    this.visibility = () => this.#visibilityChanged();
    document.addEventListener("visibilitychange", this.visibility);
    this.network = () => this.failures && this.#visibilityChanged();
    window.addEventListener("online", this.network);
    this.checker = setInterval(() => this.#check(), CHECK_MS);
    this.takeOver();
  }

  takeOver() {
    const guard = (globalThis[GUARD] ??= { waiting: [] });
    if (guard.current && guard.current !== this) {
      guard.waiting.push(guard.current);
      guard.current.#pause();
    }
    guard.current = this;
    guard.waiting = guard.waiting.filter((stream) => stream !== this && !stream.closed);
    if (document.visibilityState === "hidden") this.handlers.onLine("paused");
    else this.open();
  }

  open() {
    if (this.closed) return;
    this.#abort();
    const controller = new AbortController();
    this.controller = controller;
    this.lastByteAt = Date.now();
    this.troubleSince ??= Date.now();
    this.handlers.onLine(this.failures ? "lost" : "connecting");
    this.#read(controller).catch((error) => {
      if (controller === this.controller) this.#retry(error);
    });
  }

  close() {
    if (this.closed) return;
    this.closed = true;
    this.#abort();
    clearInterval(this.checker);
    document.removeEventListener("visibilitychange", this.visibility);
    window.removeEventListener("online", this.network);
    const guard = globalThis[GUARD];
    if (guard.current !== this) return;
    guard.current = null;
    const next = guard.waiting.filter((stream) => !stream.closed).pop();
    next?.takeOver();
  }

  async #read(controller) {
    const after = this.handlers.after();
    const response = await fetch(this.handlers.url(after), {
      headers: { Accept: "text/event-stream", ...(after ? { "Last-Event-ID": String(after) } : {}) },
      cache: "no-store",
      credentials: "same-origin",
      signal: controller.signal,
    });
    if (controller !== this.controller) return;
    const ends = { 204: "finished", 401: "denied", 403: "denied", 404: "gone", 410: "gone" };
    if (ends[response.status]) {
      this.#end(ends[response.status]);
      return;
    }
    if (!response.ok || !(response.headers.get("content-type") ?? "").startsWith("text/event-stream")) {
      throw new Error(`stream answered ${response.status}`);
    }
    const clock = Date.parse(response.headers.get("date") ?? "");
    if (!Number.isNaN(clock)) this.handlers.onServerTime(clock - Date.now());
    this.troubleSince = null;
    this.offlineTold = false;
    this.handlers.onLine("live");
    const reader = response.body.getReader();
    const splitter = new EventSplitter();
    for (;;) {
      const { done, value } = await reader.read();
      if (controller !== this.controller) return;
      if (done) break;
      this.lastByteAt = Date.now();
      this.failures = 0;
      const events = splitter.push(value);
      if (events.length) this.handlers.onEvents(events);
      if (controller !== this.controller) return;
    }
    throw new Error("stream ended");
  }

  #retry() {
    this.#abort();
    this.troubleSince ??= Date.now();
    const wait = BACKOFF_MS[Math.min(this.failures, BACKOFF_MS.length - 1)];
    this.failures += 1;
    this.handlers.onLine("lost");
    this.timer = setTimeout(() => this.open(), wait);
  }

  #check() {
    if (this.closed || globalThis[GUARD].current !== this || document.visibilityState === "hidden") return;
    if (this.controller && Date.now() - this.lastByteAt > SILENCE_MS) this.open();
    if (this.troubleSince && !this.offlineTold && Date.now() - this.troubleSince >= OFFLINE_MS) {
      this.offlineTold = true;
      this.handlers.onOffline();
    }
  }

  #visibilityChanged() {
    if (this.closed || globalThis[GUARD].current !== this) return;
    if (document.visibilityState === "hidden") this.#pause();
    else this.open();
  }

  #pause() {
    this.#abort();
    this.troubleSince = null;
    this.failures = 0;
    this.handlers.onLine("paused");
  }

  #end(why) {
    this.close();
    this.handlers.onEnd(why);
  }

  #abort() {
    clearTimeout(this.timer);
    const controller = this.controller;
    this.controller = null;
    controller?.abort();
  }
}
