// The live panel of a run and the folded record of a finished message.
import { copyText, counted, el, icon, mountable, setHidden, setText, spinner, translator } from "./dom.js";
import { Follower } from "./follow.js";
import { MarkdownStream, copyCodeOnClick } from "./markdown.js";
import { QuestionCard } from "./question_card.js";
import { endLine, makeRow, TodoList, ToolRow, usageWords } from "./rows.js";
import { normalise, RunModel } from "./run_model.js";
import { RunStream } from "./stream.js";
import { elapsed, oneLine, plain } from "./text.js";
import { doingWords } from "./tools.js";
import css from "./panel.css";

const RECENT_ROWS = 5;
const MOST_ROWS = 400;
const THOUGHT_CHARS = 100000;
const SLOW_PAINT_MS = 12;
const MAX_GAP_REOPENS = 3;
const FINISHED_TIMES = 4;
const FINISHED_AGAIN_MS = 8000;

async function readError(response) {
  try {
    return (await response.json()).error ?? {};
  } catch {
    return {};
  }
}

async function fetchLog(data) {
  const response = await fetch(`${data.base}/api/chat/messages/${encodeURIComponent(data.message)}/log`, { credentials: "same-origin" });
  if (!response.ok) throw new Error(`log answered ${response.status}`);
  return (await response.json()).entries;
}

/** What both forms need: texts, and the whole of a result that came as its start. */
function makeContext(data, t) {
  return {
    t,
    async fetchResult(ref) {
      const response = await fetch(`${data.base}/api/chat/results/${encodeURIComponent(ref)}`, { credentials: "same-origin" });
      if (!response.ok) throw new Error(`result answered ${response.status}`);
      return response.text();
    },
    async fetchFromLog(callId) {
      const entry = (await fetchLog(data)).findLast(({ kind, call_id: id }) => kind === "tool_result" && id === callId);
      if (!entry) throw new Error("the log has no such result");
      return entry.content;
    },
  };
}

