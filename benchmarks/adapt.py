"""Continued pre-training on the abstracts of arxiv, and what it does for ``bert`` on aapd-even.

    python benchmarks/adapt.py --data DIR --copies-only --texts TEXTS       # on a CPU: abstracts that stand in valid and test
    python benchmarks/adapt.py --data DIR --texts TEXTS --objective parts --part valid --folder FOLDER --out FILE
    python benchmarks/adapt.py --data DIR --texts TEXTS --objective parts --seeds 0,1,2 --folder FOLDER --out FILE

First the abstracts that stand in the validation or test documents, at least by half, are removed (MinHash of
``polytag.audit.near_duplicates``); the others are written to TEXTS, or read from there. The packaged encoder is adapted once.
``bert``, or another ``--model``, is trained with the packaged and with the adapted encoder, all seeds with the same settings. The
difference is that of the means over the seeds, by paired bootstrap over the test documents. Objective, epochs and rate are chosen
on validation documents (``--part valid``: cross-fitted); test is opened once. ``--probe`` leaves the packaged encoder out.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from distil import BERT, SETTINGS, copies_of
from polytag import Classifier, Corpus, LabelSet
from polytag.metrics.bootstrap import paired_bootstrap


def abstracts(data: Path, held: list[str]) -> tuple[list[str], dict[str, int]]:
    """The texts of arxiv that are none of the held ones, and how many were removed."""
    texts = [text for part in ("train", "valid", "test") for text in Corpus.read(data / "arxiv" / f"{part}.jsonl.xz").texts]
    copies = copies_of(held, texts)
    kept = [text for text, near in zip(texts, copies, strict=True) if not near]
    known = {row for near in copies for row in near}
    return kept, {"abstracts": len(texts), "removed": len(texts) - len(kept), "held": len(held), "held_with_copy": len(known)}


def main() -> None:
    """Remove copies, adapt, train with both encoders, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--corpus", default="aapd-even")
    parser.add_argument("--folder", type=Path, default=Path("encoders/arxiv"), help="the adapted encoder; used if it is there")
    parser.add_argument("--objective", default="masked")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--texts", type=Path, help="file of the texts without copies")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--model", default="bert", choices=("bert", "embed"))
    parser.add_argument("--probe", action="store_true", help="rows of the adapted encoder alone, to compare settings")
    parser.add_argument("--part", default="test", choices=("valid", "test"))
    parser.add_argument("--copies-only", action="store_true")
    parser.add_argument("--documents", type=int, default=0, help="texts and training documents, for a trial; 0 = all")
    parser.add_argument("--out", type=Path)
    told = parser.parse_args()
    folder = told.data / told.corpus
    labels = LabelSet.read(next(folder.glob("labels.jsonl*")))
    train, valid, test = (Corpus.read(folder / f"{part}.jsonl.xz", labels=labels) for part in ("train", "valid", "test"))
    unsaid = ("out", "data", "folder", "texts")
    result: dict[str, Any] = {key: str(value) for key, value in vars(told).items() if key not in unsaid}
    if told.texts and told.texts.exists():
        texts = Corpus.read(told.texts).texts
    else:
        texts, result["copies"] = abstracts(told.data, [*valid.texts, *test.texts])
        print(json.dumps(result["copies"]), flush=True)
        if told.texts:
            Corpus.of(texts, [[]] * len(texts)).write(told.texts)
    if not told.copies_only:
        if told.documents:
            texts, train = texts[: told.documents], train.subset(range(told.documents))
        asked = valid if told.part == "valid" else test
        result |= _compared(told, texts, (train, valid, asked))
    if told.out:
        told.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _compared(told: argparse.Namespace, texts: list[str], corpora: tuple[Corpus, Corpus, Corpus]) -> dict[str, Any]:
    from polytag.transfer.adaptation import Adaptation, adapt

    train, valid, asked = corpora
    found: dict[str, Any] = {}
    if not (told.folder / "model.safetensors").exists():
        start = time.perf_counter()
        settings = Adaptation(told.objective, told.epochs, told.minutes, told.batch, told.rate, max_length=256)
        found["adaptation"] = adapt(texts, "minilm", told.folder, settings)._asdict()
        found["adaptation"]["seconds"] = time.perf_counter() - start
        print(json.dumps(found["adaptation"]), flush=True)
    else:  # what the log of its run says
        events = map(json.loads, (told.folder / "log.jsonl").read_text(encoding="utf-8").splitlines())
        found["adaptation"] = next(event for event in events if event["event"] == "adaptation")
    sets: dict[str, list[Any]] = {}
    encoders = {**({} if told.probe else {"packaged": "minilm"}), "adapted": str(told.folder)}
    own = SETTINGS.get(told.corpus, BERT) if told.model == "bert" else {}
    known = None if told.model == "embed" and asked is valid else valid  # linear models learn from validation documents too
    for name, encoder in encoders.items():
        rows = found.setdefault("rows", {}).setdefault(name, [])
        for seed in map(int, told.seeds.split(",")):
            clf = Classifier(told.model, {**own, "encoder": encoder, "seed": seed}).fit(train, known)
            metrics = clf.evaluate(asked)
            rows.append({"seed": seed, **{key: metrics[key] for key in ("micro_f1", "macro_f1", "subset_accuracy")}})
            rows[-1]["cross_fitted"] = max(clf.decision.report["cross_fitted"].values(), default=None)
            sets.setdefault(name, []).append(clf.outcome(asked).predicted)
            print(name, json.dumps(rows[-1]), flush=True)
    if not told.probe:
        pair = sets["adapted"], sets["packaged"]
        found["difference"] = {key: paired_bootstrap(asked.truth, *pair, key)._asdict() for key in ("micro_f1", "macro_f1")}
        print(json.dumps(found["difference"]), flush=True)
    return found


if __name__ == "__main__":
    main()
