// The branch map: one row for each message, its lines drawn beside it. What it shows came as text and stays text.
import { el, mountable, translator } from "./dom.js";
import { oneLine } from "./text.js";
import css from "./branch_map.css";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = { message: 46, fold: 30, start: 30 }; // as in the style
const DOT = 4.5;
const LANE = 16;
const MOST_WIDTH = 144;

function shape(name, properties) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(properties)) if (value !== null && value !== undefined) node.setAttribute(key, value);
  return node;
}

/** The lines beside one row: those of other branches that pass, where its own comes from, and where it goes on. */
function rails(row, lanes) {
  const step = Math.min(LANE, MOST_WIDTH / lanes);
  const height = HEIGHT[row.kind];
  const middle = height / 2;
  const x = (lane) => step * (lane + 0.5);
  const line = (d, lane, extra = "") => shape("path", { d, class: `${lane === 0 ? "active" : ""} ${extra}` });
  const svg = shape("svg", { class: "rails", width: step * lanes, height, viewBox: `0 0 ${step * lanes} ${height}`, "aria-hidden": "true" });
  for (const lane of row.passing) if (lane !== row.lane) svg.append(line(`M${x(lane)} 0V${height}`, lane));
  const at = x(row.lane);
  const folded = row.kind === "fold" ? "folded" : "";
  if (row.link === "lane") svg.append(line(`M${at} 0V${middle}`, row.lane, folded));
  if (row.link === "fork") svg.append(line(`M${x(row.lane - 1)} 0C${x(row.lane - 1)} ${middle * 0.8} ${at} ${middle * 0.2} ${at} ${middle}`, row.lane));
  // The line of a lane also goes on below a message whose other versions are drawn first.
  if (row.goes_on || row.passing.includes(row.lane)) svg.append(line(`M${at} ${middle}V${height}`, row.lane, folded));
  if (row.kind !== "fold") svg.append(shape("circle", { cx: at, cy: middle, r: row.role === "SYSTEM" || row.kind === "start" ? 2.5 : DOT, class: row.active ? "active" : "", "data-state": row.status }));
  return svg;
}

const sample = (active) => {
  const svg = shape("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" });
  svg.append(shape("path", { d: "M6 -1V13", class: active ? "active" : "" }), shape("circle", { cx: 6, cy: 6, r: 4, class: active ? "active" : "" }));
  return svg;
};

class BranchMap {
  constructor(root) {
    this.key = el("p", { class: "key" });
    this.tree = el("div", { class: "tree", role: "listbox" });
    this.tree.addEventListener("keydown", (event) => this.#move(event));
    root.append(this.key, this.tree);
    this.shown = "";
  }

  update(component) {
    this.component = component;
    const { rows, texts } = component.data;
    const state = JSON.stringify(rows);
    if (state === this.shown) return;
    const isFirst = !this.shown;
    this.shown = state;
    const t = translator(texts);
    this.tree.setAttribute("aria-label", t("title"));
    this.key.replaceChildren(el("span", {}, sample(true), t("key.active")), el("span", {}, sample(false), t("key.other")), el("span", { textContent: t("key.click") }));
    const lanes = 1 + Math.max(0, ...rows.map((row) => row.lane));
    const focused = this.buttons?.indexOf(this.tree.getRootNode().activeElement) ?? -1;
    this.buttons = [];
    this.tree.replaceChildren(...rows.map((row) => this.#row(row, lanes, t)));
    const here = this.buttons.find((button) => button.hasAttribute("aria-current")) ?? this.buttons.findLast((button) => "active" in button.dataset);
    this.#focusable(this.buttons[focused] ?? here ?? this.buttons[0]);
    if (focused >= 0) this.buttons[Math.min(focused, this.buttons.length - 1)].focus({ preventScroll: true });
    else if (isFirst && here) requestAnimationFrame(() => {
      this.tree.scrollTop = here.offsetTop - this.tree.offsetTop - this.tree.clientHeight / 2;
      here.focus({ preventScroll: true });
    });
  }

  #row(row, lanes, t) {
    const texts = el("span", { class: "texts" }, el("span", { class: "words", dir: "auto", textContent: oneLine(row.words, 300) }));
    if (row.facts) {
      const facts = el("span", { class: "facts" });
      row.facts.forEach((fact, at) => {
        if (at) facts.append(" · ");
        const isState = row.status && fact === t(`status.${row.status}`);
        facts.append(el("span", { class: isState ? "state" : "", "data-state": isState ? row.status : undefined, textContent: oneLine(fact, 120) }));
      });
      texts.append(facts);
    }
    const marks = [row.here ? t("here") : "", row.kind === "message" && !row.active ? t("key.other") : ""].filter(Boolean);
    const props = { class: "row", "data-kind": row.kind, "data-role": row.role, "data-active": row.active ? "" : undefined, "aria-current": row.here ? "true" : undefined, role: "option", "aria-selected": String(Boolean(row.here)) };
    if (row.kind === "start") return el("div", { ...props, role: "presentation" }, rails(row, lanes), texts);
    const button = el("button", { ...props, type: "button", tabIndex: -1, onclick: () => this.#choose(row) }, rails(row, lanes), texts);
    if (row.here) button.append(el("span", { class: "here", textContent: t("here") }));
    button.setAttribute("aria-label", [oneLine(row.words, 160), ...(row.facts ?? []).map((fact) => oneLine(fact, 80)), ...marks].join(", "));
    this.buttons.push(button);
    return button;
  }

  #choose(row) {
    if (row.kind === "fold") this.component.setTriggerValue("unfold", { fold: row.fold });
    else this.component.setTriggerValue("go", { message: row.message });
  }

  #focusable(button) {
    for (const other of this.buttons) other.tabIndex = other === button ? 0 : -1;
  }

  #move(event) {
    const at = this.buttons.indexOf(this.tree.getRootNode().activeElement);
    const last = this.buttons.length - 1;
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: last, PageDown: at + 10, PageUp: at - 10 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    const button = this.buttons[Math.max(0, Math.min(last, to))];
    this.#focusable(button);
    button.focus();
  }

  destroy() {}
}

export default mountable(BranchMap, css);