class LivePanel {
  constructor(root, data, triggers) {
    this.data = data;
    this.triggers = triggers;
    this.t = translator(data.texts);
    this.context = makeContext(data, this.t);
    this.model = new RunModel();
    this.skew = 0;
    this.gaps = new Map();
    this.rows = new Map();
    this.cards = new Map();
    this.drawnItems = 0;
    this.showAll = false;
    this.#build(root);
    this.follower = new Follower(this.node, this.t, data.follow !== false);
    root.append(this.follower.button);
    this.stream = new RunStream({
      url: (after) => `${data.base}/api/chat/runs/${encodeURIComponent(data.run)}/stream?last_event_id=${after}`,
      after: () => this.model.lastSeq,
      onEvents: (events) => this.#receive(events),
      onLine: (state) => this.#line(state),
      onOffline: () => {
        setText(this.lineNote, this.t("line.offline"));
        this.triggers.fire("offline", { run: data.run });
      },
      onEnd: (why) => this.#ended(why),
      onServerTime: (skew) => {
        this.skew = Math.abs(skew) > 2000 ? skew : 0;
      },
    });
    this.ticker = setInterval(() => this.#tick(), 1000);
    this.onStopping = (event) => {
      this.stopping = this.stopping || event.detail?.run === this.data.run;
      this.#schedule();
    };
    window.addEventListener("parley:stopping", this.onStopping);
    this.#schedule();
  }

  #build(root) {
    const { t } = this;
    this.statusMark = el("span", { class: "status-mark" }, spinner());
    this.statusText = el("span", { class: "status-text shimmer", role: "status" });
    this.statusObject = el("code", { class: "status-object" });
    this.statusTime = el("span", { class: "status-time", "aria-hidden": "true" });
    this.lineNote = el("span", { class: "line-note", role: "status" });
    this.statusArea = el("div", { class: "area status", "data-area": "status" }, this.statusMark, el("span", { class: "status-words" }, this.statusText, this.statusObject), this.statusTime, this.lineNote);

    this.thoughtHead = el("button", { type: "button", class: "fold-head thought-head", "aria-expanded": "false", onclick: () => this.#toggleThoughts() }, icon("chevron"), el("span", { textContent: t("thinking") }));
    this.thoughtText = document.createTextNode("");
    this.thoughtBox = el("div", { class: "thought-box folded", tabIndex: -1 }, el("div", { class: "thought-inner" }, this.thoughtText));
    this.thoughtArea = el("div", { class: "area thinking", "data-area": "thinking", "data-empty": "" }, this.thoughtHead, this.thoughtBox);

    this.todoList = new TodoList(this.context);
    this.todoArea = el("div", { class: "area todo-area", "data-area": "todos" }, el("div", { class: "grow" }, this.todoList.node));

    this.currentTools = el("div", { class: "current-tools" });
    this.earlier = el("button", { type: "button", class: "quiet earlier", hidden: true, onclick: () => {
      this.showAll = !this.showAll;
      this.#drawHistory(true);
    } });
    this.history = el("div", { class: "history" });
    this.toolArea = el("div", { class: "area tools", "data-area": "tools" }, this.currentTools, this.earlier, this.history);

    this.questionArea = el("div", { class: "area questions", "data-area": "questions" });
    this.answerBox = el("div", { class: "answer prose", dir: "auto" });
    this.answer = new MarkdownStream(this.answerBox, t);
    copyCodeOnClick(this.answerBox, (button, code) => copyText(button, code, t));
    this.endArea = el("div", { class: "area end", hidden: true });
    this.answerArea = el("div", { class: "area answer-area", "data-area": "answer" }, this.answerBox, this.endArea);
    this.node = el("div", { class: "live", "data-run": this.data.run }, this.statusArea, this.thoughtArea, this.todoArea, this.toolArea, this.questionArea, this.answerArea);
    root.append(this.node);
  }

  update(data) {
    this.data = data;
    setHidden(this.node, Boolean(data.fallback));
    if (data.stopping && !this.model.end) this.stopping = true;
    this.#schedule();
  }

  destroy() {
    this.stream.close();
    clearInterval(this.ticker);
    cancelAnimationFrame(this.frame);
    clearTimeout(this.later);
    window.removeEventListener("parley:stopping", this.onStopping);
    this.follower.detach();
    this.dead = true;
  }

  // What comes in

  #receive(events) {
    for (const { event, data } of events) {
      let raw;
      try {
        raw = JSON.parse(data);
      } catch {
        raw = { seq: Number(/"seq":\s*(\d+)/.exec(data.slice(0, 500))?.[1]), kind: "unreadable", text: this.t("note.unreadable") };
      }
      if (!raw || typeof raw !== "object") continue;
      if (event === "resync") {
        this.#startAgain();
        continue;
      }
      const entry = normalise(raw, event);
      if (this.#isGap(entry)) {
        this.stream.open();
        break;
      }
      try {
        this.model.apply(entry);
      } catch (error) {
        console.error("parley: entry could not be shown", entry.kind, error);
      }
    }
    this.#schedule();
    if (this.model.end) this.#finish({ status: this.model.end.status });
  }

  /** A hole in the numbers means that something was lost on the way: ask again, but not for ever. */
  #isGap({ seq }) {
    const { lastSeq } = this.model;
    if (!lastSeq || !(seq > lastSeq + 1) || this.gaps.has(lastSeq) || this.gaps.size >= MAX_GAP_REOPENS) return false;
    this.gaps.set(lastSeq, seq);
    return true;
  }

