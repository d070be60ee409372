// What a run has done so far, built from its entries. Applying an entry twice changes nothing.

const ENDS = { run_finished: "SUCCESS", run_failed: "FAILED", run_stopped: "STOPPED", run_interrupted: "INTERRUPTED" };

// Agents like to open their remarks with a pictograph; our own marks and words say it already.
const LEADING_PICTURES = /^(?:[\p{Extended_Pictographic}\ufe0f\u200d]+\s*)+/u;

/** Bring an event of the stream or a stored log entry into one shape. */
export function normalise(raw, event = "") {
  const meta = raw.meta && typeof raw.meta === "object" ? raw.meta : {};
  const kind = raw.kind || { token: "answer", done: "run_finished", error: "run_failed" }[event] || event || "unknown";
  const text = asText(raw.text ?? raw.content);
  return { ...meta, ...raw, kind, text, at: raw.at ?? raw.created_at ?? "" };
}

function asText(value) {
  if (typeof value === "string") return value;
  if (value === undefined || value === null) return "";
  try {
    return JSON.stringify(value);
  } catch {
    return "";
  }
}

function parsed(text, otherwise) {
  try {
    return JSON.parse(text);
  } catch {
    return otherwise;
  }
}

export class RunModel {
  constructor() {
    this.reset();
  }

  reset() {
    this.lastSeq = 0;
    this.startedAt = null;
    this.lastAt = null;
    /** Things in the order they happened: thinking, remark, tool, note, question. */
    this.items = [];
    this.tools = new Map();
    this.questions = new Map();
    this.helpers = new Map();
    this.todos = null;
    this.answer = "";
    this.status = null;
    this.usage = null;
    this.end = null;
    this.doing = "starting";
    this.serial = 0;
    this.version = (this.version ?? 0) + 1;
  }

  /** Return whether the entry was new. */
  apply(entry) {
    const seq = Number(entry.seq);
    if (!Number.isFinite(seq) || seq <= this.lastSeq) return false;
    if (this.end && entry.kind !== "run_started") return false;
    this.lastSeq = Math.max(seq, Number(entry.seq_to) || 0);
    const at = Date.parse(entry.at);
    this.lastAt = Number.isNaN(at) ? this.lastAt : at;
    this.startedAt ??= this.lastAt;
    const handler = RunModel.HANDLERS[entry.kind] ?? RunModel.prototype.onOther;
    handler.call(this, entry);
    return true;
  }

  get openQuestion() {
    for (const question of this.questions.values()) if (question.state === "open") return question;
    return null;
  }

  get runningTools() {
    return this.end ? [] : [...this.tools.values()].filter((tool) => tool.state === "running");
  }

  get thinking() {
    const last = this.items.at(-1);
    return last?.type === "thinking" ? last : null;
  }

