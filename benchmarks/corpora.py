"""How far the training documents of aapd are from its official test: ``python benchmarks/corpora.py --data DIR``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from polytag import Corpus

OUT = Path(__file__).parent / "results" / "corpora.json"
SET = ("cs.IT", "math.IT")


def main() -> None:
    """Count label sets and write the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    folder = parser.parse_args().data / "aapd"
    sets = {
        part: [frozenset(names) for names in Corpus.read(folder / f"{part}.jsonl.xz").label_lists()] for part in ("train", "test")
    }
    shares = {part: round(found.count(frozenset(SET)) / len(found), 4) for part, found in sets.items()}
    known = set(sets["train"])
    unseen = sum(names not in known for names in sets["test"])
    row = {"set": list(SET), "share_of_documents": shares, "test_documents_whose_set_train_lacks": unseen}
    OUT.write_text(
        json.dumps({"command": "python benchmarks/corpora.py --data DIR", "aapd": row}, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