  #startAgain() {
    this.model.reset();
    this.gaps.clear();
    this.rows.clear();
    this.cards.clear();
    this.drawnItems = 0;
    this.history.replaceChildren();
    this.currentTools.replaceChildren();
    this.questionArea.replaceChildren();
    this.thoughtText.data = "";
    this.thoughtShown = undefined;
    this.answer.reset();
  }

  #line(state) {
    this.lineState = state;
    this.node.dataset.line = state;
    const words = { lost: this.stream?.offlineTold ? "line.offline" : "line.lost", paused: "line.paused" }[state];
    if (state !== "connecting") setText(this.lineNote, words ? this.t(words) : "");
    if (state === "live" && this.data.fallback) this.triggers.fire("online", { run: this.data.run });
  }

  #ended(why) {
    if (why === "denied") setText(this.lineNote, this.t("line.denied"));
    this.#finish({ status: this.model.end?.status ?? why });
  }

  #finish(outcome) {
    if (this.finished) return;
    this.finished = true;
    this.stream.close();
    clearInterval(this.ticker);
    // Let the last state reach the screen before the page draws the message from its rows. A page that is just
    // reconnecting does not hear it: as long as we are still here, say it again.
    let left = FINISHED_TIMES;
    const tell = () => {
      if (this.dead || !left--) return;
      this.triggers.fire("finished", { run: this.data.run, ...outcome });
      setTimeout(tell, FINISHED_AGAIN_MS);
    };
    requestAnimationFrame(() => setTimeout(tell, 0));
  }

  // What is drawn

  #schedule() {
    if (this.frame || this.later || this.dead) return;
    const wait = (this.nextPaintAt ?? 0) - performance.now();
    if (wait > 4) this.later = setTimeout(() => {
      this.later = 0;
      this.#schedule();
    }, wait);
    else this.frame = requestAnimationFrame(() => this.#paint());
  }

  #paint() {
    this.frame = 0;
    const begin = performance.now();
    this.#drawStatus();
    this.#drawThoughts();
    if (this.model.todos) {
      this.todoArea.classList.add("open");
      this.todoList.update(this.model.todos);
    }
    this.#drawQuestions();
    this.#drawHistory(false);
    this.answer.set(this.model.answer);
    if (this.model.end) this.answer.finish();
    else this.answer.paint();
    this.answerBox.classList.toggle("growing", this.model.doing === "answering");
    this.#drawEnd();
    const cost = performance.now() - begin;
    // Expensive tails (a paragraph of 40 kB) are drawn less often rather than making the page stutter.
    this.nextPaintAt = cost > SLOW_PAINT_MS && !this.model.end ? performance.now() + cost * 4 : 0;
    this.follower.follow();
  }

  get #now() {
    return Date.now() + this.skew;
  }

  #tick() {
    if (document.visibilityState === "hidden") return;
    this.#drawStatus();
    for (const tool of this.model.runningTools) this.rows.get(tool.id)?.update(this.#now);
  }

  #doing() {
    const { model, t } = this;
    if (this.stopping) return { words: t("status.stopping") };
    const question = model.openQuestion;
    if (question) return { words: t("status.waiting"), since: question.at, mood: "waiting" };
    const tool = model.runningTools.at(-1);
    if (tool) {
      const [words, object] = doingWords(tool, t);
      return { words, object, since: tool.at };
    }
    switch (model.doing) {
      case "thinking":
        return { words: t("status.thinking") };
      case "answering":
        return { words: t("status.answering") };
      case "status":
        return { words: oneLine(model.status.text, 200), mood: model.status.level === "info" ? "" : "warning" };
      case "subagent":
        return { words: t("status.subagent") };
      case "starting":
        return { words: t("status.starting") };
      default:
        return { words: t("status.working") };
    }
  }

  #drawStatus() {
    const { model, t } = this;
    if (model.end) {
      if (this.endDrawn) return;
      this.endDrawn = true;
      this.statusMark.replaceChildren(icon({ SUCCESS: "check", FAILED: "alert", STOPPED: "stop", INTERRUPTED: "dash" }[model.end.status]));
      this.statusArea.dataset.mood = model.end.status;
      this.statusText.classList.remove("shimmer");
      setText(this.statusText, t(`end.${model.end.status}`));
      setText(this.statusObject, "");
      const usage = usageWords(model.usage, t);
      const took = model.startedAt && model.end.at ? elapsed(model.end.at - model.startedAt, t) : "";
      setText(this.statusTime, [took, usage].filter(Boolean).join(" · "));
      return;
    }
    const doing = this.#doing();
    this.statusArea.dataset.mood = doing.mood ?? "";
    this.statusText.classList.toggle("shimmer", !doing.mood);
    setText(this.statusText, doing.words);
    setText(this.statusObject, doing.object ?? "");
    const since = doing.since ?? model.startedAt;
    const started = model.startedAt;
    const times = [];
    if (since) times.push(elapsed(this.#now - since, t));
    if (started && doing.since && Math.abs(started - doing.since) > 1500) times.push(t("status.total", { time: elapsed(this.#now - started, t) }));
    setText(this.statusTime, times.join(" · "));
  }

  #toggleThoughts() {
    this.thoughtOpen = !this.thoughtOpen;
    this.thoughtHead.setAttribute("aria-expanded", String(this.thoughtOpen));
    this.thoughtBox.classList.toggle("folded", !this.thoughtOpen);
    this.thoughtBox.tabIndex = this.thoughtOpen ? 0 : -1;
    this.thoughtShown = undefined;
    this.#drawThoughts();
    if (this.thoughtOpen) this.thoughtBox.scrollTop = this.thoughtBox.scrollHeight;
  }

  #drawThoughts() {
    const thoughts = this.model.items.filter((item) => item.type === "thinking");
    const size = thoughts.reduce((sum, item) => sum + item.text.length, 0);
    if (this.thoughtShown === size) return;
    this.thoughtShown = size;
    this.thoughtArea.toggleAttribute("data-empty", !size);
    const atEnd = this.thoughtBox.scrollHeight - this.thoughtBox.scrollTop - this.thoughtBox.clientHeight < 24;
    const room = this.thoughtOpen ? THOUGHT_CHARS : 800;
    let text = "";
    for (let index = thoughts.length - 1; index >= 0 && text.length < room; index -= 1) text = thoughts[index].text.slice(-room) + (text ? `\n\n${text}` : "");
    text = plain(text).trimEnd();
    if (!this.thoughtOpen) text = text.replace(/\n{2,}/g, "\n");
    if (text.startsWith(this.thoughtText.data)) this.thoughtText.appendData(text.slice(this.thoughtText.data.length));
    else this.thoughtText.data = text;
    if (!this.thoughtOpen || atEnd) this.thoughtBox.scrollTop = this.thoughtBox.scrollHeight;
  }

  #rowFor(item) {
    let row = this.rows.get(item.id);
    if (!row) {
      row = makeRow(item, this.context);
      this.rows.set(item.id, row);
    }
    return row;
  }

  /** Running tools stand on top; what has happened stands below in its order, the older part folded. */
  #drawHistory(force) {
    const { items } = this.model;
    const running = new Set(this.model.runningTools);
    for (const tool of running) {
      const row = this.#rowFor(tool);
      if (row.node.parentNode !== this.currentTools) this.currentTools.append(row.node);
      row.update(this.#now);
    }
    const past = items.filter((item) => item.type !== "thinking" && !running.has(item) && !(item.type === "question" && this.cards.has(item.questionId)));
    for (const row of this.rows.values()) if (!(row instanceof ToolRow)) row.update(this.#now);
    if (!force && past.length === this.pastDrawn && !past.some((item) => this.rows.get(item.id)?.node.parentNode === this.currentTools)) return;
    this.pastDrawn = past.length;
    const shown = past.slice(this.showAll ? -MOST_ROWS : -RECENT_ROWS);
    const keep = new Set();
    let place = this.history.firstChild;
    for (const item of shown) {
      const row = this.#rowFor(item);
      row.update(this.#now);
      keep.add(row.node);
      while (place && place !== row.node && !shown.some((other) => this.rows.get(other.id)?.node === place)) {
        const next = place.nextSibling;
        place.remove();
        place = next;
      }
      if (place === row.node) place = place.nextSibling;
      else this.history.insertBefore(row.node, place);
    }
    for (const node of [...this.history.children]) if (!keep.has(node)) node.remove();
    const hidden = past.length - shown.length;
    setHidden(this.earlier, past.length <= RECENT_ROWS);
    setText(this.earlier, this.showAll ? this.t("show_fewer") : counted(this.t, "show_earlier", hidden));
    this.toolArea.classList.toggle("filled", past.length > 0 || running.size > 0);
  }

  /** A card stands for a question that waits, or that ended in a way worth telling; an answered one moves to the history. */
  #drawQuestions() {
    for (const question of this.model.questions.values()) {
      let card = this.cards.get(question.questionId);
      const needed = question.state !== "answered" || question.elsewhere;
      if (!card && needed && (question.state === "open" || this.model.end)) {
        card = new QuestionCard(question, this.context, (id, answer) => this.#answer(id, answer), () => this.#schedule());
        this.cards.set(question.questionId, card);
        this.questionArea.append(card.node);
      }
      card?.update(this.model.end);
      if (card && !needed) {
        card.node.remove();
        this.cards.delete(question.questionId);
      }
    }
  }

  async #answer(questionId, answer) {
    const response = await fetch(`${this.data.base}/api/chat/runs/${encodeURIComponent(this.data.run)}/resume`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ question_id: questionId, answer }),
      credentials: "same-origin",
    });
    if (response.ok) return { ok: true };
    const error = await readError(response);
    if (response.status === 409) {
      const recorded = error.detail?.answer ?? error.answer;
      return { conflict: true, closed: error.code === "question_closed" || recorded === undefined, answer: recorded };
    }
    if (response.status === 404) return { conflict: true, closed: true };
    const failure = new Error(`resume answered ${response.status}`);
    if (response.status < 500) failure.refused = error.message;
    throw failure;
  }

  #drawEnd() {
    const { end } = this.model;
    if (!end || end.status === "SUCCESS" || !this.endArea.hidden) return;
    this.endArea.replaceChildren(endLine(end, this.t));
    setHidden(this.endArea, false);
  }
}

