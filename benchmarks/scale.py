"""How ``xlinear`` scales from 50,000 to 500,000 labels, on synthetic corpora: training, memory, inference, first prediction.

    python benchmarks/scale.py [--sizes 50000,150000,500000] [--documents N] [--pecos MINUTES] [--draw]

A size is a number of labels, and by default also the number of training documents (``--documents``). Each size replaces its
earlier row in results/scale.json, and the picture is drawn from all rows (``--draw``: draw and stop). ``--pecos`` also trains
PECOS XR-Linear on the same tf-idf rows, for at most this number of minutes. Every measurement runs in its own process, after a
small corpus has triggered all compilation.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from peers.environments import python_of
from peers.report import machine
from peers.worker import peak_mb

HERE = Path(__file__).resolve().parent
RESULTS, PICTURE = HERE / "results" / "scale.json", HERE / "results" / "pictures" / "scale.png"
SINGLE = 300  # documents that are predicted one by one
STARTS = 3  # times that `polytag predict` is started
Row = dict[str, Any]


# -- what runs in a process of its own ---------------------------------------------------------------------------------


def train(folder: Path) -> Row:
    """Read the files and train; what the stages took stands in the run's log."""
    from polytag.config.recipe import Recipe
    from polytag.formats.document import ReadOptions
    from polytag.run import read_log
    from polytag.verbs.training import DataPlan, train_run

    start = time.perf_counter()
    told = Recipe(model="xlinear", options={"refit": False})  # the validation documents are for the decision alone
    train, valid, labels = (folder / f"{name}.jsonl" for name in ("train", "valid", "labels"))
    train_run(told, DataPlan.of(told, train, valid, labels, ReadOptions()), folder / "run")
    seconds = time.perf_counter() - start
    events = read_log(folder / "run")
    stages = {event["name"]: event["seconds"] for event in events if event["event"] == "stage"}
    estimate = next(event for event in events if event["event"] == "estimate")
    return {
        "train_s": round(seconds, 1),
        "train_cpu_s": round(time.process_time(), 1),
        "tfidf_s": stages["tfidf"],
        "index_s": stages["tree1/index"],
        "separators_s": round(sum(value for name, value in stages.items() if "depth" in name), 1),
        "train_peak_mb": peak_mb(),
        "estimated_gib": round(estimate["memory_gib"], 2),
        "model_mb": round(sum(path.stat().st_size for path in (folder / "run" / "model").iterdir()) / 1e6),
    }


def predict(folder: Path) -> Row:
    """Load, then label the test documents in batches and some of them one by one."""
    laps = [time.perf_counter()]
    from polytag.classifier import Classifier
    from polytag.formats.document_files import read_documents

    laps.append(time.perf_counter())
    classifier = Classifier.load(folder / "run")
    laps.append(time.perf_counter())
    documents = list(read_documents(folder / "test.jsonl"))
    classifier.predict([documents[0].text])
    laps.append(time.perf_counter())
    pairs = [(document, document.text) for document in documents]
    list(classifier.stream(pairs[:1000], 5))  # the weights come into memory
    start = time.perf_counter()
    found = list(classifier.stream(pairs, 5))
    batch = (time.perf_counter() - start) / len(pairs)
    single = []
    for _, text in pairs[:SINGLE]:
        start = time.perf_counter()
        classifier.scores([text], 5)
        single.append(time.perf_counter() - start)
    hits = {k: sum(len({*d.labels} & {*p.labels[:k]}) for d, p in found) / k / len(found) for k in (1, 3, 5)}
    parts = dict(zip(("import_s", "load_s", "first_s"), (round(b - a, 2) for a, b in pairwise(laps)), strict=True))
    return {
        **parts,
        "batch_ms": round(1000 * batch, 4),
        "single_ms": round(1000 * median(single), 4),
        "predict_peak_mb": peak_mb(),
        **{f"p@{k}": round(value, 4) for k, value in hits.items()},
    }


def save_matrix(folder: Path) -> None:
    """The tf-idf rows that xlinear was trained on, as plain arrays for another library."""
    import numpy as np
    from scipy.sparse import csr_array

    from peers.features import Problem, save_problem
    from polytag.classifier import Classifier
    from polytag.corpus import Corpus
    from polytag.models.xlinear import XLinear

    model = Classifier.load(folder / "run").model
    assert isinstance(model, XLinear)
    train, test = (Corpus.read(folder / f"{name}.jsonl", labels=model.labels) for name in ("train", "test"))
    known = np.unique(train.truth.indices)
    rows = model.tfidf.transform(train.texts)
    problem = Problem(rows, csr_array(train.truth[:, known]), model.tfidf.transform(test.texts), len(train))
    save_problem(problem, folder / "problem.npz")


def warm_up(folder: Path) -> None:
    """Have everything compiled, on a small corpus with a tree of several levels."""
    make(folder, 3000, 2000)
    train(folder)
    predict(folder)


