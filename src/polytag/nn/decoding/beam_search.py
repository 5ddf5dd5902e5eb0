"""Beam search over label sequences: all documents and hypotheses of a batch at once, one decoder pass per step."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from polytag.nn.decoding.lstm_decoder import Decoder, State

_ASK_EVERY = {"cpu": 1, "cuda": 2}  # steps between checks whether the search has ended, each of which waits for the device


class Found(NamedTuple):
    """The n best sequences of every document, best first; n is at most the beam width.

    ``labels`` (batch, n, longest) are in the order of generation, padded with -1. ``log_probability`` (batch, n) is minus
    infinity where there are fewer hypotheses. ``pooled`` (batch, labels) is the element-wise maximum over the distributions at
    the steps of the best sequence. ``marginal`` (batch, labels) is the sum of the probabilities of the sequences that contain a
    label. These probabilities are normalised to sum to one.
    """

    labels: Tensor
    log_probability: Tensor
    pooled: Tensor
    marginal: Tensor


class _Beam(NamedTuple):
    """All hypotheses (batch, beam, ...): the decoder's state, the last label, total log-probability, labels and maxima.

    ``length`` is the number of steps up to <eos>. A hypothesis that has ended (``done``) does not change.
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
    """The best label sequences of at most ``longest`` labels; a beam of 1 is greedy decoding.

    Sequences compare by ``log p / length ** length_penalty``, both with <eos>. With ``only_best`` the search ends as soon as no
    other sequence can become the best one; the remaining sequences may then be incomplete.
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
    """One empty hypothesis per document."""
    seen = state[0]
    batch = len(seen)
    zero = torch.zeros(batch, 1, device=seen.device)
    previous = torch.full((batch, 1), decoder.bos, device=seen.device)
    labels = torch.full((batch, 1, longest), -1, device=seen.device)
    return _Beam(state, previous, zero, zero, zero.bool(), labels, torch.zeros(batch, 1, decoder.n_labels, device=seen.device))


def _extend(now: _Beam, logits: Tensor, beam: int, step: int, longest: int, length_penalty: float) -> _Beam:
    """Extend every hypothesis with every label and with <eos>, and keep the best ones."""
    log_p = torch.log_softmax(logits.float(), dim=2)  # (batch, k, labels + 1)
    batch, k, width = log_p.shape
    eos = width - 1
    ended = now.done[..., None]
    pooled = torch.where(ended, now.pooled, torch.maximum(now.pooled, log_p[..., :eos].exp()))
    only_eos = torch.full((width,), float("-inf"), device=log_p.device)
    only_eos[eos] = 0.0
    if step == longest:
        log_p = log_p + only_eos  # every sequence ends here
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
    """Whether further steps cannot change the result: log-probabilities only fall, and the length is limited."""
    ended = now.done | now.total.isneginf()
    if not only_best:
        return bool(ended.all())
    possible = torch.where(ended, float("-inf"), now.total / (longest + 1) ** length_penalty)
    return bool((possible.amax(dim=1) <= _worth(now, length_penalty).amax(dim=1)).all())


def _worth(now: _Beam, length_penalty: float) -> Tensor:
    """The value (batch, k) by which ended sequences compare; minus infinity for others."""
    worth = now.total / now.length**length_penalty if length_penalty else now.total
    return torch.where(now.done, worth, float("-inf"))


def _result(now: _Beam, length_penalty: float) -> Found:
    order = _worth(now, length_penalty).argsort(dim=1, descending=True, stable=True)
    rows = torch.arange(len(order), device=order.device)[:, None]
    labels = now.labels[rows, order]
    log_probability = torch.where(now.done, now.total, float("-inf"))[rows, order]
    pooled = now.pooled[rows[:, 0], order[:, 0]]
    n_labels = pooled.shape[1]
    member = pooled.new_zeros(*order.shape, n_labels + 1)  # the last column is for padding
    member.scatter_(2, torch.where(labels < 0, n_labels, labels), 1.0)
    share = torch.softmax(log_probability, dim=1)  # (batch, n)
    marginal = (share[:, None] @ member).squeeze(1)[:, :n_labels]
    return Found(labels, log_probability, pooled, marginal.clamp(max=1))
