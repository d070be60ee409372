// The box where people write: draft per session, model and skill, Send or Stop.
import { el, icon, mountable, setHidden, setText, spinner, translator } from "./dom.js";
import { draftKey, parseDraft, pruneDrafts, readDraft, removeDraft, writeDraft } from "./drafts.js";
import css from "./composer.css";

const SAVE_AFTER_MS = 300;
const REPLY_WITHIN_MS = 10000;
const MEASURED_CHARS = 4000;
const GROWS_BY_CSS = globalThis.CSS?.supports?.("field-sizing", "content") ?? false;

const newNonce = () => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random().toString(36).slice(2)}`;

function fillSelect(select, options, value) {
  const wanted = JSON.stringify(options);
  if (select.dataset.options !== wanted) {
    select.dataset.options = wanted;
    select.replaceChildren(...options.map(({ value: id, label, title }) => el("option", { value: id, textContent: label, title: title ?? "" })));
  }
  const known = options.some((option) => option.value === value);
  if (select.value !== (known ? value : "")) select.value = known ? value : "";
}

/** A choice that is not on the list (the Bridge is away, the model was removed) stays chosen: nobody took it back. */
function withChosen(options, value) {
  return options.some((option) => option.value === value) ? options : [...options, { value, label: value }];
}

class Composer {
  constructor(root) {
    this.root = root;
    this.handled = new Set();
    this.session = undefined;
    this.sending = null;
    pruneDrafts();
    this.onHide = () => document.visibilityState === "hidden" && this.#save();
    this.onStorage = (event) => this.#otherTab(event);
    this.onCompose = (event) => this.#insert(String(event.detail?.text ?? ""));
    document.addEventListener("visibilitychange", this.onHide);
    window.addEventListener("pagehide", (this.onLeave = () => this.#save()));
    window.addEventListener("storage", this.onStorage);
    window.addEventListener("parley:compose", this.onCompose);
  }

  destroy() {
    this.#save();
    clearTimeout(this.saveTimer);
    clearTimeout(this.replyTimer);
    document.removeEventListener("visibilitychange", this.onHide);
    window.removeEventListener("pagehide", this.onLeave);
    window.removeEventListener("storage", this.onStorage);
    window.removeEventListener("parley:compose", this.onCompose);
  }

  #build() {
    const { t } = this;
    this.message = el("p", { class: "message", role: "alert", hidden: true });
    this.text = el("textarea", { rows: 1, "aria-label": t("label"), placeholder: t("placeholder"), autocomplete: "off", spellcheck: true, enterKeyHint: "send" });
    this.model = el("select", { class: "choice", "aria-label": t("model.label"), title: t("model.label") });
    this.skill = el("select", { class: "choice", "aria-label": t("skill.label"), title: t("skill.label") });
    this.counter = el("span", { class: "counter", hidden: true });
    this.status = el("span", { class: "sr", role: "status" });
    this.send = el("button", { type: "button", class: "act send", "aria-label": t("send"), title: t("send") }, icon("send"), el("span", { class: "label", textContent: t("send") }));
    this.stop = el("button", { type: "button", class: "act stop", hidden: true }, icon("stop"), el("span", { class: "label" }));
    this.box = el("div", { class: "box" }, this.text, el("div", { class: "foot" }, this.model, this.skill, el("span", { class: "space" }), this.counter, this.send, this.stop));
    this.root.append(this.message, this.box, this.status);

    this.text.oninput = () => this.#changed();
    this.text.onkeydown = (event) => {
      // An Enter that ends a word of an input method is not ours (229: Safari reports it after composition has ended).
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
      event.preventDefault();
      this.#submit();
    };
    this.model.onchange = () => {
      this.chosen.model = this.model.value;
      this.#save();
    };
    this.skill.onchange = () => {
      this.chosen.skill = this.skill.value;
      this.#save();
    };
    this.send.onclick = () => this.#submit();
    this.stop.onclick = () => this.#stopRun();
    this.box.onclick = (event) => event.target === this.box && this.text.focus();
  }

  // What the page says

  update(component) {
    const { data } = component;
    this.component = component;
    this.t = translator(data.texts);
    this.data = data;
    if (!this.box) this.#build();
    this.#takeReply(data);
    if (data.session !== this.session) this.#enter(data.session);
    this.#takePrefill(data.prefill);
    this.#drawChoices();
    if (data.run?.run_id !== this.stopping) this.stopping = null;
    if (data.run?.stop_requested) this.stopping = data.run.run_id;
    if (!data.run && this.messageKind === "busy") this.#say("");
    this.#draw();
  }

  #takeReply({ accepted, refused }) {
    if (accepted && !this.handled.has(accepted)) {
      this.handled.add(accepted);
      if (this.last?.nonce === accepted) this.#accepted(this.last);
    }
    if (refused?.nonce && !this.handled.has(refused.nonce)) {
      this.handled.add(refused.nonce);
      if (this.last?.nonce === refused.nonce) {
        this.#release();
        this.last = null;
        this.#say(refused.message, "refused");
        this.#save();
        this.text.focus();
      }
    }
  }

  #accepted(sent) {
    const here = sent.session === this.session;
    this.#release();
    this.last = null;
    if (here && this.text.value === sent.text) {
      this.text.value = "";
      this.#say("");
    }
    const stored = readDraft(sent.session);
    if (sent.session && (sent.model !== null || sent.skill !== null)) writeDraft(sent.session, { text: "", model: sent.model, skill: sent.skill });
    else if (!stored || stored.text === sent.text) removeDraft(sent.session);
    if (here) {
      clearTimeout(this.saveTimer);
      this.#grow();
    }
  }

  /** Another session is on screen: keep the draft of the one that was, show the one that is. */
  #enter(session) {
    if (this.session !== undefined) this.#save();
    if (this.sending && this.sending.session !== session) this.#release();
    this.session = session;
    const draft = readDraft(session);
    this.chosen = { model: draft?.model ?? null, skill: draft?.skill ?? null };
    this.text.value = draft?.text ?? "";
    this.#say(draft?.text && draft.sent ? this.t("maybe_sent") : "", "hint");
    this.#grow();
    if (this.data.autofocus && !matchMedia("(pointer: coarse)").matches) this.text.focus({ preventScroll: true });
  }

  #takePrefill(prefill) {
    if (!prefill?.nonce || this.handled.has(prefill.nonce)) return;
    this.handled.add(prefill.nonce);
    if (this.sending) return;
    this.text.value = [this.text.value.trim(), prefill.text ?? ""].filter(Boolean).join("\n\n");
    if (typeof prefill.model === "string") this.chosen.model = prefill.model;
    if (typeof prefill.skill === "string") this.chosen.skill = prefill.skill;
    this.#changed();
    this.text.focus();
    this.text.setSelectionRange(this.text.value.length, this.text.value.length);
  }

  #insert(text) {
    if (this.sending || !text) return;
    this.text.value = this.text.value.trim() ? `${this.text.value.trimEnd()}\n\n${text}` : text;
    this.#changed();
    this.text.focus();
  }

  #otherTab(event) {
    if (event.key !== draftKey(this.session) || this.sending || this.root.getRootNode().activeElement === this.text) return;
    const draft = parseDraft(event.newValue);
    this.text.value = draft?.text ?? "";
    if (draft) this.chosen = { model: draft.model ?? null, skill: draft.skill ?? null };
    this.#drawChoices();
    this.#grow();
    this.#draw();
  }

  // What the person does

  #changed() {
    if (this.messageKind !== "refused" || !this.text.value) this.#say("");
    clearTimeout(this.saveTimer);
    this.saveTimer = setTimeout(() => this.#save(), SAVE_AFTER_MS);
    this.#grow();
    this.#draw();
  }

  #save() {
    clearTimeout(this.saveTimer);
    if (this.session === undefined) return;
    const text = this.text.value;
    const { model, skill } = this.chosen;
    if (!text && model === null && skill === null) removeDraft(this.session);
    else writeDraft(this.session, { text, model, skill, ...(this.sending ? { sent: true } : {}) });
  }

  get #tooLong() {
    const { length } = this.text.value;
    return length > this.data.limit && [...this.text.value].length > this.data.limit;
  }

  #submit() {
    const text = this.text.value;
    if (this.sending) return;
    if (this.data.run) {
      if (text.trim()) this.#say(this.t("busy"), "busy");
      return;
    }
    if (!text.trim()) return;
    if (this.#tooLong) {
      this.#say(this.t("too_long", { limit: this.data.limit.toLocaleString() }), "refused");
      return;
    }
    const nonce = newNonce();
    const { model, skill } = this.chosen;
    this.sending = this.last = { nonce, session: this.session, text, model, skill };
    this.#say("");
    this.#save();
    this.#draw();
    this.replyTimer = setTimeout(() => {
      this.#release();
      this.#say(this.t("no_reply"), "hint");
      this.#save();
    }, REPLY_WITHIN_MS);
    this.component.setTriggerValue("send", { nonce, session: this.session, text, model: this.model.value, skill: this.skill.value });
  }

  #release() {
    clearTimeout(this.replyTimer);
    this.sending = null;
    this.#draw();
  }

  async #stopRun() {
    const { run, base } = this.data;
    if (!run || this.stopping === run.run_id) return;
    this.stopping = run.run_id;
    this.#draw();
    window.dispatchEvent(new CustomEvent("parley:stopping", { detail: { run: run.run_id } }));
    try {
      const response = await fetch(`${base}/api/chat/runs/${encodeURIComponent(run.run_id)}/stop`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: "{}",
        credentials: "same-origin",
      });
      if (!response.ok && response.status !== 404 && response.status !== 409) throw new Error(`stop answered ${response.status}`);
    } catch {
      if (this.stopping === run.run_id) this.stopping = null;
      this.#say(this.t("stop_failed"), "hint");
      this.#draw();
    }
  }

  // What is drawn

  #say(text, kind = "") {
    this.messageKind = text ? kind : "";
    setText(this.message, text);
    this.message.dataset.kind = this.messageKind;
    setHidden(this.message, !text);
  }

  #drawChoices() {
    const { t, data } = this;
    const models = data.models.map(({ id, label, tools }) => ({ value: id, label: tools === false ? t("model.no_tools", { label }) : label }));
    const skills = data.skills.map(({ folder, name, description }) => ({ value: folder, label: name, title: description }));
    const model = this.chosen.model ?? data.model_id ?? "";
    const skill = this.chosen.skill ?? data.skill_folder ?? "";
    fillSelect(this.model, withChosen([{ value: "", label: t("model.default") }, ...models], model), model);
    fillSelect(this.skill, withChosen([{ value: "", label: t("skill.default") }, ...skills], skill), skill);
    setHidden(this.skill, skills.length === 0);
  }

  #draw() {
    const { t, data } = this;
    const { length } = this.text.value;
    const run = data.run;
    const sending = Boolean(this.sending);
    this.text.readOnly = sending;
    this.box.classList.toggle("sending", sending);
    this.box.setAttribute("aria-busy", String(sending));
    this.model.disabled = this.skill.disabled = sending;

    setHidden(this.send, Boolean(run) && !sending);
    setHidden(this.stop, !run || sending);
    const near = length > data.limit * 0.9;
    setHidden(this.counter, !near);
    const tooLong = near && this.#tooLong;
    if (near) setText(this.counter, t("count", { n: length.toLocaleString(), limit: data.limit.toLocaleString() }));
    this.counter.classList.toggle("over", tooLong);
    this.send.disabled = sending || tooLong || !/\S/.test(length > 10000 ? this.text.value.slice(0, 10000) || this.text.value : this.text.value);
    if (sending !== this.sendingDrawn) {
      this.sendingDrawn = sending;
      this.send.replaceChildren(sending ? spinner() : icon("send"), el("span", { class: "label", textContent: t(sending ? "sending" : "send") }));
    }
    if (run) {
      const stopping = this.stopping === run.run_id;
      this.stop.disabled = stopping;
      setText(this.stop.querySelector(".label"), t(stopping ? "stopping" : "stop"));
    }
    setText(this.status, sending ? t("sending") : run && this.stopping === run.run_id ? t("stopping") : "");
    this.text.placeholder = t(run ? (run.status === "WAITING" ? "placeholder_waiting" : "placeholder_working") : "placeholder");
  }

  /** Browsers that size fields by content do this alone; long texts are at the full height anyway. */
  #grow() {
    if (GROWS_BY_CSS) return;
    const { text } = this;
    if (text.value.length > MEASURED_CHARS) {
      text.style.height = "";
      text.rows = 10;
      return;
    }
    text.rows = 1;
    text.style.height = "0";
    text.style.height = `${text.scrollHeight}px`;
  }
}

export default mountable(Composer, css);
