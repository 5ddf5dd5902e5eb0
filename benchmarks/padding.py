"""How much of the training batches is padding: ``python benchmarks/padding.py --data DIR --corpus aapd``."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polytag import Corpus
from polytag.config.groups.encoder_settings import WordSettings
from polytag.nn.encoding.pretrained import describe_encoder
from polytag.nn.training.batch import Layout, batches, bucket, tokenise


def padding_waste(lengths: NDArray[Any], plan: Sequence[NDArray[Any]], multiple: int = 1, most: int = 1 << 30) -> float:
    """The share of all places in the batches that is padding."""
    places = sum(len(rows) * bucket(int(lengths[rows].max()), multiple, most) for rows in plan)
    return 1 - float(sum(int(lengths[rows].sum()) for rows in plan)) / max(1, places)


def main() -> None:
    """Tokenise the training documents and plan one epoch for several batch sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("POLYTAG_DATA", "../shared/data")))
    parser.add_argument("--corpus", default="aapd")
    parser.add_argument("--max-length", type=int, default=320)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/padding.json"))
    told = parser.parse_args()
    texts = Corpus.read(told.data / told.corpus / "train.jsonl.xz").texts
    tokens, _ = describe_encoder("minilm", texts, WordSettings(0, 1, 1, 1), None)
    layout = Layout(told.max_length, prefix=tokens.prefix, suffix=tokens.suffix, pad=tokens.pad)
    lengths = layout.lengths(tokenise(tokens, texts).lengths)
    rows = []
    for size in (16, 32, 64, 128, 256):
        plan = batches(lengths, size, np.random.default_rng(0))
        shuffled = np.array_split(np.random.default_rng(0).permutation(len(lengths)), -(-len(lengths) // size))
        rows.append(
            {
                "batch_size": size,
                "padding": round(padding_waste(lengths, plan), 4),
                "padding_in_multiples_of_32": round(padding_waste(lengths, plan, 32, told.max_length), 4),
                "padding_if_shuffled": round(padding_waste(lengths, shuffled), 4),
            }
        )
        print(rows[-1])
    about = {"command": f"python benchmarks/padding.py --corpus {told.corpus} --max-length {told.max_length}"}
    told.out.write_text(json.dumps({**about, "documents": len(lengths), "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
