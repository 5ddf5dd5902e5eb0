"""The headline numbers of results/*.json that appear in the project's README and documentation."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from peers.report import with_tuning

Row = dict[str, Any]


def headlines(folder: Path) -> str:
    """One row for each comparison with a baseline."""
    lines = [*_flat(_read(folder, "linear")), *_extreme(_read(folder, "extreme")), _networks(_read(folder, "xbert"))]
    lines += [_scale(_read(folder, "scale")), _training(_read(folder, "training_speed"))]
    lines += [_gpu_inference(_read(folder, "gpu_prediction")), _inference(_read(folder, "cpu_prediction"))]
    return "\n".join(["| task | Polytag | baseline |", "|---|---|---|", *(f"| {' | '.join(line)} |" for line in lines)])


def _read(folder: Path, name: str) -> Row:
    found: Row = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return found


def plain(value: float, digits: int = 3) -> str:
    """A share without its leading zero."""
    return f"{value:.{digits}f}".lstrip("0")


def _flat(found: Row) -> list[tuple[str, str, str]]:
    """Flat separators on debtags: with the libraries' default decision, and with tuned thresholds."""
    rows = [row for row in found["rows"] if row["corpus"] == "debtags" and row["kind"] == "flat" and "train_s" in row]
    own = {row["variant"]: row for row in rows if row["peer"] == "polytag"}
    peers = [row for row in rows if row["peer"] != "polytag"]
    fast, whole = min(peers, key=lambda row: median(row["train_s"])), min(peers, key=with_tuning)
    labels = f"debtags, {found['corpora']['debtags']['labels_in_train']} labels"

    def told(name: str, seconds: float, quality: float) -> str:
        return f"{name}: trained in {seconds:.1f} s, micro-F1 {plain(quality)}"

    return [
        (
            f"{labels}, default decision",
            told("`br`", median(own["br"]["train_s"]), own["br"]["own"]["micro_f1"]),
            told(fast["name"], median(fast["train_s"]), fast["own"]["micro_f1"]),
        ),
        (
            f"{labels}, tuned thresholds",
            told("`br`", median(own["br-complete"]["train_s"]), own["br-complete"]["own"]["micro_f1"]),
            told(whole["name"], with_tuning(whole), whole["tuned"]["micro_f1"]),
        ),
    ]


def _extreme(found: Row) -> list[tuple[str, str, str]]:
    """A tree of separators on debdeps, against the usual baseline and the best one."""
    about, rows = found["corpora"]["debdeps"], {row["name"]: row for row in found["rows"] if "train_s" in row}

    def told(name: str, row: Row) -> str:
        speed = about["test_documents"] / median(row["predict_s"])
        return f"{name}: trained in {median(row['train_s']):.1f} s, {speed:,.0f} documents/s, P@1 {plain(row['p@1'])}"

    best = max((row for row in rows.values() if row["peer"] != "polytag"), key=lambda row: float(row["p@1"]))
    labels = f"debdeps, {about['labels']:,} labels"
    return [
        (f"{labels}, one tree", told("`xlinear`", rows["polytag xlinear"]), told("PECOS", rows["PECOS XR-Linear"])),
        (f"{labels}, three trees", told("`xlinear`", rows["polytag xlinear, 3 trees"]), told(best["name"], best)),
    ]


def _networks(found: Row) -> tuple[str, str, str]:
    rows = {row["name"]: row["test_mean_and_deviation"] for row in found["rows"]}

    def told(name: str, row: Row) -> str:
        return f"`{name}`: P@1 {plain(row['p@1'][0])}, P@5 {plain(row['p@5'][0])}"

    return (
        "the same, clusters matched on a GPU",
        told("xbert", rows["debdeps xbert text"]),
        told("xlinear", rows["debdeps xlinear"]),
    )


def _scale(found: Row) -> tuple[str, str, str]:
    row = max(found["rows"], key=lambda row: int(row["labels"]))

    def told(found: Row) -> str:
        return str(found["error"]) if "error" in found else f"trained in {found['train_s']:.0f} s, {_gib(found)} GiB"

    name = f"{row['labels']:,} synthetic labels and as many documents"
    return name, f"`xlinear`, from texts: {told(row)}", f"PECOS, from tf-idf: {told(row['pecos'])}"


def _gib(row: Row) -> str:
    return f"{row['train_peak_mb'] / 1024:.1f}"


def growth(folder: Path) -> str:
    """How ``xlinear`` scales with the number of labels, for docs/extreme.md."""
    lines = ["| labels and documents | training | peak memory | model | per document, batch / single | first prediction |"]
    lines += ["|---|---|---|---|---|---|"]
    for row in _read(folder, "scale")["rows"]:
        cells = [f"{row['labels']:,}", f"{row['train_s']:.0f} s", f"{_gib(row)} GiB", f"{row['model_mb'] / 1000:.1f} GB"]
        cells += [f"{row['batch_ms']:.2f} / {row['single_ms']:.2f} ms", f"{max(row['first_answer_s']):.1f} s"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _training(found: Row) -> tuple[str, str, str]:
    own, trainer = (found["rows"][f"minilm 256 {side}"]["documents_per_second"] for side in ("polytag", "trainer"))
    task = f"fine-tuning MiniLM on one {found['gpu'].removeprefix('NVIDIA ')}, batch size 256"
    return task, f"{own:,.0f} documents/s", f"Hugging Face Trainer: {trainer:,.0f} documents/s"


def _gpu_inference(found: Row) -> tuple[str, str, str]:
    own, pipeline, compiled = (
        found["rows"][side]["documents_per_second"] for side in ("polytag", "pipeline", "compiled encoder")
    )
    task = f"inference with MiniLM on one {found['gpu'].removeprefix('NVIDIA ')}"
    theirs = f"Hugging Face pipeline: {pipeline:,.0f} documents/s; compiled encoder: {compiled:,.0f} documents/s"
    return task, f"{own:,.0f} documents/s", theirs


def _inference(found: Row) -> tuple[str, str, str]:
    row = next(one for one in reversed(found["rows"]) if "onnx int8" in one["documents_per_second"])
    speed = row["documents_per_second"]
    own = (
        f"{speed.get('torch', speed['torch float32']):.0f} documents/s; exported in 8 bits, {speed['onnx int8']:.0f} documents/s"
    )
    theirs = f"Hugging Face pipeline: {speed['pipeline']:.0f} documents/s"
    return f"inference with MiniLM on {row['machine']['cores']} CPU cores", own, theirs
