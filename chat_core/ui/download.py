"""Lets the browser fetch a file from our API and save it; what goes wrong comes back as a plain sentence.

A link would do for one file. A file that is asked for with a body, and an error, need a script: a browser saves an
error as if it were the file.
"""

from functools import cache
from typing import Any

import streamlit as st
from streamlit.components.v2.types import ComponentRenderer

from chat_core.ui.view_state import Download, view_state
from chat_core.ui.viewer import Viewer, current_viewer

_KEY = "download"
_SCRIPT = """
const state = (globalThis[Symbol.for("parley.download")] ??= { done: 0 });

function nameOf(response, otherwise) {
  const header = response.headers.get("content-disposition") ?? "";
  const encoded = /filename\\*=UTF-8''([^;]+)/i.exec(header);
  if (encoded) return decodeURIComponent(encoded[1]);
  return /filename="([^"]+)"/i.exec(header)?.[1] ?? otherwise;
}

async function fetchFile({ path, body }) {
  const response = await fetch(path, body === null ? {} : {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  if (!response.ok) {
    const answer = await response.json().catch(() => ({}));
    throw new Error(answer?.error?.message ?? "");
  }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = nameOf(response, "session");
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

export default function ({ data, setTriggerValue }) {
  if (data.number > state.done) {
    state.done = data.number;
    fetchFile(data).catch((error) => setTriggerValue("failed", { message: error.message }));
  } else if (data.number < state.done) {
    state.done = data.number;
  }
}
"""


def download(path: str, body: dict[str, Any] | None = None) -> None:
    """Let the browser fetch and save this file once the page is drawn."""
    view = view_state()
    last = view.download
    view.download = Download(last.number + 1 if last else 1, path, body)
    view.notices.pop("download", None)


def draw_download(viewer: Viewer) -> None:
    """Mount the script; it shows nothing."""
    wanted = view_state().download or Download(0, "")
    with st.container(key="services-download", height=1):
        _component()(
            key=_KEY,
            data={"number": wanted.number, "path": viewer.base + wanted.path, "body": wanted.body},
            on_failed_change=_failed,
        )


def _failed() -> None:
    state = st.session_state.get(_KEY)
    failed = state.get("failed") if state is not None else None
    reason = failed.get("message") if isinstance(failed, dict) else None
    t = current_viewer().texts
    words = t.t("desk.download_failed")
    view_state().notices["download"] = f"{words} {reason}" if isinstance(reason, str) and reason else words


@cache
def _component() -> ComponentRenderer:
    return st.components.v2.component("parley_download", js=_SCRIPT)
