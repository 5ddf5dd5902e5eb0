"""The matcher: a network whose labels are the clusters of an index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn

from polytag.config.groups.encoder_settings import LONG, EncoderSettings
from polytag.config.groups.loss_settings import SQUARED_HINGE, LossSettings
from polytag.decision.candidate_curve import curved, curved_rows
from polytag.labels import LabelSet
from polytag.models.base.match_quality import match_quality
from polytag.models.base.neural_model import NeuralModel, Output
from polytag.models.model import Encoded, HeldOut, Model, group
from polytag.nn.encoding.document_vectors import encoding_batches
from polytag.nn.encoding.encoders import Encoder
from polytag.nn.encoding.frozen_encoder import FrozenEncoder
from polytag.nn.training.batch import Batch, Documents, TokenArrays, tokenise
from polytag.nn.training.devices import autocast, pick_device, pick_precision
from polytag.scores import Scores
from polytag.xmc.match import MatchNetwork, WithVector, best_clusters, log_probabilities, squared_hinge
from polytag.xmc.rank import TreeRanker

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run


def match_encoding(also: tuple[str, ...] = (), **defaults: Any) -> Any:
    """The encoder settings of match models: a document is one input, without windows."""
    without = ("overlap", "max_windows", "window_pooling", *also)
    return group(EncoderSettings, without=without, choices={"long": LONG[:2]}, **defaults)


@dataclass
class ClusterMatcher(NeuralModel):
    """A network that predicts the clusters of a document; ``make`` builds it on an encoder, ``beam`` clusters are evaluated."""

    encoding: EncoderSettings = match_encoding()
    objective: LossSettings = group(LossSettings)
    make: Callable[[Encoder, int], MatchNetwork] | None = field(init=False, repr=False, default=None)
    beam: int = field(init=False, repr=False, default=1)
    with_vector: bool = field(init=False, repr=False, default=False)

    def _network(self, n_labels: int) -> nn.Module:
        assert self.make is not None
        return self.make(self._encoder(), n_labels)

    def _held_out(self, arrays: TokenArrays, valid: Corpus) -> HeldOut:
        """Score the best clusters only, selected on the device: the transfer of all scores would take long after every epoch."""
        return HeldOut(valid.truth, self._score(arrays, self.beam))

    def _watched(self) -> str:
        return "cluster_recall"

    def _value(self, held: HeldOut, least: int) -> float:
        return match_quality(held.scores, held.truth, self.beam)

    def _start_bias(self, network: nn.Module, counts: NDArray[Any], documents: int) -> None:
        """Start at the constant that minimises the loss: log-odds, or ``2 p - 1`` for the squared hinge.

        At log-odds of -8, ``-max(0, 1 - s)^3`` would be -729, and a rare cluster would never leave the end of the ranking.
        """
        super()._start_bias(network, counts, documents)
        if self.objective.loss == SQUARED_HINGE:
            assert isinstance(network, MatchNetwork)
            with torch.no_grad():
                network.output.bias.copy_(torch.tanh(network.output.bias / 2))

    def _label_loss(self, logits: Tensor, targets: Tensor, judged: Tensor | None = None) -> Tensor:
        if self.objective.loss == SQUARED_HINGE:
            return squared_hinge(logits.float(), targets, self.weights, judged)
        return super()._label_loss(logits, targets, judged)

    def _infer(self, network: nn.Module, batch: Batch) -> Output:
        return Output(torch.exp(log_probabilities(self._logits(network, batch), self.objective.loss)))

    def _to_export(self) -> nn.Module:
        """The network, with its document vectors if they are joined."""
        network = super()._to_export()
        assert isinstance(network, MatchNetwork)
        return WithVector(network) if self.with_vector else network

    def _outputs(self) -> int:
        return super()._outputs() + (self.vector_size if self.with_vector else 0)

    @property
    def vector_size(self) -> int:
        """The size of the network's document vector."""
        assert isinstance(self.network, MatchNetwork)
        return self.network.size

    def match(
        self, prepared: Sequence[str], frozen: FrozenEncoder | None, run: Run | None = None
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32] | None]]:
        """Per batch: document indices, log P(cluster | x) (documents, clusters), and the unit vectors to join, if any.

        The vectors are those of the ``frozen`` encoder if given, else the network's own if ``with_vector``.
        """
        assert self.tokens is not None and self.network is not None
        device = pick_device(self.compute.device)
        self.network.to(device)
        data = Documents(tokenise(self.tokens, prepared, run), self._layout(), device, multiple=self.compute.pad_multiple)
        frozen = None if frozen is None else frozen.to(device)
        network: Any = self._inference_module(device)
        if self.with_vector and isinstance(network, MatchNetwork):  # an export already returns vectors
            network = WithVector(network)
        n_clusters = len(self.labels)
        with torch.inference_mode(), autocast(device, pick_precision(self.compute.precision, device, self.network)):
            for rows, batch in encoding_batches(data, self._rows_at_once()):
                outputs = network(batch.ids, batch.mask)
                found = log_probabilities(outputs[:, :n_clusters], self.objective.loss).cpu().numpy()
                vectors = outputs[:, n_clusters:] if self.with_vector else None
                vectors = vectors if frozen is None else frozen.vectors(batch.ids, batch.mask)
                yield rows, found, None if vectors is None else _unit(vectors)


def _unit(vectors: Tensor) -> NDArray[np.float32]:
    """Vectors of unit length, like tf-idf rows."""
    found: NDArray[np.float32] = torch.nn.functional.normalize(vectors.float(), dim=1).cpu().numpy()
    return found


def cluster_set(count: int) -> LabelSet:
    """The clusters as a label set, named by number."""
    return LabelSet(str(number) for number in range(count))


class Ranked(NamedTuple):
    """How labels are ranked in the clusters of a text: their separators, the calibration curve, a margin's worth, limits."""

    ranker: TreeRanker
    curve: list[float]
    worth: str
    searched: int
    candidates: int


class EncodedMatch(Encoded):
    """Encoded texts: log P(cluster | x)^power of all clusters, and the features for ranking."""

    def __init__(self, model: Model, texts: Sequence[str], logs: NDArray[np.float32], rows: csr_array, ranked: Ranked) -> None:
        """Store the outputs of the network and the features for ranking."""
        super().__init__(model, texts)
        self.logs, self.rows, self.ranked, self.names = logs, rows, ranked, model.labels.names

    def best(self, k: int | None = None) -> Scores:
        """Probabilities of the best labels in the matched clusters (equation 1), at most ``candidates``."""
        how = self.ranked
        clusters, logs = best_clusters(self.logs, how.searched)
        most = how.candidates if k is None else min(k, how.candidates)
        return curved(*how.ranker.best_below(self.rows, clusters, logs, most, how.worth), how.curve, self.names)

    def given(self, labels: csr_array) -> Scores:
        """Probabilities of exactly these labels, in the matched clusters or not."""
        how = self.ranked
        return curved_rows(how.ranker.given(self.rows, labels, how.worth, self.logs), how.curve, self.names)
