// Small DOM pieces: elements, icons, and how a component lives across Streamlit's repeated calls.

/** Create an element. `props` are properties, except `class`, `data-*`, `aria-*`, `role` and `for`; text is always text. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class" || name === "role" || name === "for" || name.includes("-")) node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setHidden(node, hidden) {
  if (node.hidden !== hidden) node.hidden = hidden;
}

// Our own line drawings on a 16 x 16 grid.
const PATHS = {
  chevron: "M6 4l4 4-4 4",
  check: "M3.5 8.5l3 3 6-7",
  cross: "M4.5 4.5l7 7M11.5 4.5l-7 7",
  dash: "M4.5 8h7",
  circle: "M8 2.75a5.25 5.25 0 1 0 0 10.5a5.25 5.25 0 1 0 0-10.5z",
  half: "M8 2.75a5.25 5.25 0 1 0 0 10.5a5.25 5.25 0 1 0 0-10.5zM8 5.5v2.7l1.8 1.3",
  file: "M4.25 2.5h4.5l3 3v8h-7.5zM8.75 2.5v3h3",
  pencil: "M3 13l.7-2.9 7-7 2.2 2.2-7 7zM9.4 4.4l2.2 2.2",
  terminal: "M2.5 3.5h11v9h-11zM5 6.5l2 1.75-2 1.75M8.5 10h2.5",
  search: "M7 3a4 4 0 1 0 0 8a4 4 0 1 0 0-8zM10 10l3.2 3.2",
  globe: "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11zM2.5 8h11M8 2.5c-3.6 3.4-3.6 7.6 0 11c3.6-3.4 3.6-7.6 0-11z",
  list: "M3 4.5h.01M3 8h.01M3 11.5h.01M6 4.5h7M6 8h7M6 11.5h7",
  bookmark: "M4.5 2.5h7v11L8 10.8l-3.5 2.7z",
  book: "M3 3.5c2-.8 3.6-.6 5 .5 1.4-1.1 3-1.3 5-.5v9c-2-.8-3.6-.6-5 .5-1.4-1.1-3-1.3-5-.5zM8 4v9",
  bubble: "M2.75 3.5h10.5v7.5H8l-3 2.5V11H2.75z",
  wrench: "M13.2 4.6a3.2 3.2 0 0 1-4.3 3.7l-4.6 4.6-1.7-1.7 4.6-4.6a3.2 3.2 0 0 1 3.9-4.2L9 4.5l.5 2 2 .5z",
  down: "M8 3v9.5M4 8.75l4 4 4-4",
  copy: "M5.5 5.5h7.5v7.5H5.5zM3 10.5V3h7.5",
  send: "M8 13V3.5M4 7.25l4-4 4 4",
  stop: "M4.5 4.5h7v7h-7z",
  alert: "M8 2.75l5.75 10.5H2.25zM8 6.5v3M8 11.4v.1",
  fork: "M4.5 3v10M4.5 6c0 3 7 1 7 4.5M11.5 12.5v.5M4.5 3v.5",
  fold: "M8 2v4M6 4.5L8 6.5l2-2M8 14v-4M6 11.5L8 9.5l2 2M3 8h10",
  code: "M5.5 4.5L2.5 8l3 3.5M10.5 4.5l3 3.5-3 3.5",
  shield: "M8 2.25l5 1.75v4c0 3-2 5-5 6-3-1-5-3-5-6V4z",
};

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", `icon icon-${name}`);
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", PATHS[name] ?? PATHS.wrench);
  svg.append(path);
  return svg;
}

export const spinner = () => el("span", { class: "spinner", "aria-hidden": "true" });

/** Return `t(key, values)` over the page's texts; `{name}` in a text is replaced by `values.name`. */
export function translator(texts) {
  return (key, values = {}) => (texts?.[key] ?? key).replace(/\{(\w+)\}/g, (all, name) => (name in values ? String(values[name]) : all));
}

/** The text for a count: `key.one` or `key.other`, with `{count}`. */
export const counted = (t, key, count) => t(`${key}.${count === 1 ? "one" : "other"}`, { count });

/**
 * Make a Streamlit component entry from a class with `update(component)` and `destroy()`.
 * Streamlit calls the entry again on every change of data or theme; the instance stays with its place on the page.
 */
export function mountable(Component, css) {
  const instances = new WeakMap();
  return (component) => {
    const place = component.parentElement;
    let instance = instances.get(place);
    if (!instance) {
      const root = el("div", { class: "parley" });
      const style = el("style", { textContent: css });
      place.append(style, root);
      instance = new Component(root);
      instance.leave = () => {
        instances.delete(place);
        instance.destroy();
        style.remove();
        root.remove();
      };
      instances.set(place, instance);
    }
    instance.update(component);
    return instance.leave;
  };
}

/** Copy text; the button says so for a moment. */
export async function copyText(button, text, t) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el("textarea", { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const label = button.querySelector(".label") ?? button;
  setText(label, t("copied"));
  setTimeout(() => setText(label, t("copy")), 1500);
}
