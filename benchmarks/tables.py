"""Writes the tables of results/*.json into the book, README.md and docs/: ``python benchmarks/tables.py``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from auto_tables import ahead, every_model, looked_at_before
from extreme import markdown as extreme
from extreme_tables import nearest
from front_tables import write_docs
from headlines import headlines
from peers.report import put, render
from speed_tables import (
    cells_of,
    cpu_prediction,
    decoding,
    extreme_prediction,
    four_digits,
    gpu_prediction,
    padding,
    sgm_speed,
    training_speed,
)

HERE = Path(__file__).parent
QUALITY = ("micro_f1", "macro_f1", "subset_accuracy", "hamming_loss", "p@1")
OF_SETS = ("micro_f1", "macro_f1", "subset_accuracy")
BOTH = ("micro_precision", "micro_recall", "micro_f1", "macro_f1", "subset_accuracy", "hamming_loss")
PAPERS = {  # published rows, next to ours: micro-F1, macro-F1, subset accuracy, Hamming loss, P@1
    "reuters": [("paper: BERT", ".899 | .534 | .857 | | ")],
    "aapd": [
        ("paper (all of AAPD's training documents): BERT", ".734 | .572 | | .0224 | "),
        ("paper: LSAN", ".706 | .535 | | .0242 | "),
        ("paper: LEAM", ".670 | .456 | | .0261 | "),
        ("paper: CNN", ".664 | | | .0256 | "),
    ],
}


def baselines(found: dict[str, Any]) -> str:
    """One row for every corpus and model."""
    head = ["corpus", "model", *(key.replace("_", " ") for key in QUALITY), "train s", "docs/s", "MB"]
    lines = [cells_of(*head), cells_of(*["---"] * len(head))]
    for row in found["rows"]:
        speed = (f"{row['train_seconds']:.1f}", f"{row['documents_per_second']:,.0f}", f"{row['megabytes']:.1f}")
        lines.append(cells_of(row["corpus"], row["model"], *(four_digits(row[key]) for key in QUALITY), *speed))
    return "\n".join(lines)


def neural(found: dict[str, Any]) -> str:
    """Mean and standard deviation over seeds, one table per corpus."""
    parts = []
    for corpus in dict.fromkeys(row["corpus"] for row in found["rows"]):
        head = [corpus, "seeds", *(key.replace("_", " ") for key in QUALITY)]
        parts += ["", cells_of(*head), cells_of(*["---"] * len(head))]
        rows = [row for row in found["rows"] if row["corpus"] == corpus]
        for row in sorted(rows, key=lambda row: -row["test_mean_and_deviation"]["micro_f1"][0]):
            for whose, rule, values in reversed(decided(row)):
                cells = [_with_spread(values[key], len(row["seeds"])) if key in values else "" for key in QUALITY]
                name = row["model"] if whose == "polytag" else f"{row['model']}, {rule.removeprefix('paper: ')}"
                parts.append(cells_of(name, len(row["seeds"]), *cells))
        parts += [f"| *{name}* | | {cells} |" for name, cells in PAPERS.get(corpus, [])]
    return "\n".join(parts)


def decided(row: dict[str, Any], part: str = "test") -> list[tuple[str, str, dict[str, list[float]]]]:
    """A row by its decisions: as the paper decides (the decoded set, else 0.5), then as Polytag does, with their means."""
    rules = row.get(f"{part}_by_rule", {})
    lines: list[tuple[str, str, dict[str, list[float]]]] = []
    for rule, name in (("decoded", "paper: decoded"), ("0.5", "paper: at .5")):
        if rule in rules and not lines:
            lines.append(("paper", name, rules[rule]))
    own = "/".join(sorted(set(row.get("rules", []))))
    return [*lines, ("polytag", f"Polytag: {own.replace('_', ' ')}", row[f"{part}_mean_and_deviation"])]


def two_decisions(found: dict[str, Any]) -> str:
    """Two rows for every model, best first by the paper's decision; micro precision and recall; then the published rows."""
    head = ["model", "seeds", "decision", *(key.replace("_", " ") for key in BOTH)]
    parts = [cells_of(*head), cells_of(*["---"] * len(head))]

    def first(row: dict[str, Any]) -> float:
        return float(decided(row)[0][2]["micro_f1"][0])

    for row in sorted((row for row in found["rows"] if "test" in row), key=first, reverse=True):
        seeds = len(row["seeds"])
        for _, decision, values in decided(row):
            cells = [_with_spread(values[key], seeds) if key in values else "" for key in BOTH]
            name = row["name"].removeprefix(f"{row['corpus']} ").removeprefix(f"{row['corpus']}+extra ")
            parts.append(cells_of(name, seeds, decision, *cells))
    parts += [f"| *{name}* | | as published | {cells} |" for name, cells in PUBLISHED]
    return "\n".join([*parts, *_differences(found)])


