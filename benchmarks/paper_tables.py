"""The papers' tables with our rows: ``python -m benchmarks table sgm-2`` (sgm-3, bert-2, laco-2, laco-4, xbert-2, xbert-3, all).

``papers.json`` has the papers' numbers and names the row of ours that stands next to each. The rows come from results/*.json.
What is missing is named, and trained with ``--train`` by neural.py's queue, which reuses what is finished. A table becomes
results/tables/NAME.json, a section of book/papers.md and a picture.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from peers.report import put
from tables import decided

HERE = Path(__file__).resolve().parent
JOBS, RESULTS, PAGE = HERE / "jobs", HERE / "results", HERE / "book" / "papers.md"
PER_CENT = ("p@", "r@", "clusters_")
Table = dict[str, Any]
Row = dict[str, Any]
Values = dict[str, list[float]]


def papers() -> dict[str, Table]:
    """The tables by name, as papers.json has them."""
    found: dict[str, Table] = json.loads((HERE / "papers.json").read_text(encoding="utf-8"))["tables"]
    return found


def our_rows(table: Table, results: Path = RESULTS) -> dict[str, Row]:
    """Our rows by name, of those results of a table that exist; the first one that has a name counts."""
    rows: dict[str, Row] = {}
    for name in table["results"]:
        path = results / f"{name}.json"
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []:
            row.setdefault("name", f"{row['corpus']} {row['model']}")
            if "test_mean_and_deviation" in row:
                rows.setdefault(row["name"], {**row, "from": name})
    return rows


def missing(table: Table, rows: dict[str, Row]) -> list[str]:
    """Names of rows that a table wants and no result has."""
    wanted = [row["ours"] for part in table["parts"] for row in part["rows"] if row["ours"]]
    return [name for name in dict.fromkeys(wanted) if name not in rows]


def filled(name: str, table: Table, rows: dict[str, Row]) -> Table:
    """The table with our numbers, means and deviations over seeds, and every gain over the anchor."""
    made: Table = {"table": name, "title": table["title"], "paper": table["paper"], "anchor": table["anchor"]}
    made |= {"missing": missing(table, rows), "parts": []}
    for part in table["parts"]:
        lines = [_line(row, rows.get(row["ours"] or ""), table) for row in part["rows"]]
        anchor = next(line for line in lines if line["name"] == table["anchor"])
        for line in lines:
            line["gain"] = {"quoted": relative_gain(line["paper"], anchor["paper"], table["key"])}
            for whose in line["ours"]:
                base = anchor["ours"].get(whose) or {}
                line["gain"][whose] = relative_gain(_means(line["ours"][whose]), _means(base), table["key"])
        made["parts"].append({"paper": part["paper"], "ours": part["ours"], "rows": lines})
    return made


def _line(row: Row, ours: Row | None, table: Table) -> Row:
    line: Row = {"name": row["name"], "paper": row["paper"], "row": row["ours"], "ours": {}}
    if ours is not None:
        rules = decided(ours) if table.get("decisions", True) else decided(ours)[-1:]
        line |= {"seeds": len(ours["seeds"]), "from": ours["from"]}
        line["ours"] = {whose: _kept({**values, **_matching(ours)}, table["metrics"]) for whose, _, values in rules}
        line["decisions"] = {whose: rule for whose, rule, _ in rules}
    return line


def _matching(row: Row) -> Values:
    """Precision of the clusters of a matcher, mean and deviation over seeds."""
    found = row.get("test_matching") or []
    keys = [key for key in (found[0] if found else {}) if key.startswith("p@")]
    means = {key: sum(one[key] for one in found) / len(found) for key in keys}
    spread = {key: (sum((one[key] - means[key]) ** 2 for one in found) / len(found)) ** 0.5 for key in keys}
    return {f"clusters_{key}": [round(means[key], 4), round(spread[key], 4)] for key in keys}


def _kept(values: Values, metrics: list[str]) -> Values:
    return {key: values[key] for key in metrics if key in values}


def _means(values: Values) -> dict[str, float]:
    return {key: value[0] for key, value in values.items()}


def relative_gain(values: dict[str, float], anchor: dict[str, float], key: str) -> float | None:
    """Relative improvement over the anchor in per cent (X-BERT, equation 2); None where one of both is unknown."""
    if key not in values or not anchor.get(key):
        return None
    return round(100 * (values[key] - anchor[key]) / anchor[key], 2)


def markdown(table: Table, metrics: list[str]) -> str:
    """The tables of all corpora; rows quoted from the paper are in italics."""
    lines = []
    for part in table["parts"]:
        head = ["model", "source", "seeds", *map(_title, metrics), f"gain over {table['anchor']}"]
        lines += ["", f"**{part['paper']}** in the paper, **{part['ours']}** here", "", _row(head), _row(["---"] * len(head))]
        for line in part["rows"]:
            quoted = [_quoted(line["paper"][key], key) if key in line["paper"] else "" for key in metrics]
            lines.append(_row([f"*{line['name']}*", "*paper*", "", *quoted, _gain(line["gain"]["quoted"])]))
            for whose, values in line["ours"].items():
                shown = [_shown(values[key][: 1 + (line["seeds"] > 1)], key) if key in values else "" for key in metrics]
                decision = line["decisions"][whose] if len(line["ours"]) > 1 else "ours"
                lines.append(_row([f"`{line['row']}`", decision, line["seeds"], *shown, _gain(line["gain"][whose])]))
    if table["missing"]:
        lines += ["", f"Not trained yet: {', '.join(f'`{name}`' for name in table['missing'])}."]
    return "\n".join(lines)


def _row(cells: list[Any]) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def _title(metric: str) -> str:
    return metric.replace("clusters_", "clusters ").replace("_", " ")


def _shown(values: list[float], key: str) -> str:
    if key.startswith(PER_CENT):
        return " ± ".join(f"{100 * value:.2f}" for value in values)
    return " ± ".join(f"{value:.4f}".lstrip("0") for value in values)


def _quoted(value: float, key: str) -> str:
    """A number with the digits that the paper gives."""
    return _shown([value], key) if key.startswith(PER_CENT) else _shown([value], key).rstrip("0")


def _gain(value: float | None) -> str:
    return "" if value is None else f"{value:+.1f} %"


def draw(table: Table, key: str, path: Path) -> None:
    """Bars of the gain over the anchor, paper and ours, one panel per corpus."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.2 + 2.4 * len(table["parts"])), layout="constrained")
    for panel, part in zip(figure.subplots(len(table["parts"]), squeeze=False)[:, 0], table["parts"], strict=True):
        names = [line["name"] for line in part["rows"]]
        for shift, whose, label in ((-0.2, "quoted", part["paper"]), (0.2, None, part["ours"])):
            own = [next(iter(line["ours"]), "none") if whose is None else whose for line in part["rows"]]
            gains = [line["gain"].get(who) for line, who in zip(part["rows"], own, strict=True)]
            places = [place + shift for place, gain in enumerate(gains) if gain is not None]
            panel.bar(places, [gain for gain in gains if gain is not None], 0.38, label="paper: " * (whose is not None) + label)
        panel.set_xticks(range(len(names)), names, rotation=25, ha="right", fontsize=7)
        panel.set_ylabel(f"{_title(key)}, % over\n{table['anchor']}", fontsize=8)
        panel.axhline(0, color="black", linewidth=0.6)
        panel.legend(fontsize=7)
    FigureCanvasAgg(figure)
    figure.savefig(path, format="png", metadata={"Software": None})


