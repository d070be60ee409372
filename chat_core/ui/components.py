"""The browser side of the pages: small scripts of our own, mounted as Streamlit components.

The script itself comes from our route (`/api/assets/...`), cached by its hash; what travels with each component is a
stub that imports it. Rebuild the files in `assets` with `npm run build` in `frontend/`.
"""

import hashlib
from functools import cache
from pathlib import Path

import streamlit as st
from streamlit.components.v2.types import ComponentRenderer

ASSETS = Path(__file__).parent / "assets"

_STUB = """
const modules = (globalThis[Symbol.for("parley.modules")] ??= new Map());
const load = (src) => {
  if (!modules.has(src)) {
    const tries = (globalThis[Symbol.for("parley.tries")] ??= new Map());
    const count = tries.get(src) ?? 0;
    // A failed import is remembered by the browser under its address: the next try has another one.
    const loading = import(count ? `${src}&try=${count}` : src);
    loading.catch(() => {
      tries.set(src, count + 1);
      modules.delete(src);
    });
    modules.set(src, loading);
  }
  return modules.get(src);
};
const places = new WeakMap();
export default function (component) {
  const place = component.parentElement;
  const src = new URL(component.data.module, window.location.origin).href;
  const mounted = places.get(place) ?? { undo: null, waiting: false, dead: false, failures: 0 };
  places.set(place, mounted);
  mounted.latest = component;
  if (mounted.src && mounted.src !== src) {
    // The server was updated: the old script leaves the place to the new one.
    mounted.undo?.();
    mounted.undo = null;
  }
  mounted.src = src;
  const start = () => {
    mounted.waiting = src;
    load(src).then(
      (module) => {
        mounted.waiting = false;
        if (!mounted.dead && mounted.src === src) mounted.undo = module.default(mounted.latest);
      },
      () => {
        mounted.failures += 1;
        if (mounted.failures === 3) mounted.latest.setTriggerValue("offline", { reason: "script" });
        const again = () => (mounted.dead || mounted.src !== src ? null : start());
        setTimeout(again, Math.min(8000, 500 * 2 ** mounted.failures));
      },
    );
  };
  if (!mounted.waiting || mounted.waiting !== src) start();
  return () => {
    mounted.dead = true;
    places.delete(place);
    mounted.undo?.();
  };
}
"""


def asset_url(name: str, base: str = "") -> str:
    """Return the address of a built script; it changes with the content, so browsers may keep it for ever."""
    return f"{base}/api/assets/{name}?v={asset_hash(name)}"


def asset_hash(name: str) -> str:
    """Return the short hash of a built script that stands in its address."""
    path = ASSETS / name
    return _hash_of(path, path.stat().st_mtime_ns)


@cache
def component(name: str) -> ComponentRenderer:
    """Return the mounting command of our component `name`, registered on first use."""
    return st.components.v2.component(f"parley_{name}", js=_STUB)


@cache
def _hash_of(path: Path, _changed_ns: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
