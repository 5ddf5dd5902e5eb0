"""X-BERT's tables 2 and 3 and figure 5 with our rows: ``python benchmarks/extreme_tables.py`` after collect.py.

Reads results/xbert.json (what neural.py made of jobs/extreme.json and jobs/extreme-mixed.json), puts tables between the markers
of the book, and draws results/pictures/xbert-ensembles.png. Numbers are per cent, of test where it was opened, else of
validation.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from peers.report import put

HERE = Path(__file__).parent
RESULTS, PICTURE = HERE / "results" / "xbert.json", HERE / "results" / "pictures" / "xbert-ensembles.png"
LINEAR = HERE / "results" / "extreme.json"
CORPORA = ("debdeps", "debtags")
AT = [f"p@{k}" for k in (1, 3, 5)]
MATCHERS = {"linear": "linear matcher, {}", "xttention": "xttention {}", "xbert": "xbert {}"}
PAPER_2 = {  # matching, then ranking, on Eurlex-4K; its clusters by label text are made with ELMo
    ("text", "linear"): "83.70 / 71.66 / 59.43 | 79.84 / 67.70 / 56.30",
    ("text", "xttention"): "87.32 / 74.91 / 61.40 | 83.00 / 69.81 / 58.10",
    ("text", "xbert"): "89.50 / 78.27 / 64.51 | 83.29 / 71.90 / 60.28",
    ("pifa", "linear"): "91.57 / 69.12 / 51.71 | 81.19 / 68.86 / 57.51",
    ("pifa", "xttention"): "92.91 / 70.50 / 52.06 | 82.82 / 70.25 / 58.59",
    ("pifa", "xbert"): "93.14 / 74.34 / 55.38 | 82.95 / 70.91 / 59.50",
}
PAPER_3 = [  # P@1, 3, 5, then R@1, 3, 5
    ("Eurlex-4K: Parabel (T=1)", "81.99 / 68.89 / 57.30 | | 16.76 / 41.24 / 56.26"),
    ("Eurlex-4K: Parabel (T=3)", "82.48 / 69.95 / 58.49 | | 16.87 / 41.98 / 57.46"),
    ("Eurlex-4K: X-BERT (T=1)", "83.29 / 71.90 / 60.28 | | 17.00 / 43.15 / 59.19"),
    ("Eurlex-4K: X-BERT (T=6)", "86.31 / 74.58 / 62.59 | +4.8 / +6.5 / +6.8 % | 17.69 / 44.86 / 61.49"),
    ("Wiki-500K: Parabel (T=3)", "60.91 / 41.33 / 31.67 | | 18.74 / 33.21 / 39.75"),
    ("Wiki-500K: X-BERT (T=1)", "64.12 / 43.26 / 32.88 | | 19.75 / 34.41 / 40.80"),
    ("Wiki-500K: X-BERT (T=6)", "67.80 / 46.52 / 35.73 | +11.3 / +12.6 / +12.8 % | 21.18 / 37.46 / 44.79"),
]
OURS_3 = [
    *("xlinear", "xlinear, three trees", "xlinear, vectors beside words"),
    *(f"{model} {index}" for model in ("xttention", "xbert") for index in ("text", "pifa")),
    "xbert text, words alone",
]
TITLES = {"xlinear, vectors beside words": "xlinear, tf-idf and embeddings", "xbert text, words alone": "xbert text, tf-idf only"}
MEMBERS = {"v1": ("text",), "v2": ("pifa",), "v3": ("text", "pifa")}
ENSEMBLES = {"v1": "label text, T=3", "v2": "PIFA, T=3", "v3": "both, T=6"}
Rows = dict[str, dict[str, Any]]
Values = dict[str, list[float]]


def nearest(found: dict[str, Any]) -> str:
    """P@k and propensity-scored P@5 on test of ``nearest``, ``xlinear`` and their mixture, in per cent."""
    keys = [*AT, "psp@5"]
    lines = [f"| | seeds | {' | '.join(keys)} |", "| --- " * (2 + len(keys)) + "|"]
    for row in found["rows"]:
        values = (row["test_mean_and_deviation"][key] for key in keys)
        cells = [
            f"{100 * mean:.2f} ± {100 * spread:.2f}" if len(row["seeds"]) > 1 else f"{100 * mean:.2f}" for mean, spread in values
        ]
        lines.append(f"| {row['name']} | {len(row['seeds'])} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _part(row: dict[str, Any]) -> str:
    return "test" if "test" in row else "valid"


def _values(row: dict[str, Any], name: str = "p") -> list[float]:
    """Means over seeds of a metric at 1, 3 and 5, in per cent."""
    return [100 * row[f"{_part(row)}_mean_and_deviation"][f"{name}@{k}"][0] for k in (1, 3, 5)]


def _cell(values: list[float]) -> str:
    return " / ".join(f"{value:.2f}" for value in values)


def matching(rows: Rows) -> str:
    """Table 2: precision of the matched clusters and of the ranked labels, by index and matcher."""
    lines = [
        "| corpus | index | matcher | clusters P@1/3/5 | labels P@1/3/5 | *paper, Eurlex-4K: clusters* | *paper: labels* |",
        "|---" * 7 + "|",
    ]
    for corpus in CORPORA:
        for index, matcher in PAPER_2:
            row = rows.get(f"{corpus} {MATCHERS[matcher].format(index)}")
            if row is not None:
                found = row[f"{_part(row)}_matching"]
                clusters = [100 * sum(seed[key] for seed in found) / len(found) for key in AT]
                paper = PAPER_2[index, matcher] if corpus == CORPORA[0] else " | "
                lines.append(f"| {corpus} | {index} | {matcher} | {_cell(clusters)} | {_cell(_values(row))} | {paper} |")
    return "\n".join(lines)


def overall(rows: Rows) -> str:
    """Table 3: P@k, also relative to one tree of xlinear and to Parabel with three trees, R@k, and PSP@k."""
    head = "| corpus | model | P@1/3/5 | relative to xlinear | to Parabel (T=3) | R@1/3/5 | PSP@1/3/5 | train s |"
    lines = [head, "|---" * 8 + "|"]
    anchors = parabel()
    for corpus, values in anchors.items():
        lines.append(f"| {corpus} | omikuji Parabel (T=3) | {_cell(values)} | | {_over(values, values)} | | | |")
    for corpus in CORPORA:
        names = [f"{corpus} {name}" for name in (*OURS_3, *(f"xbert {version}" for version in ENSEMBLES))]
        for row in (rows[name] for name in names if name in rows):
            base = _values(rows[f"{corpus} xlinear"])
            anchor = _over(_values(row), anchors[corpus]) if corpus in anchors else ""
            name = row["name"].removeprefix(f"{corpus} ")
            name += f" ({ENSEMBLES[name[-2:]]})" if name[-2:] in ENSEMBLES else ""
            name = TITLES.get(name, name)
            cells = f"{_cell(_values(row))} | {_over(_values(row), base)} | {anchor} | {_cell(_values(row, 'r'))}"
            cells += f" | {_cell(_values(row, 'psp'))} | {_seconds(rows, row)}"
            lines.append(f"| {corpus} | {name} | {cells} |")
    for name, cells in PAPER_3:
        precision, over, recall = cells.split(" |")
        lines.append(f"| *paper* | *{name}* | {precision} | |{over} |{recall} | | |")
    return "\n".join(lines)


def parabel() -> Values:
    """P@k of omikuji's Parabel with three trees, by corpus, from the comparison of linear models; in per cent."""
    found = json.loads(LINEAR.read_text(encoding="utf-8"))["rows"]
    return {row["corpus"]: [100 * row[key] for key in AT] for row in found if row["name"] == "omikuji Parabel (3 trees)"}