def search(found: dict[str, Any]) -> str:
    """What a search on validation documents found, best first by the paper's decision."""
    head = ["settings", *(f"{key.replace('_', ' ')}, {by}" for by in ("paper", "Polytag") for key in OF_SETS)]
    made = {row["name"]: [value[key][0] for _, _, value in decided(row, "valid") for key in OF_SETS] for row in found["rows"]}
    rows = [cells_of(name, *map(four_digits, made[name])) for name in sorted(made, key=lambda name: -made[name][0])]
    return "\n".join([cells_of(*head), cells_of(*["---"] * len(head)), *rows])


PUBLISHED = [  # AAPD, official split: micro precision, recall and F1, macro-F1, subset accuracy, Hamming loss
    ("LACO paper: LACO+plcp", ".795 | .708 | .749 | .599 | .439 | .0212"),
    ("LACO paper: LACO+clcp", ".789 | .708 | .747 | .612 | .427 | .0215"),
    ("LACO paper: LACO", "| | .745 | .591 | .425 | .0213"),
    ("LACO paper: BERT", ".786 | .687 | .734 | .572 | | .0224"),
    ("LACO paper: SeqTag", ".743 | .715 | .729 | .585 | .410 | .0238"),
    ("LACO paper: ML-R (not run here)", ".726 | .718 | .722 | | | .0248"),
    ("LACO paper: OCD (not run here)", "| | .720 | .585 | .403 | "),
    ("BERT paper: Mixed", "| | .719 | .553 | .397 | .023"),
    ("BERT paper: BERT+SGM", "| | .718 | .496 | .377 | .024"),
    ("SGM paper: SGM + GE", ".748 | .675 | .710 | | | .0245"),
    ("LACO paper: LSAN", ".777 | .646 | .706 | .535 | | .0242"),
    ("LACO paper: Seq2Set (not run here)", ".739 | .674 | .705 | | | .0247"),
    ("SGM paper: SGM", ".746 | .659 | .699 | | | .0251"),
    ("LACO paper: Seq2Seq, transformer", ".698 | .682 | .690 | .540 | .392 | .0275"),
    ("BERT paper: TextCNN, two layers", "| | .674 | .445 | .364 | .026"),
    ("LACO paper: LEAM", ".765 | .596 | .670 | .456 | | .0261"),
    ("SGM paper: CNN-RNN", ".718 | .618 | .664 | | | .0278"),
    ("SGM paper: CNN", ".849 | .545 | .664 | | | .0256"),
    ("SGM paper: CC", ".657 | .651 | .654 | | | .0306"),
    ("SGM paper: BR", ".644 | .648 | .646 | | | .0316"),
    ("SGM paper: LP", ".662 | .608 | .634 | | | .0312"),
]


def _differences(found: dict[str, Any]) -> list[str]:
    """Paired differences with their intervals, where they were computed."""
    pairs = found.get("bootstrap", [])
    if not pairs:
        return []
    head = ["difference (95 % interval)", "decision", *(key.replace("_", " ") for key in OF_SETS)]
    lines = ["", cells_of(*head), cells_of(*["---"] * len(head))]
    for pair in pairs:
        name = f"{pair['other']} - {pair['base']}"
        lines.append(cells_of(name, pair["rule"], *(_interval(pair[key]) for key in OF_SETS)))
    return lines


