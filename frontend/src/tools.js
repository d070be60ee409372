// How the tools we know are called in the status line, and which argument tells most about a call.
import { oneLine, showDirection } from "./text.js";

const TOOLS = {
  read_file: ["file", "reading", ["path"]],
  write_file: ["pencil", "writing", ["path"]],
  patch: ["pencil", "editing", ["path"]],
  search_files: ["search", "searching", ["pattern", "query", "path"]],
  terminal: ["terminal", "running", ["command"]],
  process: ["terminal", "process", ["action", "command"]],
  execute_code: ["code", "code", ["code"]],
  todo: ["list", "planning", []],
  memory: ["bookmark", "remembering", ["content", "action", "target"]],
  skills_list: ["book", "skills", ["category"]],
  skill_view: ["book", "skill", ["name"]],
  skill_manage: ["book", "skill_edit", ["name", "action"]],
  clarify: ["bubble", "asking", ["question"]],
  session_search: ["search", "recalling", ["query"]],
  web_search: ["globe", "searching_web", ["query"]],
  web_extract: ["globe", "reading", ["url", "urls"]],
  delegate_task: ["fork", "delegating", ["goal", "task"]],
};
const TELLING = ["path", "file", "command", "query", "url", "name", "pattern", "question", "goal", "text", "content"];

function family(name) {
  if (Object.hasOwn(TOOLS, name)) return TOOLS[name];
  if (name.startsWith("browser_")) return ["globe", "browsing", ["url", "text"]];
  return ["wrench", "using", []];
}

export const toolIcon = (name) => family(name)[0];

export const toolName = (name, t) => showDirection(String(name).slice(0, 80)) || t("tool.unnamed");

const currentTodo = (todos) => todos.find((todo) => todo?.status === "in_progress") ?? todos.findLast((todo) => todo?.status === "completed") ?? todos[0];

/** The most telling argument of a call as one short line. */
export function argumentPreview(name, args) {
  if (typeof args === "string") return oneLine(args);
  if (!args || typeof args !== "object") return "";
  if (name === "todo" && Array.isArray(args.todos)) return oneLine(currentTodo(args.todos)?.content ?? "");
  const keys = [...family(name)[2], ...TELLING, ...Object.keys(args)];
  for (const key of keys) {
    if (!Object.hasOwn(args, key)) continue;
    const value = args[key];
    if (typeof value === "string" && value.trim()) return oneLine(value);
    if (Array.isArray(value) && typeof value[0] === "string") return oneLine(value.join(" "));
  }
  return "";
}

/** Words for the status line, with the object of the action apart: it is set in mono. */
export function doingWords(tool, t) {
  const [, verb] = family(tool.name);
  if (verb === "using") return [t("doing.using"), toolName(tool.name, t)];
  let object = argumentPreview(tool.name, tool.args);
  if (["planning", "asking", "code", "remembering", "skills"].includes(verb)) object = "";
  if (verb === "reading" && tool.name === "read_file") object = object.split(/[\\/]/).pop();
  return [t(`doing.${verb}`), oneLine(object, 60)];
}
