// The card of a waiting question. It is keyed by question id and stays until the server has confirmed an answer.
import { el, icon, setHidden, setText } from "./dom.js";
import { answerWords } from "./rows.js";
import { bounded, plain, showDirection } from "./text.js";

const KEPT = "parley.answer.v1.";
const MAX_ANSWER = 20000;

const kept = {
  read(id) {
    try {
      return localStorage.getItem(KEPT + id) ?? "";
    } catch {
      return "";
    }
  },
  write(id, text) {
    try {
      if (text) localStorage.setItem(KEPT + id, text);
      else localStorage.removeItem(KEPT + id);
    } catch {
      // No storage: the text lives as long as the page.
    }
  },
};

export class QuestionCard {
  /** `post(questionId, answer)` resolves to `{ok}` or `{conflict: true, answer, closed}`; it rejects when nothing was decided. */
  constructor(item, context, post, settled) {
    this.item = item;
    this.t = context.t;
    this.post = post;
    this.settled = settled;
    this.sending = false;
    const { t } = this;
    this.buttons = [];
    this.note = el("p", { class: "card-note", role: "status" });
    this.retry = el("button", { type: "button", class: "button", textContent: t("question.retry"), hidden: true, onclick: () => this.#send(this.lastAnswer) });
    this.form = item.kind === "approval" ? this.#approval() : this.#clarify();
    this.closing = el("p", { class: "card-closing", hidden: true });
    this.node = el("section", { class: "card", "data-kind": item.kind, "data-question": item.questionId, "aria-label": t(item.kind === "approval" ? "approval.title" : "question.title") },
      el("div", { class: "card-head" }, icon(item.kind === "approval" ? "shield" : "bubble"), el("strong", { textContent: t(item.kind === "approval" ? "approval.title" : "question.title") }), (this.badge = el("span", { class: "badge", textContent: t("status.waiting") }))),
      el("p", { class: "card-question", dir: "auto", textContent: plain(item.text).slice(0, 8000) }),
      this.form, el("div", { class: "card-foot" }, this.note, this.retry), this.closing);
    this.update();
  }

  #choice(label, answer, className = "") {
    const button = el("button", { type: "button", class: `button ${className}`, onclick: () => this.#send(answer) }, el("span", { dir: "auto", textContent: label }));
    this.buttons.push(button);
    return button;
  }

  #clarify() {
    const { item, t } = this;
    const choices = item.choices.slice(0, 50).map((choice) => this.#choice(showDirection(choice.slice(0, 500)), choice));
    const inputId = `parley-answer-${item.questionId}`;
    this.input = el("textarea", { id: inputId, rows: 1, maxLength: MAX_ANSWER, placeholder: t(choices.length ? "question.other" : "question.placeholder"), value: kept.read(item.questionId) });
    this.input.oninput = () => {
      kept.write(item.questionId, this.input.value);
      this.#grow();
    };
    this.input.onkeydown = (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
      event.preventDefault();
      this.#send(this.input.value.trim());
    };
    const send = el("button", { type: "button", class: "button primary", textContent: t("question.send"), onclick: () => this.#send(this.input.value.trim()) });
    this.buttons.push(send);
    return el("div", { class: "card-form" }, choices.length ? el("div", { class: "choices", role: "group" }, ...choices) : null,
      el("div", { class: "free" }, el("label", { class: "sr", for: inputId, textContent: t("question.placeholder") }), this.input, send));
  }

  #grow() {
    this.input.rows = Math.min(6, this.input.value.slice(0, 2000).split("\n").length);
  }

  #approval() {
    const { item, t } = this;
    const command = String(item.detail.command ?? "");
    const offered = item.choices.length ? item.choices : ["once", "session", "deny"];
    const buttons = ["once", "session", "always"].filter((choice) => offered.includes(choice)).map((choice) => this.#choice(t(`approval.${choice}`), choice, choice === "once" ? "primary" : ""));
    buttons.push(this.#choice(t("approval.deny"), "deny", "danger"));
    const description = String(item.detail.description ?? "");
    return el("div", { class: "card-form" },
      command ? el("pre", { class: "command", tabIndex: 0, "aria-label": t("approval.command") }, el("code", { textContent: bounded(command, { chars: 20000, lines: 400, line: 4000 }).text })) : null,
      description && description !== item.text ? el("p", { class: "muted", dir: "auto", textContent: plain(description).slice(0, 2000) }) : null,
      el("div", { class: "choices", role: "group" }, ...buttons));
  }

  async #send(answer) {
    if (this.sending || this.item.state !== "open" || !answer) {
      if (!answer) this.input?.focus();
      return;
    }
    this.sending = true;
    this.lastAnswer = answer;
    this.#enable(false);
    setHidden(this.retry, true);
    setText(this.note, this.t("question.sending"));
    try {
      const outcome = await this.post(this.item.questionId, answer);
      if (outcome.ok) {
        Object.assign(this.item, { state: "answered", answer });
      } else if (outcome.closed) {
        this.item.state = "closed";
      } else {
        Object.assign(this.item, { state: "answered", answer: outcome.answer, elsewhere: true });
      }
      setText(this.note, "");
      this.update();
      this.settled();
    } catch (error) {
      if (this.item.state === "open") {
        setText(this.note, this.t(error.refused ? "question.refused" : "question.not_sent", { reason: error.refused ?? "" }));
        setHidden(this.retry, false);
      }
    } finally {
      this.sending = false;
      this.#enable(this.item.state === "open");
    }
  }

  #enable(on) {
    for (const button of this.buttons) button.disabled = !on;
    if (this.input) this.input.readOnly = !on;
  }

  update(end = null) {
    const { item, t } = this;
    if (this.shown === item.state && this.shownAnswer === item.answer) return;
    this.shown = item.state;
    this.shownAnswer = item.answer;
    const open = item.state === "open";
    this.node.dataset.state = item.state;
    setHidden(this.form, !open);
    setHidden(this.badge, !open);
    setHidden(this.closing, open);
    if (open) return;
    const unsent = item.state === "closed" || item.elsewhere ? (this.input?.value.trim() ?? "") : "";
    kept.write(item.questionId, "");
    setHidden(this.retry, true);
    setText(this.note, "");
    if (item.state === "answered") {
      setText(this.closing, t(item.elsewhere ? "question.already" : "question.answered", { answer: answerWords(item, t) }));
    } else {
      setText(this.closing, t(end ? `question.closed_${end.status}` : "question.closed"));
    }
    // The card goes with the live panel a moment later: what was typed must be somewhere else by then.
    if (unsent) window.dispatchEvent(new CustomEvent("parley:compose", { detail: { text: unsent } }));
  }
}
