"""One virtual environment per peer, made on demand with pip, by package name."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

PACKAGES: dict[str, tuple[str, ...]] = {
    "sklearn": ("scikit-learn==1.9.1",),
    "libmultilabel": ("libmultilabel==0.10.0",),
    # train_thresholding relies on a sum over a third axis that newer scipy refuses
    "libmultilabel-scipy113": ("libmultilabel==0.10.0", "scipy==1.13.1"),
    "pecos": ("libpecos==1.2.8",),
    "omikuji": ("omikuji==0.5.2", "numpy", "scipy"),
    "napkinxc": ("napkinxc==0.7.2",),
    # the package of fastText's own authors fails on current numpy as soon as it predicts
    "fasttext": ("fasttext-numpy2-wheel==0.9.2", "scipy"),
}


def python_of(name: str, root: Path) -> Path:
    """The interpreter of a peer, made first if needed; polytag runs in the environment that runs the benchmark."""
    if name not in PACKAGES:
        return Path(sys.executable)
    folder = root / name
    python, stamp = folder / "bin" / "python", folder / "installed.json"
    wanted = json.dumps(PACKAGES[name])
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES[name]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"pip could not install {' '.join(PACKAGES[name])}: {done.stderr.strip().splitlines()[-1:]}")
        stamp.write_text(wanted, encoding="utf-8")
    return python
