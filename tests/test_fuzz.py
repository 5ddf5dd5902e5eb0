"""Forged artefacts are refused or harmless: a sample over all models; ``make fuzz`` tries many more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).parent / "fuzz" / "runner.py"
LINEAR = ("br", "cc", "lp", "xlinear", "nearest")
NETWORKS = ("sgm", "xbert", "laco")
SAMPLE = 20  # forgeries of each model


def tried(models: tuple[str, ...], most: int, out: Path) -> list[dict[str, object]]:
    done = subprocess.run(
        [sys.executable, str(RUNNER), *models, "--most", str(most), "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert out.exists(), done.stderr[-2000:]
    rows: list[dict[str, object]] = json.loads(out.read_text(encoding="utf-8"))
    return rows


@pytest.mark.skipif(sys.platform != "linux", reason="forks, and reads /proc")
@pytest.mark.parametrize("models", [LINEAR, ("br+edits",), *((name,) for name in NETWORKS)], ids=["linear", "edited", *NETWORKS])
def test_a_sample_of_forged_artefacts_is_refused_or_harmless(models: tuple[str, ...], tmp_path: Path) -> None:
    if models[0] in NETWORKS:
        pytest.importorskip("torch")
    for row in tried(models, SAMPLE, tmp_path / "rows.json"):
        assert row["bad"] == [], row["model"]
        assert int(str(row["tried"])) >= SAMPLE and int(str(row["refused"])) > 0.3 * int(str(row["tried"]))


def test_an_unchecked_state_would_be_noticed(tmp_path: Path) -> None:
    """The runner tells a trace from a refusal: an error that is not one of ours is bad."""
    sys.path.insert(0, str(RUNNER.parent))
    try:
        import runner
    finally:
        sys.path.remove(str(RUNNER.parent))
    report = tmp_path / "report"
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "artefact.json").write_bytes(b"")
    assert runner.outcome(folder, ["a"], "", report) == "refused"
    assert runner.outcome(folder, 3, "", report) == "refused"  # refused before the texts are looked at
