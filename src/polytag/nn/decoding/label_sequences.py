"""Label sets as sequences: label order, target sequences, the loss of a decoder, and conversion back to sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from polytag.labels import LabelSet

IGNORE = -1  # padding of a sequence after its end


def label_ranks(order: str, labels: LabelSet, truth: csr_array) -> NDArray[np.float32] | None:
    """The rank of every label in the label order; None for a random order, which is drawn for every document of every batch.

    ``frequency``: most frequent labels first. ``topological``: depth-first traversal of the label tree, ancestors before
    descendants. ``given``: as in the label set.
    """
    if order == "random":
        return None
    ordered = np.arange(len(labels))
    if order == "frequency":
        ordered = labels.frequency_order(truth)
    elif order == "topological":
        ordered = labels.topological_order()
    ranks = np.empty(len(labels), dtype=np.float32)  # exact up to 16 million labels
    ranks[ordered] = np.arange(len(labels))
    return ranks


def grown_ranks(known: NDArray[np.float32], ranks: NDArray[np.float32]) -> NDArray[np.float32]:
    """The ranks when training continues with new labels: the known labels keep theirs, new ones follow by ``ranks``."""
    new = ranks[len(known) :].argsort().argsort()
    return np.concatenate([known, len(known) + new]).astype(np.float32)


def target_sequences(targets: Tensor, ranks: Tensor | None, steps: int) -> Tensor:
    """The labels of every document in label order, then <eos>, then IGNORE: (batch, steps) from targets (batch, labels).

    A document with ``steps`` labels or more has the first of them, without <eos>. Nothing here waits for the device.
    """
    n_labels = targets.shape[1]
    if ranks is None:
        ranks = torch.rand_like(targets)
    keys = torch.where(targets > 0, ranks, float("inf"))  # (batch, labels)
    labels = keys.topk(min(steps, n_labels), dim=1, largest=False).indices  # (batch, at most steps)
    sequence = targets.new_full((len(targets), steps), IGNORE, dtype=torch.long)
    sequence[:, : labels.shape[1]] = labels
    place = torch.arange(steps, device=targets.device)
    count = (targets > 0).sum(dim=1, keepdim=True)  # (batch, 1)
    sequence = torch.where(place < count, sequence, IGNORE)
    return torch.where(place == count, n_labels, sequence)


def inputs_for(sequence: Tensor, n_labels: int) -> Tensor:
    """The decoder inputs for target sequences (batch, steps): <bos>, then the label before each step.

    After the end the input is <eos>; these steps are not part of the loss.
    """
    before = torch.where(sequence == IGNORE, n_labels, sequence)[:, :-1]
    return torch.cat([before.new_full((len(before), 1), n_labels + 1), before], dim=1)


def sequence_loss(logits: Tensor, sequence: Tensor, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy of logits (batch, steps, labels + 1), summed over the steps up to <eos>, mean over the documents.

    The sum is the negative log-likelihood of a document's sequence (SGM, eq. 1; BERT paper, eq. 3). A mean over steps would give
    less weight to labels of documents with many labels. It would not be additive over parts of a batch either.
    Label smoothing (``smoothing``) distributes that share of the target over all labels that are not masked.
    """
    spoken = sequence != IGNORE
    log_p = torch.log_softmax(logits.float(), dim=2)
    safe = torch.where(spoken, sequence, logits.shape[2] - 1)  # <eos>, which is never masked
    each = -log_p.gather(2, safe[..., None]).squeeze(2)  # (batch, steps)
    if smoothing:
        allowed = logits > float("-inf")
        spread = -torch.where(allowed, log_p, 0).sum(dim=2) / allowed.sum(dim=2)
        each = (1 - smoothing) * each + smoothing * spread
    return torch.where(spoken, each, 0).sum() / len(sequence)


def log_shares(counts: NDArray[Any], documents: int) -> NDArray[np.float32]:
    """Log relative frequencies of the labels and, last, of <eos> in all sequences, to initialise the output bias."""
    each = np.append(np.asarray(counts, dtype=np.float64), documents) + 0.5
    return np.asarray(np.log(each / each.sum()), dtype=np.float32)


def as_sets(sequences: NDArray[Any], n_labels: int) -> csr_array:
    """Label indices (documents, steps), padded with negative numbers, as a sparse matrix of ones; repeated labels count once."""
    ordered = np.sort(np.where(sequences < 0, n_labels, sequences), axis=1)
    keep = ordered < n_labels
    keep[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    indptr = np.zeros(len(ordered) + 1, dtype=np.int64)
    np.cumsum(keep.sum(axis=1), out=indptr[1:])
    indices = ordered[keep].astype(np.int32)
    return csr_array((np.ones(len(indices), dtype=np.float32), indices, indptr), shape=(len(ordered), n_labels))
