"""``polytag adapt`` as functions: continued pre-training of an encoder on texts without labels."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from polytag.config.groups.encoder_settings import WORD_ENCODERS, WordSettings
from polytag.config.groups.training_settings import DEVICES, ComputeSettings, TrainingSettings
from polytag.errors import ConfigError, DataError
from polytag.nn.encoding.document_vectors import encoding_batches
from polytag.nn.encoding.encoders import Encoder, Transformer, build_encoder
from polytag.nn.encoding.pretrained import describe_encoder, load_pretrained, predicts_tokens, write_pretrained
from polytag.nn.training.batch import Batch, Documents, Examples, Layout, TokenArrays, tokenise
from polytag.nn.training.devices import autocast, pick_device, pick_precision
from polytag.nn.training.loop import Goal, seeded, steps_in, train
from polytag.nn.training.optimiser import Setup
from polytag.nn.unlabelled.objectives import (
    SHARE,
    Hiding,
    MaskedNetwork,
    in_pieces,
    masked_loss,
    pair_loss,
    random_part,
    words_loss,
)
from polytag.run import Run
from polytag.text.tokens import SubwordTokens

OBJECTIVES = ("auto", "masked", "words", "pairs", "parts", "both")
_PAIRED, _MASKED = ("pairs", "parts", "both"), ("masked", "both")
_HELD, _HELD_MOST = 20, 1_000  # one text in twenty is held out, at most a thousand
_FEWEST = 20  # texts


@dataclass(frozen=True)
class Adaptation:
    """How an encoder is trained: the objective, the passes over the texts or the minutes, and the sizes.

    ``auto`` is the kind of training that the encoder has had: ``masked`` if it predicts hidden tokens, else ``parts``.
    """

    objective: str = "auto"
    epochs: int = 1
    minutes: float = 0.0
    batch_size: int = 64
    rate: float = 3e-5
    max_length: int = 128
    share: float = SHARE
    seed: int = 0
    device: str = "auto"
    precision: str = "auto"

    def __post_init__(self) -> None:
        """Check the values."""
        if self.objective not in OBJECTIVES:
            raise ConfigError(f"--objective is {self.objective!r}; choose from {', '.join(OBJECTIVES)}")
        if self.device not in DEVICES:
            raise ConfigError(f"--device is {self.device!r}; choose from {', '.join(DEVICES)}")
        if not 0 < self.share < 1:
            raise ConfigError(f"--share is {self.share:g}; it must be above 0 and below 1")
        if self.share != SHARE and self.objective not in ("auto", *_MASKED):
            raise ConfigError(f"--share is {self.share:g}, but --objective {self.objective} hides no tokens; leave it out")
        if self.objective in ("auto", *_PAIRED) and self.batch_size < 2:
            raise ConfigError(f"--batch-size is {self.batch_size}, but pairs need at least 2 texts in a batch")

    def for_encoder(self, encoder: str) -> Adaptation:
        """The settings with the objective that suits an encoder, unless one was named."""
        if self.objective != "auto":
            return self
        return replace(self, objective="masked" if predicts_tokens(encoder) else "parts")

    def setup(self) -> Setup:
        """The settings of the training loop."""
        training = TrainingSettings(
            epochs=self.epochs, batch_size=self.batch_size, encoder_rate=self.rate, head_rate=10 * self.rate, minutes=self.minutes
        )
        return Setup(training, ComputeSettings(device=self.device, precision=self.precision), self.seed)


class Adapted(NamedTuple):
    """The loss of texts that were held out, before and after, the number of texts and of steps, and the objective."""

    before: float
    after: float
    texts: int
    steps: int
    objective: str


def adapt(texts: Sequence[str], encoder: str, out: str | Path, settings: Adaptation, *, resume: bool = False) -> Adapted:
    """Train an encoder on texts, and write it as a folder that any neural model takes as ``encoder``."""
    if encoder in WORD_ENCODERS:
        raise ConfigError(f"encoder {encoder!r} is not pretrained, so there is nothing to adapt; name minilm, an id or a folder")
    if len(texts) < _FEWEST:
        raise DataError(f"{len(texts)} texts are too few to adapt an encoder; give at least {_FEWEST}")
    settings = settings.for_encoder(encoder)
    tokens, description = describe_encoder(encoder, (), WordSettings(), None)
    assert isinstance(tokens, SubwordTokens)
    network = build_encoder(description)
    load_pretrained(network, encoder, tokens)
    with Run(out, resume=resume) as run:
        run.fingerprint = _fingerprint(texts, tokens, settings)
        run.log("adaptation", {"encoder": encoder, "texts": len(texts), **asdict(settings)})
        work = _Work.of(network, tokens, texts, settings, run)
        found = work.train(run)
        assert isinstance(network, Transformer)
        _write_folder(network, encoder, Path(out), predicted_tokens=settings.objective in _MASKED)
        run.log("end", found._asdict())
        run.clear_stages()
    return found


class _Work(NamedTuple):
    """A network, its texts in tokens, and how tokens are hidden."""

    network: MaskedNetwork
    examples: Examples
    held: TokenArrays
    hiding: Hiding
    settings: Adaptation
    texts: int

    @classmethod
    def of(cls, encoder: Encoder, tokens: SubwordTokens, texts: Sequence[str], settings: Adaptation, run: Run) -> _Work:
        length = min(settings.max_length, encoder.positions or settings.max_length)
        layout = Layout(length, prefix=tokens.prefix, suffix=tokens.suffix, pad=tokens.pad)
        order = np.random.default_rng(settings.seed).permutation(len(texts))
        count = min(_HELD_MOST, max(1, len(texts) // _HELD))
        held, learned = ([texts[int(at)] for at in np.sort(part)] for part in (order[:count], order[count:]))
        parts = [in_pieces(tokenise(tokens, part, run), layout.room) for part in (learned, held)]
        counts = np.bincount(parts[0].ids, minlength=tokens.size)
        with seeded(settings.seed):
            network = MaskedNetwork(encoder, counts)
        mask = _mask_token(tokens) if settings.objective in _MASKED else -1
        special = (*tokens.prefix, *tokens.suffix, tokens.pad)
        hiding = Hiding(mask, special, tokens.size, settings.share)
        nothing = csr_array(np.zeros((len(parts[0].offsets) - 1, 0), dtype=np.float32))
        return cls(network, Examples(parts[0], nothing, layout), parts[1], hiding, settings, len(texts))

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        """The objective of a batch."""
        assert isinstance(network, MaskedNetwork)
        kind, whole = self.settings.objective, (batch.ids, batch.mask)
        if kind == "words":
            return words_loss(network, *whole)
        masked = masked_loss(network, *whole, self.hiding) if kind in _MASKED else 0.0
        views = (random_part(*whole), random_part(*whole)) if kind == "parts" else (whole, whole)
        paired = pair_loss(network, views) if kind in _PAIRED else 0.0
        total: Tensor = torch.as_tensor(masked + paired)
        return total

    def train(self, run: Run) -> Adapted:
        """Train, keep the weights with the lowest loss of held-out texts, and return that loss before and after."""
        setup = self.settings.setup()
        self.network.to(pick_device(self.settings.device))
        before = run.stage("before", lambda: {"loss": self.held_loss()})["loss"]
        goal = Goal("negative_loss", lambda: -self.held_loss(), len(self.held.offsets) - 1)
        pieces = len(self.examples.tokens.offsets) - 1
        steps = train(self.network, self.examples, self.loss, setup, run, goal, name="adaptation")
        done = 0
        for step in run.track(steps, "adapting", steps_in(setup.training, pieces), lambda step: step.number):
            done = step.number
        return Adapted(float(before), self.held_loss(), self.texts, done, self.settings.objective)

    def held_loss(self) -> float:
        """The mean loss of held-out texts, with the same hidden tokens each time; dropout is on only for pairs."""
        self.network.train(self.settings.objective == "pairs")
        device = next(self.network.parameters()).device
        dtype = pick_precision(self.settings.precision, device, self.network)
        with seeded(self.settings.seed), torch.no_grad(), autocast(device, dtype):
            each = [(float(self.loss(self.network, batch)), len(batch.rows)) for batch in self._held_batches(device)]
        self.network.train()
        return sum(loss * count for loss, count in each) / max(1, sum(count for _, count in each))

    def _held_batches(self, device: torch.device) -> Iterator[Batch]:
        data = Documents(self.held, self.examples.layout, device)
        for _, batch in encoding_batches(data, self.settings.batch_size):
            yield batch


def _mask_token(tokens: SubwordTokens) -> int:
    """The token that stands for hidden ones."""
    for name in ("[MASK]", "<mask>"):
        if (found := tokens.tokeniser.token_to_id(name)) is not None:
            return int(found)
    raise ConfigError("the encoder's tokeniser has no mask token; adapt it with --objective words")


def _fingerprint(texts: Sequence[str], tokens: SubwordTokens, settings: Adaptation) -> str:
    """A checksum of what affects the result; checkpoints of other texts or settings are not used."""
    digest = hashlib.sha256(json.dumps(asdict(settings), sort_keys=True).encode() + tokens.text.encode("utf-8"))
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()


def _write_folder(encoder: Transformer, name: str, out: Path, *, predicted_tokens: bool) -> None:
    """Write configuration, tokeniser and weights; each file replaces an earlier one when it is complete."""
    place = Path(tempfile.mkdtemp(prefix=".encoder-", dir=out))
    try:
        write_pretrained(encoder, name, place, predicted_tokens=predicted_tokens)
        for file in sorted(place.iterdir()):
            os.replace(file, out / file.name)
    finally:
        shutil.rmtree(place, ignore_errors=True)