def attention_spread(found: dict[str, Any]) -> str:
    """Variation of LACO's word weights and distance from the plain mean, before and after some steps, means over seeds."""
    head = ["attention", "seeds", "variation of weights, before / after", "distance from the mean, before / after"]
    lines = [cells_of(*head), cells_of(*["---"] * len(head))]
    for form in dict.fromkeys(row["form"] for row in found["rows"]):
        rows = [row for row in found["rows"] if row["form"] == form]
        cells = []
        for key in ("variation", "distance"):
            values = [sum(row[when][key] for row in rows) / len(rows) for when in ("before", "after")]
            cells.append(" / ".join(f"{100 * value:.1f} %" for value in values))
        lines.append(cells_of(form, len(rows), *cells))
    return "\n".join(lines)


QUEUES = (
    *("aapd-even-search", "aapd-even", "aapd-official", "aapd-official-mixed", "sgm-studies", "rcv1-small", "convergence"),
    *("order-free", "extreme-labels"),
)


def queue(folder: Path) -> str:
    """The files of queued jobs, in order, with the number of trainings and the estimated seconds."""
    lines = [cells_of("jobs", "trainings", "estimated seconds"), cells_of(*["---"] * 3)]
    for name in QUEUES:
        jobs = json.loads((folder / f"{name}.json").read_text())
        seconds = sum(job["gpu_seconds"] * len(job["seeds"]) for job in jobs)
        lines.append(cells_of(f"`{name}`", sum(len(job["seeds"]) for job in jobs), f"{seconds:,}"))
    return "\n".join(lines)


SEQUENCE_PAPERS = {  # micro-F1, macro-F1, subset accuracy, Hamming loss
    "reuters": [
        ("BERT paper: Mixed", ".900 | .533 | .858 | .004"),
        ("BERT paper: BERT", ".899 | .534 | .857 | .003"),
        ("BERT paper: BERT+SGM", ".854 | .467 | .817 | .004"),
        ("BERT paper: SGM, reproduced", ".788 | .452 | .812 | .004"),
    ],
    "aapd": [
        ("BERT paper: Mixed", ".719 | .553 | .397 | .023"),
        ("BERT paper: BERT+SGM", ".718 | .496 | .377 | .024"),
        ("BERT paper: BERT", ".713 | .559 | .381 | .024"),
        ("SGM paper: SGM + GE", ".710 | | | .0245"),
        ("SGM paper: SGM", ".699 | | | .0251"),
        ("SGM paper: CNN-RNN", ".664 | | | .0278"),
        ("BERT paper: SGM, reproduced", ".698 | .468 | .372 | .026"),
    ],
}


_VIOLATING = "documents_that_violate_the_tree"


def _with_spread(values: list[float], seeds: int) -> str:
    """Mean and deviation over seeds; one measurement has no deviation."""
    return four_digits(values[0]) + (f" ± {four_digits(values[1])}" if seeds > 1 else "")


def sequences(found: dict[str, Any]) -> str:
    """Every model with the decision that is best on validation, then with the papers' rules, then the published rows."""
    parts = []
    keys = QUALITY[:4]
    for corpus in ("reuters", "aapd"):
        head = [corpus, *(key.replace("_", " ") for key in keys)]
        parts += ["", cells_of(*head), cells_of(*["---"] * len(head))]
        lines = []
        for row in found["rows"]:
            if row["corpus"] != corpus or any(study in row["name"] for study in (", no ", ", lambda", "beams")):
                continue
            name = row["name"].removeprefix(f"{corpus} ")
            seeds = len(row["seeds"])
            lines.append((name, row["test_mean_and_deviation"], seeds))
            for rule, values in row.get("test_by_rule", {}).items():
                lines.append((f"{name}, {rule}" if rule == "decoded" else f"{name}, at {rule.lstrip('0')}", values, seeds))
        for name, values, seeds in sorted(lines, key=lambda line: -line[1]["micro_f1"][0]):
            parts.append(cells_of(name, *(_with_spread(values[key], seeds) for key in keys)))
        parts += [f"| *{name}* | {cells} |" for name, cells in SEQUENCE_PAPERS[corpus]]
    return "\n".join(parts)


