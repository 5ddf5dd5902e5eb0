"""Beam search over label sequences: all documents and hypotheses of a batch at once, one pass over the decoder per step."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from polytag.nn.decoders import Decoder, State

_ASK_EVERY = {"cpu": 1, "cuda": 2}  # steps after which the device is asked whether all is decided; it must wait for that


class Found(NamedTuple):
    """The sequences that were found for every document, best first, n of them (at most the beam).

    ``labels`` (batch, n, longest) in the order in which they were generated, -1 to fill; ``log_probability`` (batch, n), minus
    infinity where there are fewer candidates; ``pooled`` (batch, labels) is the element-wise maximum over the distributions of
    the best sequence's steps; ``marginal`` (batch, labels) the sequences' probabilities, scaled to sum to one, added up label by
    label.
    """

    labels: Tensor
    log_probability: Tensor
    pooled: Tensor
    marginal: Tensor


class _Beam(NamedTuple):
    """All hypotheses (batch, beam, ...): the decoder's state, the last label, and what has been found on the way.

    ``length`` counts the steps up to <eos>. One that has ended (``done``) stays as it is.
    """

    state: State
    previous: Tensor
    total: Tensor
    length: Tensor
    done: Tensor
    labels: Tensor
    pooled: Tensor


@torch.no_grad()
def beam_search(
    decoder: Decoder,
    states: Tensor,
    mask: Tensor,
    last: Tensor | None = None,
    *,
    beam: int,
    longest: int,
    length_penalty: float = 0.0,
    only_best: bool = False,
) -> Found:
    """The best label sequences of at most ``longest`` labels; greedy where the beam is 1.

    Sequences are compared by ``log p / length ** length_penalty``, <eos> being part of both. With ``only_best`` the search ends
    as soon as no other sequence can become the best one; those behind it are then not all there.
    """
    memory, state = decoder.start(states, mask, last)
    now = _begin(decoder, state, longest)
    for step in range(longest + 1):
        logits, state = decoder.step(now.previous, now.state, memory)
        now = _extend(now._replace(state=state), logits, beam, step, longest, length_penalty)
        if step % _ASK_EVERY.get(states.device.type, 1) == 0 and _decided(now, longest, length_penalty, only_best):
            break
    return _result(now, length_penalty)


def _begin(decoder: Decoder, state: State, longest: int) -> _Beam:
    """One hypothesis per document, of which nothing is known yet."""
    seen = state[0]
    batch = len(seen)
    zero = torch.zeros(batch, 1, device=seen.device)
    previous = torch.full((batch, 1), decoder.bos, device=seen.device)
    labels = torch.full((batch, 1, longest), -1, device=seen.device)
    return _Beam(state, previous, zero, zero, zero.bool(), labels, torch.zeros(batch, 1, decoder.n_labels, device=seen.device))


def _extend(now: _Beam, logits: Tensor, beam: int, step: int, longest: int, length_penalty: float) -> _Beam:
    """Let every hypothesis go on with every label or end, and keep the best ones."""
    log_p = torch.log_softmax(logits.float(), dim=2)  # (batch, k, labels + 1)
    batch, k, width = log_p.shape
    eos = width - 1
    ended = now.done[..., None]
    pooled = torch.where(ended, now.pooled, torch.maximum(now.pooled, log_p[..., :eos].exp()))
    only_eos = torch.full((width,), float("-inf"), device=log_p.device)
    only_eos[eos] = 0.0
    if step == longest:
        log_p = log_p + only_eos  # now every sequence ends
    total = now.total[..., None] + torch.where(ended, only_eos, log_p)
    length = now.length + ~now.done  # (batch, k)
    worth = total / length[..., None] ** length_penalty if length_penalty else total
    at = worth.flatten(1).topk(min(beam, k * width), dim=1).indices  # (batch, new k)
    parent, label = at // width, at % width
    rows = torch.arange(batch, device=at.device)[:, None]
    labels = now.labels[rows, parent]
    if step < longest:
        labels[:, :, step] = torch.where(label < eos, label, -1)
    return _Beam(
        tuple(part[rows, parent] for part in now.state),
        label,
        total.flatten(1).gather(1, at),
        length.gather(1, parent),
        label == eos,
        labels,
        pooled[rows, parent],
    )


def _decided(now: _Beam, longest: int, length_penalty: float, only_best: bool) -> bool:
    """Whether further steps can change nothing; log-probabilities only fall, and no sequence is longer than the longest."""
    ended = now.done | now.total.isneginf()
    if not only_best:
        return bool(ended.all())
    possible = torch.where(ended, float("-inf"), now.total / (longest + 1) ** length_penalty)
    return bool((possible.amax(dim=1) <= _worth(now, length_penalty).amax(dim=1)).all())


def _worth(now: _Beam, length_penalty: float) -> Tensor:
    """What sequences that have ended are compared by (batch, k); minus infinity for others."""
    worth = now.total / now.length**length_penalty if length_penalty else now.total
    return torch.where(now.done, worth, float("-inf"))


def _result(now: _Beam, length_penalty: float) -> Found:
    order = _worth(now, length_penalty).argsort(dim=1, descending=True, stable=True)
    rows = torch.arange(len(order), device=order.device)[:, None]
    labels = now.labels[rows, order]
    log_probability = torch.where(now.done, now.total, float("-inf"))[rows, order]
    pooled = now.pooled[rows[:, 0], order[:, 0]]
    n_labels = pooled.shape[1]
    member = pooled.new_zeros(*order.shape, n_labels + 1)  # the last column takes what fills the sequences
    member.scatter_(2, torch.where(labels < 0, n_labels, labels), 1.0)
    share = torch.softmax(log_probability, dim=1)  # (batch, n)
    marginal = (share[:, None] @ member).squeeze(1)[:, :n_labels]
    return Found(labels, log_probability, pooled, marginal.clamp(max=1))
