"""How fast label sequences are decoded: documents per second by beam, reading not counted; on a CPU also the whole prediction.

    python benchmarks/decoding.py --run RUN --corpus aapd [--data DIR] [--documents N] [--beams 1,5,9] [--out FILE]

RUN is a trained sequence model. Documents of the test part are read once, then their states are decoded with each beam, round
by round, and the median counts. ``whole`` is the time from texts to labels, as ``polytag predict`` does it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from peers.report import machine
from polytag import Classifier, Corpus, LabelSet
from polytag.models.base.sequence_model import EncoderStates, SequenceModel, SequenceNetwork
from polytag.nn.decoding.beam_search import beam_search
from polytag.nn.encoding.document_vectors import encoding_batches
from polytag.nn.training.batch import Documents, tokenise
from polytag.nn.training.devices import autocast, pick_device, pick_precision
from polytag.text.preprocess import prepare


def seconds(work: Callable[[], Any], device: torch.device) -> float:
    """How long some work takes, until the device has done it."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def states_of(model: SequenceModel, texts: list[str], device: torch.device) -> list[EncoderStates]:
    """The encoder's states of all documents, in the batches that prediction has."""
    assert isinstance(model.network, SequenceNetwork) and model.tokens is not None
    network = model.network.to(device).eval()
    data = Documents(
        tokenise(model.tokens, prepare(texts, model.texts.preprocess, model.texts.max_words)), model._layout(), device
    )
    with torch.inference_mode(), autocast(device, pick_precision(model.compute.precision, device, network)):
        return [network(batch.ids, batch.mask) for _, batch in encoding_batches(data, model._rows_at_once())]


def decode(model: SequenceModel, states: list[EncoderStates], beam: int) -> int:
    """Decode everything; how many labels came out."""
    assert isinstance(model.network, SequenceNetwork)
    count = torch.zeros((), dtype=torch.long, device=states[0].states.device)
    with torch.inference_mode():
        for encoded in states:
            found = beam_search(model.network.decoder, *encoded, beam=beam, longest=model.longest, only_best=True)
            count += (found.labels[:, 0] >= 0).sum()
    return int(count)


def measure(classifier: Classifier, corpus: Corpus, beams: list[int], rounds: int, whole: bool) -> dict[str, Any]:
    """Documents per second for every beam."""
    model = classifier.model
    assert isinstance(model, SequenceModel)
    device = pick_device(model.compute.device)
    states = states_of(model, corpus.texts, device)
    labels = {beam: decode(model, states, beam) for beam in beams}  # and everything is warm
    times: dict[int, list[float]] = {beam: [] for beam in beams}
    predictions: dict[int, list[float]] = {beam: [] for beam in beams}
    for _ in range(rounds):
        for beam in beams:
            times[beam].append(seconds(partial(decode, model, states, beam), device))
            if whole:
                model.search.beam = beam
                predictions[beam].append(seconds(lambda: classifier.predict(corpus.texts), device))
    found: dict[str, Any] = {"device": device.type, "rows": []}
    for beam in beams:
        row: dict[str, Any] = {"beam": beam, "labels_per_document": labels[beam] / len(corpus), "decoding_seconds": times[beam]}
        row["decoded_documents_per_second"] = len(corpus) / median(times[beam])
        if whole:
            row["whole_seconds"] = predictions[beam]
            row["whole_times_beam_1"] = median(predictions[beam]) / median(predictions[beams[0]])
        found["rows"].append(row)
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("POLYTAG_DATA", "../shared/data")))
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--corpus", default="aapd")
    parser.add_argument("--documents", type=int, default=0, help="documents of the test part; 0 for all")
    parser.add_argument("--beams", default="1,5,9")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--whole", action="store_true", help="also time the whole prediction")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/decoding.json"))
    told = parser.parse_args()
    folder = told.data / told.corpus
    corpus = Corpus.read(folder / "test.jsonl.xz", labels=LabelSet.read(folder / "labels.jsonl"))
    corpus = corpus.subset(range(min(told.documents or len(corpus), len(corpus))))
    found = measure(Classifier.load(told.run), corpus, [int(beam) for beam in told.beams.split(",")], told.rounds, told.whole)
    options = f" --documents {told.documents}" * bool(told.documents) + " --whole" * told.whole
    about = {"command": f"python benchmarks/decoding.py --run RUN --corpus {told.corpus} --beams {told.beams}{options}"}
    result = {**about, "machine": machine(), "corpus": told.corpus, "documents": len(corpus), **found}
    told.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
