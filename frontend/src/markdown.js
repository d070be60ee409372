// Sanitised Markdown that grows: closed blocks are drawn once, only the tail is parsed again.
import DOMPurify from "dompurify";
import { Marked } from "marked";
import { el, icon } from "./dom.js";

const TAGS = [
  "p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "strong", "em", "del", "code", "pre", "blockquote",
  "ul", "ol", "li", "input", "a", "table", "thead", "tbody", "tr", "th", "td", "div", "span",
];
const ATTRIBUTES = ["href", "title", "class", "start", "align", "type", "checked", "disabled"];

const escape = (text) =>
  String(text).replace(/[&<>"']/g, (char) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" })[char]);

/** Only addresses of the web and of mail are links; everything else stays text. */
function safeAddress(href) {
  try {
    const url = new URL(href);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

const marked = new Marked({
  gfm: true,
  renderer: {
    html({ text }) {
      return /^<br\s*\/?>$/i.test(text.trim()) ? "<br>" : escape(text);
    },
    link({ href, tokens }) {
      const inner = this.parser.parseInline(tokens);
      const address = safeAddress(href);
      return address ? `<a href="${escape(address)}">${inner}</a>` : inner;
    },
    // A picture from elsewhere would tell its host who reads this: it is offered as a link.
    image({ href, text }) {
      const address = safeAddress(href);
      const label = escape(text || address || href.slice(0, 80));
      return address ? `<a class="image-link" href="${escape(address)}">${label}</a>` : label;
    },
    code({ text, lang }) {
      const language = (lang ?? "").trim().split(/\s+/)[0].slice(0, 30);
      return `<div class="code-box"><div class="code-head"><span>${escape(language)}</span></div><pre><code>${escape(text)}</code></pre></div>`;
    },
  },
});

// Our own instance: its hook concerns nobody else on the page.
const purify = DOMPurify(window);
purify.addHook("afterSanitizeAttributes", (node) => {
  if (node.nodeName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
  }
  if (node.nodeName === "INPUT") node.setAttribute("disabled", "");
});

/** Return `text` as a sanitised fragment, with tables and code in boxes of their own. */
export function renderMarkdown(text, t) {
  let html;
  try {
    html = marked.parse(text);
  } catch {
    html = `<p>${escape(text)}</p>`;
  }
  const fragment = purify.sanitize(html, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ATTRIBUTES,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
    ADD_URI_SAFE_ATTR: ["start", "align", "type", "checked", "disabled"],
    RETURN_DOM_FRAGMENT: true,
  });
  for (const table of fragment.querySelectorAll("table")) {
    const box = el("div", { class: "table-box", tabIndex: 0 });
    table.replaceWith(box);
    box.append(table);
  }
  for (const head of fragment.querySelectorAll(".code-box > .code-head")) head.append(copyButton(t));
  for (const node of [...fragment.childNodes]) if (node.nodeType === Node.TEXT_NODE && !node.data.trim()) node.remove();
  return fragment;
}

const copyButton = (t) =>
  el("button", { type: "button", class: "copy quiet", "data-copy": "", "aria-label": t("copy_code") }, icon("copy"), el("span", { class: "label", textContent: t("copy") }));

/** Make `old` look like `fresh` with as few changes as possible, so that a selection and the scroll of boxes survive. */
function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
    return fresh;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) {
      if (fresh.data.startsWith(old.data)) old.appendData(fresh.data.slice(old.data.length));
      else old.data = fresh.data;
    }
    return old;
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of [...fresh.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  let place = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    if (!place) old.append(child);
    else place = morph(place, child).nextSibling;
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
  return old;
}

