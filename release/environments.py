"""Install the wheel into new environments and run it there: ``python release/environments.py [NAME...] [--out FILE]``.

Every environment is made from nothing, by plain pip. Extras are tried one by one: what the extra is for is done once.
With ``tests`` the fast tests run too, with the newest dependencies or with the lowest that pyproject.toml allows.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lowest import lowest

ROOT = Path(__file__).resolve().parent.parent
TORCH = "torch>=2.6,<2.14"
TRAIN = "polytag -q train sample/valid.jsonl.xz --labels sample/labels.jsonl --set c=1 --out runs/br"
PREDICT = "polytag predict runs/br sample/test.jsonl.xz"
SAMPLE = "polytag data sample --out sample"
USE = f"{SAMPLE} && {TRAIN} && polytag explain runs/br chess && {PREDICT} --out p"
SEARCH = "polytag tune sample/valid.jsonl.xz --range 'balance={low=0, high=1}' --set c=1 --trials 2 --out runs/tune"
NETWORK = "polytag -q train sample/valid.jsonl.xz --model cnn --set epochs=1 --set filters=8 --set device=cpu --out runs/cnn"
SKOS = "polytag labels write sample/labels.jsonl --out v.ttl"
RAY = f"{PREDICT} --cluster local --out labelled"
EXPORT = "polytag export runs/cnn --onnx"
SERVE = "polytag serve runs/br --get /v1/models"
REPORT = "polytag report runs/br --test sample/test.jsonl.xz --out r.html"
SKLEARN = """
from polytag.sklearn import PolytagClassifier
texts, labels = ["goal match", "rain storm", "goal league", "wind storm"] * 5, [["sport"], ["weather"]] * 10
assert len(PolytagClassifier(model="br").fit(texts, labels).predict(["goal"])) == 1
"""
MLFLOW = """
import mlflow, pandas, polytag
from polytag.mlflow import save_model
save_model(polytag.Classifier.load("runs/br"), "tagger")
assert len(mlflow.pyfunc.load_model("tagger").predict(pandas.DataFrame({"text": ["chess for the console", ""]}))) == 2
"""
SPARK = """
from pyspark.sql import SparkSession
from polytag.spark import predict
session = SparkSession.builder.master("local[1]").getOrCreate()
frame = session.createDataFrame([("chess for the console",), ("",)], ["text"])
assert predict(frame, "runs/br").count() == 2
"""
FAST = ("test_artefact", "test_fixtures", "test_linear", "test_metrics", "test_corpus", "test_formats", "test_decision",
        "test_cli", "test_classifier", "test_labels", "test_scores", "test_tfidf")  # fmt: skip


def _python(code: str) -> str:
    return f"python -c {shlex.quote(code)}"


def readme() -> str:
    """The commands and the Python examples of README.md in order, as one line for a shell; set-up is left out."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"^\$ ((?:polytag|head) [^\n]+)$|^```python\n(.+?)^```", text, re.DOTALL | re.MULTILINE)
    return " && ".join(command or _python(code) for command, code in found)


@dataclass(frozen=True)
class Trial:
    """An environment: its Python, extras, bounds, and what is done in it."""

    python: str = "python3.11"
    extras: str = ""
    then: str = USE
    shows: str = "train, explain, predict"
    oldest: bool = False
    tests: bool = False

    @property
    def torch(self) -> bool:
        """Whether torch goes first and alone."""
        return bool({"nn", "export"} & set(self.extras.split(",")))


TRIALS = {
    "core": Trial(),
    "readme": Trial(then=readme(), shows="the commands of README.md"),
    "core-3.12": Trial("python3.12"),
    "core-3.13": Trial("python3.13"),
    "serve": Trial(extras="serve", then=f"{USE} && {SERVE}", shows="train, explain, predict, serve"),
    "skos": Trial(extras="skos", then=f"{SAMPLE} && {SKOS}", shows="labels to SKOS"),
    "sklearn": Trial(extras="sklearn", then=_python(SKLEARN), shows="fit and predict of the estimator"),
    "tune": Trial(extras="tune", then=f"{SAMPLE} && {SEARCH}", shows="a search of two trials"),
    "report": Trial(extras="report", then=f"{USE} && {REPORT}", shows="train, explain, predict, report"),
    "postgres": Trial(extras="postgres", then=_python("import psycopg, polytag"), shows="import of the driver"),
    "mlflow": Trial(extras="mlflow", then=f"{SAMPLE} && {TRAIN} && {_python(MLFLOW)}", shows="save as a model, load, predict"),
    "cluster": Trial(extras="cluster", then=f"{USE} && {RAY}", shows="train, explain, predict, predict with Ray"),
    "spark": Trial(extras="spark", then=f"{SAMPLE} && {TRAIN} && {_python(SPARK)}", shows="train, predict of a Spark frame"),
    "nn": Trial(extras="nn", then=f"{USE} && {NETWORK}", shows="train, explain, predict, a network"),
    "nn-serve": Trial(extras="nn,serve", then=f"{USE} && {NETWORK} && {SERVE}", shows="train, explain, a network, serve"),
    "export": Trial(extras="nn,export", then=f"{USE} && {NETWORK} && {EXPORT}", shows="a network, export to ONNX"),
    "oldest": Trial(oldest=True, tests=True),
    "tests-3.12": Trial("python3.12", tests=True),
    "tests-3.13": Trial("python3.13", tests=True),
}  # fmt: skip
for _extra in ("serve", "skos", "sklearn", "tune", "report", "postgres", "mlflow", "cluster", "spark"):
    TRIALS[f"oldest-{_extra}"] = replace(TRIALS[_extra], oldest=True)