  #add(type, fields) {
    const item = { type, id: `${type}-${++this.serial}`, at: this.lastAt, ...fields };
    this.items.push(item);
    return item;
  }

  onThinking({ text }) {
    this.doing = "thinking";
    const open = this.thinking ?? this.#add("thinking", { text: "" });
    open.text += text;
    open.endAt = this.lastAt;
  }

  onAnswer({ text }) {
    this.doing = "answering";
    this.answer += text;
  }

  onBreak({ text }) {
    const remark = text || this.answer;
    this.answer = "";
    if (remark.trim()) this.#add("remark", { text: remark });
  }

  onStatus(entry) {
    const { level } = entry;
    const text = entry.text.replace(LEADING_PICTURES, "");
    this.status = { text, level: level ?? "info", at: this.lastAt };
    this.doing = "status";
    if (level === "warning" || level === "error") this.#add("note", { text, level });
  }

  onToolCall(entry) {
    this.doing = "tool";
    const callId = entry.call_id || `seq-${entry.seq}`;
    if (this.tools.has(callId)) return;
    const args = entry.args ?? parsed(entry.text, entry.text);
    this.tools.set(callId, this.#add("tool", { callId, name: entry.name ?? entry.tool_name ?? "", args, state: "running" }));
  }

  onToolResult(entry) {
    let tool = this.tools.get(entry.call_id);
    if (!tool) {
      this.onToolCall({ ...entry, args: {}, text: "" });
      tool = this.items.at(-1);
    }
    const result = entry.result ?? entry.text;
    tool.result = asText(result);
    tool.durationMs = entry.duration_ms ?? (this.lastAt && tool.at ? this.lastAt - tool.at : null);
    tool.state = entry.is_error ? "error" : "done";
    tool.resultRef = entry.result_ref ?? "";
    tool.bytes = entry.bytes ?? null;
    tool.cut = Boolean(entry.cut);
    if (!this.runningTools.length) this.doing = "between";
  }

  onTodos(entry) {
    const todos = entry.todos ?? parsed(entry.text, []);
    if (Array.isArray(todos)) this.todos = todos.filter((todo) => todo && typeof todo === "object");
  }

  onRequest(kind, entry) {
    const source = entry.question && typeof entry.question === "object" ? entry.question : entry;
    const questionId = source.question_id ?? entry.question_id;
    if (!questionId || this.questions.has(questionId)) return;
    const detail = { ...(source.detail ?? {}) };
    detail.command ??= source.command ?? entry.command;
    detail.description ??= source.description ?? entry.description;
    const text = typeof source.question === "string" ? source.question : entry.text;
    const choices = Array.isArray(source.choices) ? source.choices.map(String) : [];
    this.questions.set(questionId, this.#add("question", { questionId, kind, text, choices, detail, state: "open" }));
    this.doing = "waiting";
  }

  onReply(entry) {
    const questionId = entry.question_id ?? entry.question?.question_id;
    const question = this.questions.get(questionId);
    if (!question) return;
    question.state = "answered";
    question.answer = typeof entry.answer === "string" ? entry.answer : entry.text;
    question.answeredBy = entry.answered_by ?? "";
    this.doing = "between";
  }

  onCompacted({ text, condensed }) {
    this.#add("note", { text: "", detail: text, level: "info", key: "note.compacted", values: { n: condensed ?? "" } });
  }

  onSubagent(entry) {
    const event = String(entry.event ?? "").replace(/^subagent[._]/, "");
    const text = String(entry.text || entry.goal || entry.name || "").slice(0, 2000);
    const id = entry.subagent_id ?? "";
    const known = this.helpers.get(id);
    if (known) {
      known.event = event;
      if (text) known.text = text;
    } else this.helpers.set(id, this.#add("subagent", { subagentId: id, event, text }));
    this.doing = "subagent";
  }

  onUsage(entry) {
    const { kind, seq, v, at, text, ...usage } = entry;
    this.usage = usage;
  }

  /** A message that was continued holds more than one run: the earlier end becomes a thing that happened. */
  onStarted() {
    if (this.end) this.#add("ending", { ...this.end });
    this.end = null;
    this.startedAt = this.lastAt ?? this.startedAt;
  }

  onEnd(entry) {
    const status = ENDS[entry.kind] && entry.status in { SUCCESS: 1, FAILED: 1, STOPPED: 1, INTERRUPTED: 1 } ? entry.status : (ENDS[entry.kind] ?? "SUCCESS");
    const error = entry.error && typeof entry.error === "object" ? entry.error : entry;
    this.end = { status, code: error.code ?? "", message: asText(error.message), at: this.lastAt };
    if (entry.text && (status === "SUCCESS" || status === "STOPPED")) this.answer = entry.text;
    for (const tool of this.tools.values()) if (tool.state === "running") tool.state = "cut";
    for (const question of this.questions.values()) if (question.state === "open") question.state = "closed";
    this.doing = "ended";
  }

  onOther(entry) {
    const text = entry.text || String(entry.message ?? "");
    this.#add("note", { text: text || entry.kind, level: "info" });
  }

  static HANDLERS = {
    run_started: this.prototype.onStarted,
    thinking: this.prototype.onThinking,
    answer: this.prototype.onAnswer,
    answer_break: this.prototype.onBreak,
    status: this.prototype.onStatus,
    tool_call: this.prototype.onToolCall,
    tool_result: this.prototype.onToolResult,
    todo_update: this.prototype.onTodos,
    clarify_request(entry) {
      this.onRequest("clarify", entry);
    },
    approval_request(entry) {
      this.onRequest("approval", entry);
    },
    clarify_answer: this.prototype.onReply,
    approval_decision: this.prototype.onReply,
    context_compacted: this.prototype.onCompacted,
    subagent: this.prototype.onSubagent,
    usage: this.prototype.onUsage,
    run_finished: this.prototype.onEnd,
    run_failed: this.prototype.onEnd,
    run_stopped: this.prototype.onEnd,
    run_interrupted: this.prototype.onEnd,
  };
}