def _over(values: list[float], base: list[float]) -> str:
    """The relative gain over a base, in per cent."""
    return " / ".join(f"{100 * (own / one - 1):+.1f}" for own, one in zip(values, base, strict=True)) + " %"


def _seconds(rows: Rows, row: dict[str, Any]) -> str:
    """Seconds of training by seed; those of an ensemble's members come on top of its own."""
    own = " ".join(str(value) for value in row["train_seconds"])
    version = row["name"][-2:]
    if version not in MEMBERS:
        return own
    members = [rows[f"{row['corpus']} xbert {index}"]["train_seconds"] for index in MEMBERS[version]]
    return f"{own} + {sum(sum(seeds) for seeds in members):,} (members)"


def draw(rows: Rows) -> None:
    """Figure 5: what ensembles add to the single configuration that is better on validation."""
    there = [corpus for corpus in CORPORA if f"{corpus} xbert v1" in rows]
    if not there:
        return
    figure = Figure(figsize=(4.5 * len(there), 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    for number, corpus in enumerate(there, start=1):
        axes = figure.add_subplot(1, len(there), number)
        single = max(
            (rows[f"{corpus} xbert {i}"] for i in ("text", "pifa")), key=lambda r: r["valid_mean_and_deviation"]["p@1"][0]
        )
        for place, (version, what) in enumerate(ENSEMBLES.items()):
            if f"{corpus} xbert {version}" not in rows:
                continue
            gains = [own - one for own, one in zip(_values(rows[f"{corpus} xbert {version}"]), _values(single), strict=True)]
            axes.bar([k + 0.27 * (place - 1) for k in range(3)], gains, width=0.25, label=f"{version} ({what})")
        axes.set_xticks(range(3), ["P@1", "P@3", "P@5"])
        axes.set_title(
            f"{corpus}, over {single['name'].removeprefix(f'{corpus} ')} (mean of {len(single['seeds'])} seeds)", fontsize=9
        )
        axes.set_ylabel("points")
        axes.axhline(0, color="black", linewidth=0.8)
        axes.legend(fontsize=8)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=110)


def main() -> None:
    """Write the tables and the picture."""
    rows = {row["name"]: row for row in json.loads(RESULTS.read_text())["rows"]}
    put(HERE / "book", "xbert-matching", matching(rows))
    put(HERE / "book", "xbert", overall(rows))
    draw(rows)


if __name__ == "__main__":
    main()