def sequences_trees(found: dict[str, Any]) -> str:
    """Orders and completion under a label tree, open and closed, and the Russian row."""
    head = ["corpus and model", "predictions", *(key.replace("_", " ") for key in QUALITY[:3]), "documents that violate the tree"]
    lines = [cells_of(*head), cells_of(*["---"] * len(head))]
    for row in found["rows"]:
        rules = row.get("test_by_rule", {})
        for rule, values in {"open": row["test_mean_and_deviation"], **rules}.items():
            violating = f"{values[_VIOLATING][0]:.0f}" if _VIOLATING in values else ""
            lines.append(cells_of(row["name"], rule, *(four_digits(values[key][0]) for key in QUALITY[:3]), violating))
    return "\n".join(lines)


def order_free(found: dict[str, Any]) -> str:
    """Sequences without a label order, and the network over a tree, by both decisions."""
    head = ["corpus and model", "seeds", "decision", *(key.replace("_", " ") for key in QUALITY[:3])]
    lines = [cells_of(*head), cells_of(*["---"] * len(head))]
    for row in found["rows"]:
        for _, decision, values in decided(row):
            cells = [_with_spread(values[key], len(row["seeds"])) for key in QUALITY[:3]]
            lines.append(cells_of(row["name"], len(row["seeds"]), decision, *cells))
    return "\n".join(lines)


JOINT_PAPERS = {  # LACO's tables 2 and 4, all of AAPD's training documents: micro-F1, macro-F1, subset accuracy, Hamming loss
    "aapd": [
        ("paper: LACO+plcp", ".749 | .599 | .439 | .0212"),
        ("paper: LACO+clcp", ".747 | .612 | .427 | .0215"),
        ("paper: LACO", ".745 | .591 | .425 | .0213"),
        ("paper: LACO without CA", ".735 | .584 | | "),
        ("paper: LACO without JE", ".726 | .577 | | .0237"),
        ("paper: BERT", ".734 | .572 | | .0224"),
        ("paper: SeqTag", ".729 | .585 | .410 | .0238"),
    ],
}


def joint(found: dict[str, Any]) -> str:
    """Every model with its spread over seeds, and its difference to bert on the same documents."""
    parts, keys = [], QUALITY[:4]
    apart = {row["other"]: row for row in found.get("bootstrap", []) if row.get("rule", "polytag") == "polytag"}
    for corpus in ("aapd", "reuters"):
        rows = [row for row in found["rows"] if row["corpus"] == corpus]
        head = [corpus, *(key.replace("_", " ") for key in keys), "micro-F1 difference to bert (95 % interval)"]
        head += ["macro-F1 difference to bert (95 % interval)"]
        parts += ["", cells_of(*head), cells_of(*["---"] * len(head))]
        for row in sorted(rows, key=lambda row: -row["test_mean_and_deviation"]["micro_f1"][0]):
            values = row["test_mean_and_deviation"]
            cells = [_with_spread(values[key], len(row["seeds"])) for key in keys]
            pair = apart.get(row["name"].replace(" ", "-"), {})
            cells += [_interval(pair[key]) if key in pair else "" for key in keys[:2]]
            parts.append(cells_of(row["name"].removeprefix(f"{corpus} "), *cells))
            for whose, rule, other in decided(row):
                if whose == "paper":
                    shown = [_with_spread(other[key], len(row["seeds"])) for key in keys]
                    parts.append(
                        cells_of(f"{row['name'].removeprefix(f'{corpus} ')}, {rule.removeprefix('paper: ')}", *shown, "", "")
                    )
        parts += [f"| *{name}* | {cells} | | |" for name, cells in JOINT_PAPERS.get(corpus, [])]
    return "\n".join(parts)


