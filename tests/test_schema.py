"""Schemas: every way in which a state can differ from what is declared is refused, and names its place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from polytag.config.registry import MODELS
from polytag.models.model import model_class
from polytag.nn.encoding.restored_network import ENCODER
from polytag.storage.schema import (
    Anything,
    Array,
    Count,
    Items,
    Named,
    Number,
    Optional,
    Schema,
    Sparse,
    Switch,
    Table,
    Text,
    Variant,
    check,
    parts,
)  # fmt: skip


def refused(schema: Schema, value: Any, sizes: dict[str, int] | None = None) -> str:
    with pytest.raises(ValueError, match=r"is not|does not") as error:
        check(schema, value, sizes or {})
    return str(error.value)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (
            Array(("int32",), (3,)),
            np.zeros(3, np.int32),
            [np.zeros(3, np.int64), np.zeros(2, np.int32), np.zeros((3, 1), np.int32), [0] * 3],
        ),
        (
            Array(("int32",), ("n",), low=0, below="n"),
            np.arange(3, dtype=np.int32),
            [np.array([0, 3], np.int32), np.array([-1], np.int32)],
        ),
        (Array(("int64",), ("n",), order="strict"), np.array([1, 5]), [np.array([1, 1]), np.array([2, 1])]),
        (
            Array(("uint64",), ("n",), order="rising"),
            np.array([1, 1, 2**64 - 1], np.uint64),
            [np.array([2**64 - 1, 0], np.uint64)],
        ),
        (
            Array(("int64",), ("n",), order="offsets", total="t"),
            np.array([0, 2, 2]),
            [np.array([1, 2]), np.array([0, 5, 2]), np.empty(0, np.int64)],
        ),
        (Array(("uint8",), ("n",), order="distinct"), np.array([3, 1], np.uint8), [np.array([3, 3], np.uint8)]),
        (Number(0, 3), 3, [4, -1, 1.0, True, "1", None, 10**400]),
        (Number(0, 1, whole=False), 0.5, [1.5, float("nan"), float("inf"), "0"]),
        (Count("n"), 0, [-1, 1.0, True, None]),
        (Text(("a", "b")), "a", ["c", 1, None, ["a"]]),
        (Switch(), True, [1, 0, "true", None]),
        (Optional(Switch()), None, [1]),
        (Items(Number(0, 1), 2), [0, 1], [[0], [0, 2], (0, 1), {}]),
        (Named(Switch()), {"a": True}, [{"a": 1}, []]),
        (Anything(), {}, [[], 1, None]),
        (
            Table({"a": Switch(), "b": Switch()}, optional=frozenset({"b"})),
            {"a": True},
            [{}, {"a": True, "c": 1}, [], {"b": True}],
        ),
        (Variant("kind", {"x": Table({"kind": Text(("x",))})}), {"kind": "x"}, [{"kind": "y"}, {}, {"kind": []}, "x"]),
        (
            Sparse((2, "n")),
            csr_array(np.eye(2, 3, dtype=np.float32)),
            [np.eye(2), csr_array(np.eye(2)), csr_array((3, 3), dtype=np.float32)],
        ),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, list) else "",
)
def test_what_fits_passes_and_what_does_not_is_refused(schema: Schema, good: Any, bad: list[Any]) -> None:
    check(schema, good, {})
    for value in bad:
        assert refused(schema, value).startswith("state")


def test_a_size_means_the_same_everywhere_but_in_a_scope_of_its_own() -> None:
    pair = Table({"a": Array(("int8",), ("n",)), "b": Array(("int8",), ("n+1",))})
    assert check(pair, {"a": np.zeros(2, np.int8), "b": np.zeros(3, np.int8)}, {}) == {"n": 2}
    assert "state/b" in refused(pair, {"a": np.zeros(2, np.int8), "b": np.zeros(2, np.int8)})
    assert "state/a" in refused(pair, {"a": np.zeros(2, np.int8), "b": np.zeros(3, np.int8)}, {"n": 5})
    several = Items(Table(pair.fields, own=frozenset({"n"})))
    check(several, [{"a": np.zeros(n, np.int8), "b": np.zeros(n + 1, np.int8)} for n in (1, 4)], {})


@given(st.lists(st.integers(0, 2**64 - 1), max_size=6))
def test_order_is_that_of_whole_numbers_without_overflow(values: list[int]) -> None:
    array = np.array(values, dtype=np.uint64)
    schema = Array(("uint64",), ("n",), order="rising")
    if values == sorted(values):
        check(schema, array, {})
    else:
        refused(schema, array)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_declares_the_schema_of_its_state(name: str) -> None:
    if name not in ("br", "cc", "lp", "xlinear"):
        pytest.importorskip("torch")
    schema = model_class(name)().schema()
    assert isinstance(schema, Table) and len(list(parts(schema))) >= 5


@pytest.mark.parametrize("name", ["vocabulary", "embedding", "hidden"])
def test_sizes_of_an_encoder_fit_into_31_bits(name: str) -> None:
    sizes: dict[str, Any] = {"kind": "bilstm", "vocabulary": 9, "embedding": 9, "hidden": 9, "layers": 1, "dropout": 0.0}
    check(ENCODER, {**sizes, name: 2**31 - 1}, {})
    for wrong in (2**31, 0, -1, 9.0, True):
        with pytest.raises(ValueError, match=f"{name} is not a whole number"):
            check(ENCODER, {**sizes, name: wrong}, {})