def alone(work: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a fresh process, whose memory is its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


# -- the measurement ---------------------------------------------------------------------------------------------------


def make(folder: Path, labels: int, documents: int) -> None:
    """Write the corpus of one size."""
    command = ["-q", "data", "make", "--documents", str(documents), "--labels", str(labels), "--out", str(folder)]
    subprocess.run([sys.executable, "-m", "polytag", *command], check=True, stdout=subprocess.DEVNULL)


def first_answer(folder: Path) -> tuple[float, float]:
    """Seconds from the start of ``polytag predict`` to its first line, for a file with one document, and its CPU seconds."""
    with (folder / "test.jsonl").open(encoding="utf-8") as file:
        (folder / "one.jsonl").write_text(file.readline(), encoding="utf-8")
    command = [sys.executable, "-m", "polytag", "-q", "predict", str(folder / "run"), str(folder / "one.jsonl")]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.perf_counter() - start
    if process.returncode or "labels" not in json.loads(line):
        raise RuntimeError("polytag predict gave no answer")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(seconds, 2), round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)


def pecos(folder: Path, minutes: float, threads: int) -> Row:
    """PECOS XR-Linear on the same rows: index and training, peak memory, and a prediction."""
    alone(save_matrix, folder)
    command = [str(python_of("pecos", HERE.parent / ".venvs")), "-m", "peers.ranking", "--peer", "pecos", "--variant", "tree"]
    command += ["--problem", str(folder / "problem.npz"), "--out", str(folder), "--repeat", "1", "--threads", str(threads)]
    try:
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False, timeout=60 * minutes)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {minutes:g} minutes"}
    if done.returncode:
        return {"error": f"ended with {done.returncode} (-9: killed, as for lack of memory)"}
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    with (folder / "test.jsonl").open(encoding="utf-8") as file:
        documents = sum(1 for _ in file)
    return {
        "train_s": round(report["train_s"][0], 1),
        "train_peak_mb": report["peak_train_mb"],
        "peak_mb": report["peak_mb"],
        "batch_ms": round(1000 * report["predict_s"][0] / documents, 4),
    }


def measure(labels: int, told: argparse.Namespace) -> Row:
    """Everything about one size."""
    documents = told.documents or labels
    row: Row = {"labels": labels, "documents": documents, "threads": told.threads, "machine": machine()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make(folder, labels, documents)
        row |= alone(train, folder)
        print(json.dumps(row), flush=True)
        answers = [first_answer(folder) for _ in range(STARTS)]
        row |= {"first_answer_s": [wall for wall, _ in answers], "first_answer_cpu_s": [cpu for _, cpu in answers]}
        row |= alone(predict, folder)
        print(json.dumps(row), flush=True)
        if told.pecos:
            row["pecos"] = pecos(folder, told.pecos, told.threads)
    return row


def draw(rows: list[Row]) -> None:
    """Four pictures over the number of labels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    FigureCanvasAgg(figure)
    labels = [row["labels"] for row in rows]
    other = [row for row in rows if "train_s" in row.get("pecos", {})]
    panels: list[tuple[str, dict[str, list[float]], list[float]]] = [
        (
            "seconds for index and separators",
            {"xlinear": [row["index_s"] + row["separators_s"] for row in rows]},
            [row["pecos"]["train_s"] for row in other],
        ),
        (
            "peak memory of training, GiB",
            {"xlinear, its texts included": [row["train_peak_mb"] / 1024 for row in rows]},
            [row["pecos"]["train_peak_mb"] / 1024 for row in other],
        ),
        (
            "ms per document",
            {f"xlinear, {kind}": [row[f"{kind}_ms"] for row in rows] for kind in ("batch", "single")},
            [row["pecos"]["batch_ms"] for row in other],
        ),
        ("seconds to the first answer", {"polytag predict": [median(row["first_answer_s"]) for row in rows]}, []),
    ]
    for axes, (title, lines, theirs) in zip(figure.subplots(2, 2).flat, panels, strict=True):
        for name, values in lines.items():
            axes.plot(labels, values, "o-", label=name)
        if theirs:
            axes.plot([row["labels"] for row in other], theirs, "s--", label="PECOS XR-Linear, its rows given")
        axes.set_xscale("log")
        axes.set_xticks(labels, [f"{count:,}" for count in labels])
        axes.set_xticks([], minor=True)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("labels")
        axes.set_title(title, fontsize=10)
        axes.set_ylim(0, 1.6 * axes.get_ylim()[1])  # room for the legend
        axes.legend(loc="upper left")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=110)


def main() -> None:
    """Measure the sizes, one after the other, and draw what there is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="50000,150000,500000", help="numbers of labels")
    parser.add_argument("--documents", type=int, help="documents to train on [default: as many as labels]")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pecos", type=float, default=0, metavar="MINUTES", help="time limit for PECOS; 0 = without PECOS")
    parser.add_argument("--draw", action="store_true", help="only draw the picture again")
    told = parser.parse_args()
    rows: list[Row] = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"] if RESULTS.exists() else []
    if not told.draw:
        names = ("OMP", "OPENBLAS", "MKL", "NUMBA")
        os.environ |= {f"{name}_NUM_THREADS": str(told.threads) for name in names} | {"POLYTAG_THREADS": str(told.threads)}
        with tempfile.TemporaryDirectory() as temporary:
            alone(warm_up, Path(temporary))
        for labels in map(int, told.sizes.split(",")):
            row = measure(labels, told)
            rows = sorted([*(old for old in rows if old["labels"] != labels), row], key=lambda one: one["labels"])
            command = " ".join(["python benchmarks/scale.py", *sys.argv[1:]])
            RESULTS.write_text(json.dumps({"command": command, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    draw(rows)


if __name__ == "__main__":
    main()
