"""The results book: ``python -m benchmarks table NAME... [--train --data DIR]`` and ``python -m benchmarks check``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # the scripts of this folder import one another


def main() -> int:
    """Write tables of papers with our rows, or check the numbers of the book."""
    import book_numbers
    import paper_tables

    known = paper_tables.papers()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    table = verbs.add_parser("table", help="a paper's table with our rows: JSON, Markdown and a picture")
    table.add_argument("names", nargs="+", choices=[*known, "all"], metavar="NAME", help=f"{', '.join(known)} or all")
    table.add_argument("--train", action="store_true", help="train what is missing; finished runs are reused")
    table.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the corpora")
    table.add_argument("--seconds", type=float, default=3600, help="time for training; the next call goes on")
    table.add_argument("--work", type=Path, default=Path("runs/book"), help="folder of the trainings")
    verbs.add_parser("check", help="list numbers of the book that no result has")
    told = parser.parse_args()
    if told.verb == "check":
        lacking = book_numbers.lacking()
        print("\n".join(f"{page}: {', '.join(found)}" for page, found in lacking.items()) or "every number is in its results")
        return int(bool(lacking))
    for name in known if "all" in told.names else told.names:
        found = paper_tables.write(name, known[name])
        if found["missing"] and told.train:
            paper_tables.train(name, known[name], found["missing"], told.data, told.seconds, told.work)
            found = paper_tables.write(name, known[name])
        print(f"{name}: {len(found['missing'])} rows are missing" + "".join(f"\n  {row}" for row in found["missing"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