const FENCE = /^( {0,3})(`{3,}|~{3,})(.*)$/;
const LIST = /^ {0,3}(?:[-*+]|\d{1,9}[.)])(?:\s|$)/;
const FORCE_SPLIT = 8192;
const CODE_CHUNK_LINES = 200;
const PART_CHARS = 8192; // stable blocks are grouped: the browser skips whole groups that are out of sight

export class MarkdownStream {
  constructor(root, t) {
    this.root = root;
    this.t = t;
    this.reset();
  }

  reset() {
    this.root.replaceChildren();
    this.container = null;
    this.partStart = 0;
    this.text = "";
    this.done = 0; // everything before is drawn for good
    this.scan = 0; // start of the first line not yet looked at
    this.boundary = -1; // a blank line that may close the block
    this.fence = null;
    this.lastStable = null;
    this.dirty = false;
  }

  append(text) {
    this.text += text;
    this.dirty = true;
  }

  /** Show exactly `text`; what is already there and still right stays. */
  set(text) {
    if (text === this.text) return;
    if (text.startsWith(this.text)) this.append(text.slice(this.text.length));
    else {
      this.reset();
      this.append(text);
    }
  }

  paint() {
    if (!this.dirty) return;
    this.dirty = false;
    this.#scanLines();
    if (this.fence?.live) this.#paintOpenCode();
    else this.#place(this.text.slice(this.done), false);
  }

  /** The text is complete: links defined anywhere in it now work everywhere in it. */
  finish() {
    this.paint();
    if (this.text.length > 300000 || !/^ {0,3}\[[^\]]+\]:\s*\S/m.test(this.text)) return;
    this.root.replaceChildren();
    this.#startPart();
    this.#place(this.text, false);
  }

  #startPart() {
    this.container?.classList.add("closed");
    this.container = el("div", { class: "part" });
    this.root.append(this.container);
    this.lastStable = null;
    this.partStart = this.done;
  }

  #scanLines() {
    for (let end; (end = this.text.indexOf("\n", this.scan)) !== -1; this.scan = end + 1) {
      const line = this.text.slice(this.scan, end);
      if (this.fence) {
        const mark = line.match(/^ *(`{3,}|~{3,})[ \t]*\r?$/)?.[1];
        if (mark && mark[0] === this.fence.mark[0] && mark.length >= this.fence.mark.length) this.#closeFence(end + 1);
        else if (this.fence.live) this.fence.code.push(line);
        continue;
      }
      const open = line.match(FENCE);
      if (open && !(open[2][0] === "`" && open[3].includes("`"))) {
        this.#openFence(open, end + 1);
      } else if (!line.trim()) {
        this.boundary = end + 1;
      } else {
        if (this.boundary > this.done && this.#startsBlock(line)) this.#commit(this.boundary);
        this.boundary = -1;
      }
    }
  }

  /** A blank line closes a block only if the next line does not belong to it (an indented line, the next item of a list). */
  #startsBlock(line) {
    if (/^\s/.test(line)) return false;
    if (!LIST.test(line)) return true;
    return !LIST.test(this.text.slice(this.done, this.done + 20)) || this.boundary - this.done > FORCE_SPLIT;
  }

  #openFence([, indent, mark, info], next) {
    if (indent && LIST.test(this.text.slice(this.done, this.done + 20))) {
      this.fence = { mark, live: false };
      return;
    }
    if (this.scan > this.done) this.#commit(this.scan);
    const pre = el("code");
    const language = info.trim().split(/\s+/)[0].slice(0, 30);
    const box = el("div", { class: "code-box" }, el("div", { class: "code-head" }, el("span", { textContent: language }), copyButton(this.t)), el("pre", {}, pre));
    this.#dropTail();
    this.#part().append(box);
    this.lastStable = box;
    this.fence = { mark, live: true, code: [], pre, indent: indent.length, chunk: null, lines: 0, partial: document.createTextNode("") };
    this.done = next;
    this.boundary = -1;
  }

  #closeFence(next) {
    if (this.fence.live) {
      this.#flushCode();
      this.fence.partial.remove();
      this.done = next;
      if (next - this.partStart > PART_CHARS) this.#startPart();
    }
    this.fence = null;
    this.boundary = -1;
  }

  #flushCode() {
    const fence = this.fence;
    for (const raw of fence.code) {
      const line = fence.indent ? raw.replace(new RegExp(`^ {0,${fence.indent}}`), "") : raw;
      if (!fence.chunk || fence.lines >= CODE_CHUNK_LINES) {
        fence.chunk = document.createTextNode("");
        fence.lines = 0;
        fence.pre.append(el("span", { class: "chunk" }, fence.chunk));
      }
      fence.chunk.appendData(`${line}\n`);
      fence.lines += 1;
    }
    fence.code = [];
  }

  #paintOpenCode() {
    const fence = this.fence;
    this.#flushCode();
    const rest = this.text.slice(this.scan);
    fence.partial.data = /^ *[`~]*$/.test(rest) ? "" : rest;
    if (fence.pre.lastChild !== fence.partial) fence.pre.append(fence.partial);
    this.done = Math.max(this.done, this.scan);
  }

  #commit(end) {
    this.#place(this.text.slice(this.done, end), true);
    this.done = end;
    this.boundary = -1;
    if (end - this.partStart > PART_CHARS) {
      this.#dropTail();
      this.#startPart();
    }
  }

  #part() {
    if (!this.container) this.#startPart();
    return this.container;
  }

  #dropTail() {
    if (!this.container) return;
    for (let node = this.#firstOfTail(); node; ) {
      const next = node.nextSibling;
      node.remove();
      node = next;
    }
  }

  #firstOfTail() {
    return this.lastStable ? this.lastStable.nextSibling : this.#part().firstChild;
  }

  #place(text, stable) {
    if (!this.container && !text.trim()) return;
    let place = this.#firstOfTail();
    if (text.trim()) {
      for (const fresh of [...renderMarkdown(text, this.t).childNodes]) {
        let node = fresh;
        if (place) {
          node = morph(place, fresh);
          place = node.nextSibling;
        } else this.#part().append(fresh);
        if (stable) this.lastStable = node;
      }
    }
    if (!stable) {
      while (place) {
        const next = place.nextSibling;
        place.remove();
        place = next;
      }
    }
  }
}

/** Let the copy buttons inside `container` work; one listener for all of them. */
export function copyCodeOnClick(container, copy) {
  container.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-copy]");
    const code = button?.closest(".code-box")?.querySelector("code");
    if (code) copy(button, code.textContent);
  });
}
