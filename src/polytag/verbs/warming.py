"""``polytag warm`` as functions: which kernels a verb needs, and their compilation ahead of time or in a second process.

numba compiles under one lock, so threads do not help. Processes share what they compiled through the cache on disk.
"""

from __future__ import annotations

import atexit
import importlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from numba.core.sigutils import normalize_signature

from polytag.kernels.compiler import KERNELS, host_cpu
from polytag.kernels.threads import thread_count

_ROWS = ("text.words._scan", "text.tfidf._fill_table", "text.tfidf._look_up", "text.tfidf._weigh")
_FITTED = (*_ROWS[:3], "text.tfidf._count_documents", _ROWS[3])
_BLOCKS = ("linear.block_kernels.fill_blocks", "linear.block_kernels.score_blocks")
_SEARCH = ("xmc.search.beam_margins", "xmc.select.choose")
_SPARSE = ("decision.thresholds._apply", "kernels.row_merge.merge_rows")  # for scores of some labels, not all
_DECIDED = (
    "decision.calibration._fit_labels", "decision.thresholds._descending", "kernels.top_k.best_of_sparse_rows",
)  # fmt: skip
NEEDED: dict[tuple[str, str], tuple[str, ...]] = {
    ("train", "br"): (
        *_FITTED, "linear.block_kernels.solve_block", *_BLOCKS, "linear.block_kernels.best_of_rows", *_SPARSE, *_DECIDED,
    ),
    ("train", "xlinear"): (
        *_FITTED, "xmc.index._sum_instances", "xmc.node_kernels.solve_children", "xmc.node_kernels.by_feature",
        "xmc.search.entries_fit", *_SEARCH, *_SPARSE, *_DECIDED,
    ),
    ("predict", "br"): (*_ROWS, *_BLOCKS),
    ("predict", "xlinear"): ("xmc.search.entries_fit", *_ROWS, *_SEARCH, *_SPARSE),
}  # fmt: skip
"""The kernels of a verb with a model, in the order in which it needs them; names are without ``polytag``."""
_LATER = {*_BLOCKS, "linear.block_kernels.best_of_rows", *_SEARCH, *_SPARSE, *_DECIDED}  # about half of the work, needed last
_DEEPER = tuple(f"xmc.balanced_kmeans.{name}" for name in ("_touched", "_add_rows", "_similarities", "_between"))
OTHERS = (
    *_DEEPER, "xmc.node_kernels.gather", "xmc.search.given_step", "xmc.search.mean_of_searches",
    "linear.block_kernels.score_sparse", "linear.block_kernels.run_chain", "linear.block_kernels.labels_of_sets",
    "kernels.nearest_rows.nearest_of_tile",
)  # fmt: skip
"""Kernels of larger label sets and of other linear models."""


class Warmed(NamedTuple):
    """What ``warm`` did: the number of kernels, the processor they are for, their folder, and the seconds it took."""

    kernels: int
    cpu: str
    folder: str
    seconds: float


def warm(processes: int = 0, cpu: str = "") -> Warmed:
    """Compile every kernel of linear and tree models for this processor, or for another one by its LLVM name.

    ``processes`` = 0 takes one per CPU. What is compiled for a named processor is used where NUMBA_CPU_NAME has this name.
    """
    import multiprocessing  # these are slow to import
    from concurrent.futures import ProcessPoolExecutor

    start = time.monotonic()
    names = sorted({name for needed in NEEDED.values() for name in needed} | {*OTHERS}, key=_slow_first)
    if cpu:
        os.environ["NUMBA_CPU_NAME"] = cpu
    context = multiprocessing.get_context("spawn")  # a process of its own reads the variable
    with ProcessPoolExecutor(min(processes or thread_count(), len(names)), mp_context=context) as pool:
        places = list(pool.map(compile_kernel, names))
    return Warmed(len(names), cpu or host_cpu(), str(Path(places[0]).parent), time.monotonic() - start)


def _slow_first(name: str) -> tuple[int, str]:
    """A key: kernels that take a second or more come first, so that no process is idle at the end."""
    return (0 if name in (*_SEARCH, "xmc.node_kernels.solve_children", "xmc.search.given_step") else 1), name


def compile_kernel(name: str) -> str:
    """Compile one kernel for its signature, or find it in the cache; returns the folder of its cache.

    The cache is asked for types: what was compiled for a signature as text would not be found by a call.
    """
    kernel, signature = _kernel(name)
    kernel.compile(normalize_signature(signature)[0])
    return str(kernel.stats.cache_path)


def _kernel(name: str) -> tuple[Any, str]:
    importlib.import_module(f"polytag.{name.rpartition('.')[0]}")
    return KERNELS[f"polytag.{name}"]


def share(verb: str, model: str) -> None:
    """Have a second process compile what a verb will need later, if the cache is empty; it ends with this process.

    This process compiles what it needs first, and finds the rest in the cache. Both take about as long, and no kernel is compiled
    twice: two processes on one core with two threads slow each other down.
    """
    names = [name for name in NEEDED.get((verb, model), ()) if name in _LATER]
    if not names or not _has_idle_cpu() or _is_stored(names[-1]):
        return
    command = [sys.executable, "-m", "polytag.verbs.warming", *names]
    quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    try:
        helper = subprocess.Popen(command, **quiet)
    except OSError:  # no more processes are allowed: this one compiles everything
        return
    atexit.register(_end, helper)


def _has_idle_cpu() -> bool:
    """Whether a second process would get a CPU of its own: on a busy machine it only takes time from the first."""
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return thread_count() > max(1, busy)


def _end(helper: subprocess.Popen[bytes]) -> None:
    helper.kill()
    helper.wait()


def _is_stored(name: str) -> bool:
    """Whether the cache has a file of a kernel; it may be of an older version, which only costs time."""
    kernel, _ = _kernel(name)
    folder = kernel.stats.cache_path
    if not folder:
        return True  # nothing can be shared
    module, function = name.split(".")[-2:]
    return any(Path(folder).glob(f"{module}.{function}-*.nbi"))


if __name__ == "__main__":
    for kernel_name in sys.argv[1:]:
        compile_kernel(kernel_name)
