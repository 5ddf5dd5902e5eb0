"""Save a model in MLflow's form, load it in a fresh environment, and compare the predictions.

``python benchmarks/mlflow_environment.py`` writes ``results/mlflow_environment.json``. It needs the extra ``mlflow`` and a
pip that can install packages.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from polytag.classifier import Classifier
from polytag.datasets import load_sample

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "mlflow_environment.json"
LOADED = """
import json, sys
import mlflow, pandas
model = mlflow.pyfunc.load_model(sys.argv[1])
texts = json.load(open(sys.argv[2]))
found = model.predict(pandas.DataFrame({"text": texts}))
said = {"labels": found["labels"].tolist(), "scores": found["scores"].tolist(), "torch": "torch" in sys.modules}
said["versions"] = {"mlflow": mlflow.__version__, "pandas": pandas.__version__}
json.dump(said, open(sys.argv[3], "w"))
"""


class Unavailable(Exception):
    """The environment cannot be made here."""


def fresh_environment(folder: Path) -> Path:
    """A new virtual environment with this package and its extra for MLflow; returns its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True)
    python = folder / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "-q", f"{ROOT}[mlflow]"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"pip cannot make the environment: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    return python


def measure(folder: Path, documents: int) -> dict[str, Any]:
    """Train, save, load elsewhere, compare."""
    from polytag.mlflow import save_model

    train, valid, test = load_sample()
    classifier = Classifier("br", {"c": [1.0], "ngrams": [1]}).fit(train, valid)
    texts = test.texts[:documents]
    expected = [prediction for _, prediction in classifier.stream((None, text) for text in texts)]
    save_model(classifier, folder / "model")
    start = time.monotonic()
    python = fresh_environment(folder / "environment")
    seconds = time.monotonic() - start
    (folder / "texts.json").write_text(json.dumps(texts))
    paths = [str(folder / name) for name in ("model", "texts.json", "found.json")]
    subprocess.run(
        [str(python), "-c", LOADED, *paths], check=True, cwd=folder, env={"PATH": "/usr/bin:/bin", "HOME": str(folder)}
    )
    found = json.loads((folder / "found.json").read_text())
    return {
        "documents": len(texts),
        "labels": len(classifier.labels),
        "same_labels": found["labels"] == [each.labels for each in expected],
        "same_scores": found["scores"] == [each.scores for each in expected],
        "torch_imported": found["torch"],
        "versions": {**found["versions"], "python": platform.python_version()},
        "environment_seconds": round(seconds, 1),
    }


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=600)
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), given.documents)
    given.out.write_text(json.dumps({"command": "python benchmarks/mlflow_environment.py", **found}, indent=1) + "\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