def _interval(found: dict[str, Any]) -> str:
    low, high = found["interval_95"]
    return f"{found['difference']:+.4f} ({low:+.4f} to {high:+.4f})"


def joint_cost(found: dict[str, Any]) -> str:
    """Documents per second in training."""
    lines = [cells_of("model", "documents/s", "slowdown against bert"), cells_of(*["---"] * 3)]
    slower = found["times_slower_than_bert"]
    lines += [cells_of(name, f"{value:,.0f}", f"{slower[name]:.2f}") for name, value in found["documents_per_second"].items()]
    return "\n".join(lines)


def scale(found: dict[str, Any]) -> str:
    """How xlinear scales."""
    keys = {"train_s": "train s", "train_peak_mb": "peak MB", "model_mb": "model MB", "batch_ms": "ms/document"}
    keys |= {"p@1": "P@1", "p@3": "P@3", "p@5": "P@5"}
    theirs = {"train_s": "PECOS train s", "train_peak_mb": "PECOS peak MB", "batch_ms": "PECOS ms/document"}
    head = ["labels", "documents", *keys.values(), "first prediction s", *theirs.values()]
    lines = [cells_of(*head), cells_of(*["---"] * len(head))]
    for row in found["rows"]:
        sizes = [f"{row[key]:,}" for key in ("labels", "documents")]
        peer = row.get("pecos") or {}
        peer = {"train_s": peer["error"]} if "error" in peer else peer
        lines.append(
            cells_of(*sizes, *(row[key] for key in keys), max(row["first_answer_s"]), *(peer.get(key, "") for key in theirs))
        )
    return "\n".join(lines)


def new_labels(found: dict[str, Any]) -> str:
    """Means over the draws of held-out labels."""
    keys = ("p@1", "p@3", "p@5", "average_precision", "micro_f1", "macro_f1", "best_f1")
    lines = [cells_of("", *(key.replace("_", " ") for key in keys)), cells_of(*["---"] * (1 + len(keys)))]
    for name, title in (("laco", "laco, shared head"), ("embedding", "nearest embedding")):
        rows = [row[name] for row in found["rows"]]
        lines.append(cells_of(title, *(four_digits(sum(row[key] for row in rows) / len(rows)) for key in keys)))
    return "\n".join(lines)


SECTIONS: dict[str, Callable[[dict[str, Any]], str]] = {
    "baselines": baselines,
    "neural": neural,
    "training_speed": training_speed,
    "sgm_speed": sgm_speed,
    "cpu_prediction": cpu_prediction,
    "gpu_prediction": gpu_prediction,
    "aapd-even": two_decisions,
    "aapd-official": two_decisions,
    "aapd-even-search": search,
    "attention_spread": attention_spread,
    "sequences": sequences,
    "sequences-trees": sequences_trees,
    "order-free": order_free,
    "joint": joint,
    "joint_cost": joint_cost,
    "new_labels": new_labels,
    "decoding": decoding,
    "decoding-cpu": decoding,
    "padding": padding,
    "extreme": extreme,
    "extreme_prediction": extreme_prediction,
    "scale": scale,
    "nearest": nearest,
    "auto": every_model,
    "auto_draws": ahead,
}


def main() -> None:
    """Write every section that has results."""
    book = HERE / "book"
    render(book, HERE / "results")
    for name, table in SECTIONS.items():
        results = HERE / "results" / f"{name}.json"
        if results.exists():
            put(book, name, table(json.loads(results.read_text())))
    put(book, "auto-earlier", looked_at_before(json.loads((HERE / "results" / "auto.json").read_text())))
    put(book, "queue", queue(HERE / "jobs"))
    put(HERE.parent / "README.md", "headlines", headlines(HERE / "results"))
    write_docs(HERE.parent / "docs", HERE / "results")


if __name__ == "__main__":
    main()