def train(name: str, table: Table, lacking: list[str], data: Path, seconds: float, work: Path) -> None:
    """Train what is missing with neural.py's queue, and put the rows into the results that papers.json names for their jobs."""
    work.mkdir(parents=True, exist_ok=True)
    for into in dict.fromkeys(table["jobs"].values()):
        jobs = [JOBS / f"{file}.json" for file, target in table["jobs"].items() if target == into]
        known = [job["name"] for path in jobs for job in json.loads(path.read_text(encoding="utf-8"))]
        names = [one for one in lacking if one in known]
        if not names:
            continue
        out = work / f"{name}-{into}.json"
        pattern = "^(" + "|".join(re.escape(one) for one in names) + ")$"
        told = ["--data", data, "--jobs", *jobs, "--only", pattern, "--test", "--runs", work / "runs", "--queue", f"{seconds:g}"]
        subprocess.run([sys.executable, *map(str, (HERE / "neural.py", *told, "--out", out))], check=True)
        subprocess.run([sys.executable, *map(str, (HERE / "collect.py", out, "--into", RESULTS / f"{into}.json"))], check=True)


def write(name: str, table: Table) -> Table:
    """Write JSON, the section of the book and the picture; return the filled table."""
    made = filled(name, table, our_rows(table))
    folder = RESULTS / "tables"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    put(PAGE, name, markdown(made, table["metrics"]))
    draw(made, table["key"], RESULTS / "pictures" / f"table-{name}.png")
    return made