def run_trial(name: str, trial: Trial, wheel: Path) -> dict[str, Any]:
    """Make the environment, install, do; the row says what was installed and how it ended."""
    row: dict[str, Any] = {
        "name": name,
        "extras": trial.extras,
        "dependencies": "lowest" if trial.oldest else "newest",
        "shows": trial.shows,
    }
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        start = time.perf_counter()
        steps = [*_installation(trial, wheel, place), ("use", trial.then)]
        if trial.tests:
            steps.append(("tests", _tests(place)))
        for step, command in steps:
            done = _shell(command, place)
            if done.returncode:
                row |= {"failed": step, "said": (done.stdout + done.stderr)[-1500:]}
                break
            if step == "tests":
                row["tests"] = done.stdout.strip().splitlines()[-1]
        row |= {"python": _shell("python --version", place).stdout.split()[-1], "packages": _versions(place)}
        row["seconds"] = round(time.perf_counter() - start)
    return row


def _installation(trial: Trial, wheel: Path, place: Path) -> list[tuple[str, str]]:
    pip = "python -m pip install --quiet --disable-pip-version-check"
    constraints = place / "constraints.txt"
    extras = [extra for extra in trial.extras.split(",") if extra]
    constraints.write_text("\n".join(lowest(extras)) + "\n" if trial.oldest else "", encoding="utf-8")
    target = f"{wheel}[{trial.extras}]" if trial.extras else str(wheel)
    steps = [("environment", f"{trial.python} -m venv {place}/environment")]
    if trial.torch:
        steps.append(("torch", f"{pip} '{TORCH}'"))
    return [*steps, ("install", f"{pip} -c {constraints} '{target}'")]


def _tests(place: Path) -> str:
    """The fast tests, of a copy without the sources, so that the installed package is what is tested."""
    shutil.copytree(ROOT / "tests", place / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", place)
    files = " ".join(f"tests/{name}.py" for name in FAST)
    wanted = "'pytest>=8' 'hypothesis>=6.100' 'scikit-learn>=1.5' 'pandas>=2.2' 'safetensors>=0.4'"
    pip = f"python -m pip install --quiet --disable-pip-version-check -c constraints.txt {wanted}"
    return f"{pip} && python -m pytest -q -p no:cacheprovider {files}"


def _shell(command: str, place: Path) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")}
    path = f"{place}/environment/bin:{kept['PATH']}"
    environment = {**kept, "PATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run(["bash", "-c", command], cwd=place, env=environment, capture_output=True, text=True, check=False)


def _versions(place: Path) -> dict[str, str]:
    shown = _shell("python -m pip list --format json --disable-pip-version-check", place).stdout
    listed = json.loads(shown) if shown.strip() else []
    return {one["name"]: one["version"] for one in listed if one["name"] not in ("pip", "setuptools")}


def main() -> None:
    """Run trials and write their rows; rows of other trials stay."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"trials [default: all of {', '.join(TRIALS)}]")
    parser.add_argument("--wheel", type=Path, help="the wheel [default: that of dist/]")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "environments.json")
    told = parser.parse_args()
    wheel = (told.wheel or next((ROOT / "dist").glob("*.whl"))).resolve()
    known = json.loads(told.out.read_text(encoding="utf-8"))["rows"] if told.out.exists() else []
    rows = {row["name"]: row for row in known}
    for name in told.names or TRIALS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows[name] = row = run_trial(name, TRIALS[name], wheel)
        print(f"{name}: {row.get('failed') or 'works'} ({row['seconds']} s)", file=sys.stderr, flush=True)
        if "said" in row:
            print(row["said"], file=sys.stderr)
        made: dict[str, Any] = {
            "command": "python release/environments.py",
            "wheel": wheel.name,
            "rows": [rows[name] for name in TRIALS if name in rows],
        }
        told.out.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    sys.exit(any("failed" in rows[name] for name in told.names or TRIALS))


if __name__ == "__main__":
    main()
