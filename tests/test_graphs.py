"""Steps as CUDA graphs, with a stand-in for the GPU: every step is made once, with its own rows, whatever is captured.

The stand-in keeps to the rules of the real thing: while a graph is captured nothing is computed, a replay computes with what
stands in the captured tensors at that moment, and its result overwrites the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from polytag.nn.training import cuda_graphs as graphs
from polytag.nn.training.cuda_graphs import GraphStep
from polytag.nn.training.step import EagerStep, Rows


class StandInGraph:
    """A recording of calls."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []

    def replay(self) -> None:
        for call in self.calls:
            call()


class Recorder:
    """A step that writes down which rows it was made with, now or when its recording is replayed."""

    parameters: Sequence[Tensor] = ()
    scaler = None

    def __init__(self) -> None:
        self.made: list[list[list[int]]] = []
        self.eager = self.replayed = 0
        self.recording: StandInGraph | None = None

    def __call__(self, parts: Sequence[Rows]) -> Tensor:
        loss = torch.zeros(())

        def compute() -> None:
            self.made.append([part.rows.tolist() for part in parts])
            loss.fill_(sum(float(part.rows.sum()) * part.weight for part in parts))

        if self.recording is None:
            self.eager += 1
            compute()
        else:
            self.recording.calls += [self._count, compute]
        return loss

    def _count(self) -> None:
        self.replayed += 1

    @contextmanager
    def capture(self, graph: StandInGraph, pool: object = None) -> Iterator[None]:
        self.recording = graph
        yield
        self.recording = None


@contextmanager
def stand_in() -> Iterator[tuple[Recorder, GraphStep]]:
    recorder = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
        patch.setattr(torch.cuda, "synchronize", lambda: None)
        patch.setattr(torch.cuda, "CUDAGraph", StandInGraph)
        patch.setattr(torch.cuda, "graph", recorder.capture)
        yield recorder, GraphStep(cast(EagerStep, cast(Any, recorder)))


def rows_of(shape: Sequence[tuple[int, int]], first: int) -> list[Rows]:
    """Parts with so many documents and such a length each; no two steps have the same documents."""
    return [Rows(torch.arange(first + 100 * at, first + 100 * at + n), length, 1, 0.5) for at, (n, length) in enumerate(shape)]


Shapes = st.lists(st.lists(st.tuples(st.integers(1, 3), st.sampled_from([32, 64])), min_size=1, max_size=2), max_size=40)


@given(Shapes)
def test_every_step_is_made_once_with_its_own_rows_and_its_own_loss(shapes: list[list[tuple[int, int]]]) -> None:
    with stand_in() as (recorder, step):
        asked = [rows_of(shape, 1000 * number) for number, shape in enumerate(shapes)]
        losses = [step(parts) for parts in asked]
        assert recorder.made == [[part.rows.tolist() for part in parts] for parts in asked]
        assert recorder.eager + recorder.replayed == len(asked)
    expected = [sum(float(part.rows.sum()) * part.weight for part in parts) for parts in asked]
    assert [float(loss) for loss in losses] == expected, "a loss is not overwritten by later steps"


def test_rows_that_were_given_are_not_written_to() -> None:
    with stand_in() as (_, step):
        asked = [rows_of([(2, 32)], 10 * number) for number in range(12)]
        for parts in asked:
            step(parts)
        assert [parts[0].rows.tolist() for parts in asked] == [[10 * n, 10 * n + 1] for n in range(12)]


def test_a_shape_that_comes_again_is_captured_once_and_replayed_from_then_on() -> None:
    with stand_in() as (recorder, step):
        for number in range(20):
            step(rows_of([(2, 32)], number))
        assert recorder.eager == max(graphs._WARM, graphs._AGAIN - 1) and recorder.replayed == 20 - recorder.eager
        assert len(step.captured) == 1


def test_documents_length_windows_weight_and_labels_all_make_a_shape() -> None:
    base = Rows(torch.arange(2), 32, 1, 0.5)
    others = [base._replace(rows=torch.arange(3)), base._replace(length=64), base._replace(windows=2), base._replace(weight=1.0)]
    others.append(base._replace(most_labels=4))
    with stand_in() as (_, step):
        for _ in range(10):
            for part in (base, *others):
                step([part])
        step([base, base])
        assert len(step.captured) == 6, "two batches of one step are yet another shape, but it was seen once"


def test_the_first_steps_and_shapes_that_come_once_stay_eager() -> None:
    with stand_in() as (recorder, step):
        for number in range(50):
            step(rows_of([(number + 1, 32)], 0))
        assert recorder.eager == 50 and not step.captured


def test_only_so_many_shapes_are_captured_and_the_others_stay_eager() -> None:
    with stand_in() as (recorder, step):
        for _ in range(3):
            for number in range(graphs._MOST + 10):
                step(rows_of([(number + 1, 32)], 0))
        assert len(step.captured) == graphs._MOST
        assert len(recorder.made) == 3 * (graphs._MOST + 10)
