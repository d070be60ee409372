// The pieces that live panel and record share: tool rows, remarks, notes, thoughts, todos, answered questions.
import { copyText, el, icon, setHidden, setText, spinner } from "./dom.js";
import { MarkdownStream, copyCodeOnClick } from "./markdown.js";
import { bounded, bytes, duration, oneLine, plain, pretty, showDirection, WHOLE } from "./text.js";
import { argumentPreview, toolIcon, toolName } from "./tools.js";

let serial = 0;

/** A header that opens a body; the body is built when it is first opened. */
export class Fold {
  constructor({ head, className = "", build, open = false, onToggle }) {
    const bodyId = `parley-fold-${++serial}`;
    this.build = build;
    this.body = el("div", { class: "fold-body", id: bodyId, hidden: true });
    this.button = el("button", { type: "button", class: `fold-head ${className}`, "aria-expanded": "false", "aria-controls": bodyId, onclick: () => {
      this.toggle(!this.open);
      onToggle?.(this.open);
    } }, icon("chevron"), ...head);
    this.node = el("div", { class: "fold" }, this.button, this.body);
    if (open) this.toggle(true);
  }

  get open() {
    return this.button.getAttribute("aria-expanded") === "true";
  }

  toggle(open) {
    if (open && this.build) {
      this.build(this.body);
      this.build = null;
    }
    this.button.setAttribute("aria-expanded", String(open));
    setHidden(this.body, !open);
  }
}

/** Mono text in a box that scrolls, with copy and, when it was cut, show all. */
export function monoBox(label, text, context, { fetchWhole = null, size = null } = {}) {
  const { t } = context;
  const preview = bounded(text);
  const pre = el("pre", { tabIndex: 0, "aria-label": label }, el("code", { textContent: preview.text || t("tool.empty") }));
  const tools = el("span", { class: "box-tools" });
  const node = el("div", { class: "mono-box" }, el("div", { class: "box-head" }, el("span", { textContent: label }), tools), pre);
  let whole = text;
  const note = el("div", { class: "box-note" });
  if (preview.cut || fetchWhole) {
    const more = el("button", { type: "button", class: "quiet", textContent: size ? t("show_all_size", { size: bytes(size, t) }) : t("show_all") });
    more.onclick = async () => {
      more.disabled = true;
      try {
        if (fetchWhole) whole = await fetchWhole();
      } catch {
        more.disabled = false;
        setText(note, t("show_all_failed"));
        return;
      }
      const shown = bounded(whole, WHOLE);
      pre.firstChild.textContent = shown.text;
      setText(note, shown.cut ? t("show_all_cut", { size: bytes(whole.length, t) }) : "");
      more.remove();
    };
    tools.append(more);
    node.append(note);
  }
  const copy = el("button", { type: "button", class: "copy quiet" }, icon("copy"), el("span", { class: "label", textContent: t("copy") }));
  copy.onclick = () => copyText(copy, whole, t);
  tools.append(copy);
  return node;
}

export class ToolRow {
  constructor(item, context) {
    this.item = item;
    this.context = context;
    const { t } = context;
    this.state = el("span", { class: "tool-state" });
    this.time = el("span", { class: "tool-time" });
    this.fold = new Fold({
      className: "tool-row",
      head: [
        el("span", { class: "tool-icon" }, icon(toolIcon(item.name))),
        el("span", { class: "tool-name", textContent: toolName(item.name, t) }),
        el("span", { class: "tool-preview", textContent: argumentPreview(item.name, item.args) }),
        this.state,
        this.time,
      ],
      build: () => this.#fill(),
    });
    this.node = this.fold.node;
    this.node.classList.add("tool");
    this.node.dataset.call = item.callId;
    this.update();
  }

