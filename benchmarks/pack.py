"""Puts what jobs need into one folder, for a machine that has neither the data nor the packaged encoder.

    python benchmarks/pack.py --data DIR --jobs benchmarks/jobs/extreme.json ... --out FOLDER

FOLDER gets ``data/`` with the corpora of the jobs, ``minilm/`` with the packaged encoder, its weights in half precision, and the
jobs themselves, which name that encoder by where it will lie: FOLDER as it is given here, relative to where neural.py will be
started. ``collect.py --encoder FOLDER/minilm`` calls it minilm again.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

ENCODER = "minilm"
_TOKENISER = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def copy_encoder(folder: Path) -> None:
    """The packaged encoder with weights of two bytes."""
    import torch
    from safetensors.torch import load_file, save_file

    from polytag.nn.encoding.pretrained import minilm_folder

    source = minilm_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for name in _TOKENISER:
        shutil.copyfile(source / name, folder / name)
    weights = load_file(source / "model.safetensors")
    halved = {name: value.half() if value.dtype == torch.float32 else value for name, value in weights.items()}
    save_file(halved, folder / "model.safetensors", metadata={"format": "pt"})


def with_encoder(value: Any, folder: Path) -> Any:
    """A job, or a part of one, that names the encoder by its folder."""
    if isinstance(value, dict):
        return {
            key: str(folder) if key.endswith("encoder") and item == ENCODER else with_encoder(item, folder)
            for key, item in value.items()
        }
    return [with_encoder(item, folder) for item in value] if isinstance(value, list) else value


def main() -> None:
    """Copy the corpora, the encoder and the jobs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--jobs", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    told = parser.parse_args()
    jobs = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in told.jobs}
    for corpus in sorted({job["corpus"] for listed in jobs.values() for job in listed}):
        (told.out / "data" / corpus).mkdir(parents=True, exist_ok=True)
        for path in (told.data / corpus).glob("*.jsonl*"):
            shutil.copyfile(path, told.out / "data" / corpus / path.name)
    copy_encoder(told.out / ENCODER)
    for name, listed in jobs.items():
        text = json.dumps(with_encoder(listed, told.out / ENCODER), indent=1)
        (told.out / name).write_text(text + "\n", encoding="utf-8")
    size = sum(path.stat().st_size for path in told.out.rglob("*") if path.is_file())
    print(f"{told.out}: {size / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