class Record {
  constructor(root, data) {
    this.data = data;
    this.t = translator(data.texts);
    this.context = makeContext(data, this.t);
    this.line = el("span", { class: "record-line" });
    this.body = el("div", { class: "record-body", hidden: true });
    this.button = el("button", { type: "button", class: "fold-head record-head", "aria-expanded": "false", onclick: () => this.toggle(this.body.hidden) }, icon("chevron"), this.line);
    this.node = el("div", { class: "record" }, this.button, this.body);
    root.append(this.node);
    this.update(data);
    if (data.open) this.toggle(true);
  }

  update(data) {
    this.data = data;
    setText(this.line, data.line || this.t("record.activity"));
    this.node.dataset.state = data.status ?? "";
  }

  destroy() {}

  async toggle(open) {
    this.button.setAttribute("aria-expanded", String(open));
    setHidden(this.body, !open);
    if (!open || this.filled) return;
    this.filled = true;
    let { entries } = this.data;
    if (!entries) {
      this.body.replaceChildren(el("p", { class: "muted" }, spinner(), el("span", { textContent: this.t("record.loading") })));
      try {
        entries = await fetchLog(this.data);
      } catch {
        this.filled = false;
        this.body.replaceChildren(el("p", { class: "muted", textContent: this.t("record.failed") }),
          el("button", { type: "button", class: "button", textContent: this.t("question.retry"), onclick: () => this.toggle(true) }));
        return;
      }
    }
    this.#draw(entries);
  }

  #draw(entries) {
    const model = new RunModel();
    for (const entry of entries) model.apply(normalise(entry));
    const rows = model.items.map((item) => makeRow(item, this.context).node);
    if (model.todos?.length) {
      const todos = new TodoList(this.context);
      todos.update(model.todos);
      rows.unshift(todos.node);
    }
    const usage = usageWords(model.usage, this.t);
    if (usage) rows.push(el("p", { class: "muted", textContent: usage }));
    if (!rows.length) rows.push(el("p", { class: "muted", textContent: this.t("record.empty") }));
    this.body.replaceChildren(...rows);
  }
}

class Panel {
  constructor(root) {
    this.root = root;
    this.triggers = { fire: (name, value) => this.component.setTriggerValue(name, value) };
  }

  update(component) {
    this.component = component;
    const { data } = component;
    const subject = `${data.mode}:${data.run ?? data.message}`;
    if (subject !== this.subject) {
      this.view?.destroy();
      this.root.replaceChildren();
      this.subject = subject;
      this.view = data.mode === "record" ? new Record(this.root, data) : new LivePanel(this.root, data, this.triggers);
    }
    this.view.update(data);
  }

  destroy() {
    this.view?.destroy();
  }
}

export default mountable(Panel, css);