  update(now) {
    const { item, context } = this;
    const { t } = context;
    if (item.state === "running") setText(this.time, now && item.at ? duration(Math.max(0, Math.floor((now - item.at) / 1000) * 1000 || 0), t) : "");
    if (this.shown === item.state) return;
    this.shown = item.state;
    this.node.dataset.state = item.state;
    const word = t(`tool.${item.state}`);
    const mark = { running: spinner(), done: icon("check"), error: icon("cross"), cut: icon("dash") }[item.state];
    this.state.replaceChildren(mark, el("span", { class: item.state === "done" ? "sr" : "", textContent: word }));
    if (item.state !== "running") setText(this.time, item.durationMs === null || item.durationMs === undefined ? "" : duration(item.durationMs, t));
    if (this.fold.open || !this.fold.build) this.#fill();
  }

  /** What came with the event may be the start only; the whole is in a store of its own or in the message's log. */
  #whole() {
    const { item, context } = this;
    if (item.resultRef) return () => context.fetchResult(item.resultRef);
    return item.cut ? () => context.fetchFromLog(item.callId) : null;
  }

  #fill() {
    const { item, context } = this;
    const { t } = context;
    const hasArguments = typeof item.args === "string" ? item.args : item.args && Object.keys(item.args).length;
    const boxes = [];
    if (hasArguments) boxes.push(this.args ?? (this.args = monoBox(t("tool.arguments"), pretty(item.args), context)));
    if (item.result !== undefined)
      boxes.push(monoBox(item.state === "error" ? t("tool.error_text") : t("tool.result"), pretty(item.result), context, { fetchWhole: this.#whole(), size: item.bytes }));
    else if (item.state === "running") boxes.push(el("p", { class: "muted", textContent: t("tool.no_result_yet") }));
    else boxes.push(el("p", { class: "muted", textContent: t("tool.no_result") }));
    this.fold.body.replaceChildren(...boxes);
  }
}

export class MarkdownRow {
  constructor(text, context, className = "remark") {
    this.node = el("div", { class: `${className} prose` });
    const stream = new MarkdownStream(this.node, context.t);
    stream.set(text);
    stream.finish();
    copyCodeOnClick(this.node, (button, code) => copyText(button, code, context.t));
  }

  update() {}
}

class NoteRow {
  constructor(item, context) {
    const { t } = context;
    const words = oneLine(item.key ? t(item.key, item.values) : item.text, 400);
    const mark = { warning: "alert", error: "alert" }[item.level] ?? (item.key ? "fold" : "dash");
    const word = item.level === "error" ? t("note.error") : item.level === "warning" ? t("note.warning") : "";
    const line = [el("span", { class: "tool-icon" }, icon(mark)), word ? el("strong", { textContent: word }) : null, el("span", { class: "note-text", textContent: words })];
    if (item.detail) {
      const fold = new Fold({ className: "note-row", head: line.filter(Boolean), build: (body) => body.append(new MarkdownRow(item.detail, context).node) });
      this.node = fold.node;
    } else this.node = el("div", { class: "note" }, ...line);
    this.node.dataset.level = item.level;
  }

  update() {}
}

class SubagentRow {
  constructor(item, context) {
    this.item = item;
    this.t = context.t;
    this.text = el("span", { class: "note-text" });
    this.node = el("div", { class: "note" }, el("span", { class: "tool-icon" }, icon("fork")), el("strong", { textContent: this.t("note.subagent") }), this.text);
    this.update();
  }

  update() {
    setText(this.text, oneLine(this.item.text || this.item.event, 200));
  }
}

class QuestionRow {
  constructor(item, context) {
    this.item = item;
    this.t = context.t;
    this.reply = el("span", { class: "note-text" });
    this.node = el("div", { class: "note question-row" }, el("span", { class: "tool-icon" }, icon(item.kind === "approval" ? "shield" : "bubble")),
      el("div", {}, el("div", { class: "muted", textContent: plain(item.text).slice(0, 2000) }), item.detail.command ? el("code", { class: "command-line", textContent: oneLine(item.detail.command, 300) }) : null, this.reply));
    this.update();
  }

  update() {
    const { item, t } = this;
    if (item.state === "answered") setText(this.reply, t("question.answered", { answer: answerWords(item, t) }));
    else if (item.state === "closed") setText(this.reply, t("question.closed"));
    else setText(this.reply, t("status.waiting"));
  }
}

export function answerWords(item, t) {
  const answer = String(item.answer ?? "");
  if (item.kind === "approval" && ["once", "session", "always", "deny"].includes(answer)) return t(`approval.${answer}`);
  return showDirection(answer.slice(0, 2000));
}

class ThoughtRow {
  constructor(item, context) {
    this.item = item;
    const { t } = context;
    const last = el("span", { class: "note-text", textContent: oneLine(item.text.slice(0, 300), 110) });
    const ms = item.endAt && item.at ? item.endAt - item.at : 0;
    this.fold = new Fold({
      className: "thought-row",
      head: [el("strong", { textContent: ms >= 1000 ? t("thought_for", { time: duration(ms, t) }) : t("thought") }), last],
      build: (body) => body.append(el("div", { class: "thought-text", textContent: plain(item.text.slice(0, 262144)) })),
    });
    this.node = this.fold.node;
  }

  update() {}
}

class EndingRow {
  constructor(item, context) {
    this.node = endLine(item, context.t);
  }

  update() {}
}

export function endLine(end, t) {
  const mark = { FAILED: "alert", INTERRUPTED: "dash", STOPPED: "stop", SUCCESS: "check" }[end.status];
  return el("div", { class: "ending", "data-state": end.status }, icon(mark), el("strong", { textContent: t(`end.${end.status}`) }), end.message ? el("span", { textContent: plain(end.message).slice(0, 2000) }) : null,
    end.code && end.status !== "SUCCESS" ? el("code", { class: "ending-code", textContent: oneLine(end.code, 60) }) : null);
}

export function makeRow(item, context) {
  switch (item.type) {
    case "tool":
      return new ToolRow(item, context);
    case "remark":
      return new MarkdownRow(item.text, context);
    case "thinking":
      return new ThoughtRow(item, context);
    case "question":
      return new QuestionRow(item, context);
    case "subagent":
      return new SubagentRow(item, context);
    case "ending":
      return new EndingRow(item, context);
    default:
      return new NoteRow(item, context);
  }
}

const TODO_MARK = { completed: "check", in_progress: "half", cancelled: "cross", pending: "circle" };

export class TodoList {
  constructor(context) {
    this.t = context.t;
    this.count = el("span", { class: "todo-count" });
    this.bar = el("span", { class: "bar-fill" });
    this.list = el("ol", { class: "todo-items" });
    this.node = el("div", { class: "todos" },
      el("div", { class: "todo-head" }, icon("list"), el("strong", { textContent: this.t("todos") }), this.count, el("span", { class: "bar", "aria-hidden": "true" }, this.bar)),
      this.list);
  }

  update(todos) {
    const { t } = this;
    const done = todos.filter((todo) => todo.status === "completed").length;
    const total = todos.filter((todo) => todo.status !== "cancelled").length;
    setText(this.count, t("todo_count", { done, total }));
    this.bar.style.width = `${total ? Math.round((done / total) * 100) : 0}%`;
    const shown = todos.slice(0, 200);
    while (this.list.children.length > shown.length) this.list.lastChild.remove();
    shown.forEach((todo, index) => {
      const status = Object.hasOwn(TODO_MARK, todo.status) ? todo.status : "pending";
      const text = plain(String(todo.content ?? "").slice(0, 500));
      let row = this.list.children[index];
      if (row?.dataset.state === status && row.dataset.text === text) return;
      const fresh = el("li", { "data-state": status, "data-text": text }, icon(TODO_MARK[status]), el("span", { class: "todo-text", textContent: text }), el("span", { class: status === "in_progress" ? "todo-word" : "sr", textContent: t(`todo.${status}`) }));
      if (row) row.replaceWith(fresh);
      else this.list.append(fresh);
    });
  }
}

/** The folded record's line and the usage line: only what is known. */
export function usageWords(usage, t) {
  if (!usage) return "";
  const parts = [];
  const total = (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0);
  if (total) parts.push(t("usage.tokens", { n: total >= 1000 ? `${(total / 1000).toFixed(1)} k` : total }));
  if (typeof usage.cost_usd === "number") parts.push(t("usage.cost", { n: usage.cost_usd.toFixed(usage.cost_usd < 0.1 ? 4 : 2) }));
  return parts.join(" · ");
}
