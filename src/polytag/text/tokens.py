"""Texts to token ids: words of a vocabulary, or the subwords of a pretrained tokeniser, as flat arrays with offsets."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from polytag.errors import ArtefactError
from polytag.storage.schema import Array, Number, Sizes, Switch, Table, Text, Variant
from polytag.storage.state_json import State
from polytag.text.words import word_hashes

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_CHUNK = 5_000  # texts tokenised at once, which bounds the memory
PAD, UNKNOWN = 0, 1  # of a word vocabulary
SPECIAL = ("<pad>", "<unk>")


def _one_word_per_key(state: State, sizes: Sizes) -> None:
    words = int((np.asarray(state["words"]) == ord("\n")).sum()) + (1 if len(state["words"]) else 0)
    if words != len(state["keys"]):
        raise ValueError("its tokeniser has another number of words than of keys")


TOKENS = Variant(
    "kind",
    {
        "words": Table(
            {
                "kind": Text(("words",)),
                "words": Array(("uint8",), ("word_bytes",)),
                "keys": Array(("uint64",), ("words_kept",), order="distinct"),
                "lowercase": Switch(),
            },
            own=frozenset({"word_bytes", "words_kept"}),
            rules=(_one_word_per_key,),
        ),
        "subwords": Table(
            {
                "kind": Text(("subwords",)),
                "tokeniser": Array(("uint8",), ("tokeniser_bytes",)),
                "pad": Number(0, 2**31 - 1),
            },
            own=frozenset({"tokeniser_bytes"}),
        ),
    },
)
"""What a tokeniser looks like when it is saved."""
Encoded = tuple[NDArray[np.int32], NDArray[np.int64]]


class Tokens(Protocol):
    """A tokeniser; every encoder input starts with ``prefix`` and ends with ``suffix``."""

    size: int
    pad: int
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]

    def encode(self, texts: Sequence[str]) -> Encoded:
        """The concatenated ids of all texts, without prefix and suffix, and the offsets of the texts."""

    def spans(self, text: str) -> NDArray[np.int64]:
        """Start and end (tokens, 2) of the tokens that ``encode`` makes of one text."""

    def state(self) -> dict[str, Any]:
        """Everything that ``tokens_from_state`` needs."""


class WordTokens:
    """Words of a vocabulary, most frequent first after ``<pad>`` and ``<unk>``; texts are split into words as for tf-idf."""

    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    pad = PAD

    def __init__(self, words: Sequence[str], keys: NDArray[np.uint64], lowercase: bool) -> None:
        """Store the words and their hashes in the order of their ids, the first of which is 2."""
        self.words = list(words)
        self.keys = np.asarray(keys)
        self.lowercase = lowercase
        self.size = len(self.words) + len(SPECIAL)
        self._order = np.argsort(self.keys)
        self._sorted = self.keys[self._order]

    @classmethod
    def fit(cls, texts: Sequence[str], limit: int = 0, *, lowercase: bool = True) -> WordTokens:
        """The most frequent words of the texts, at most ``limit``; 0 for all."""
        counts: dict[int, int] = {}
        spelled: dict[int, str] = {}
        for chunk in _chunks(texts):
            hashes, _, starts, stops = word_hashes(chunk, ngrams=1, lowercase=lowercase)
            joined = "".join(chunk)
            keys, first, found = np.unique(hashes, return_index=True, return_counts=True)
            for key, at, count in zip(keys.tolist(), first.tolist(), found.tolist(), strict=True):
                counts[key] = counts.get(key, 0) + count
                if key not in spelled:
                    spelled[key] = joined[starts[at] : stops[at]]
        if lowercase:
            spelled = {key: word.lower() for key, word in spelled.items()}
        best = sorted(counts, key=lambda key: (-counts[key], spelled[key]))[: limit or None]
        return cls([spelled[key] for key in best], np.array(best, dtype=np.uint64), lowercase)

    def encode(self, texts: Sequence[str]) -> Encoded:
        """The id of every word; a text without words is one unknown word."""
        return _joined([self._chunk(chunk) for chunk in _chunks(texts)], UNKNOWN)

    def spans(self, text: str) -> NDArray[np.int64]:
        """Start and end (tokens, 2) of the words of one text."""
        _, _, starts, stops = word_hashes([text], ngrams=1, lowercase=self.lowercase)
        return _at_least_one(np.stack([starts, stops], axis=1))

    def _chunk(self, texts: Sequence[str]) -> Encoded:
        hashes, offsets, _, _ = word_hashes(texts, ngrams=1, lowercase=self.lowercase)
        if not len(self.keys):
            return np.full(len(hashes), UNKNOWN, dtype=np.int32), offsets
        at = np.minimum(np.searchsorted(self._sorted, hashes), len(self._sorted) - 1)
        ids = np.where(self._sorted[at] == hashes, self._order[at] + len(SPECIAL), UNKNOWN)
        return ids.astype(np.int32), offsets

    def state(self) -> dict[str, Any]:
        """The words and their hashes."""
        blob = "\n".join(self.words).encode("utf-8", "surrogatepass")
        return {"kind": "words", "words": np.frombuffer(blob, np.uint8), "keys": self.keys, "lowercase": self.lowercase}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> WordTokens:
        """Restore what ``state`` returned."""
        blob = bytes(np.asarray(state["words"])).decode("utf-8", "surrogatepass")
        return cls(blob.split("\n") if blob else [], np.asarray(state["keys"]), bool(state["lowercase"]))


class SubwordTokens:
    """The subwords of a pretrained tokeniser, stored in the JSON format of the ``tokenizers`` library."""

    def __init__(self, text: str, pad: int = 0) -> None:
        """Parse the JSON; its padding and truncation are disabled, because batches do both."""
        from tokenizers import Tokenizer

        try:
            self.tokeniser: Tokenizer = Tokenizer.from_str(text)
        except Exception as error:  # the library raises no more specific type
            raise ArtefactError(f"the tokeniser cannot be read ({error}); take the folder from its source again") from None
        self.tokeniser.no_padding()
        self.tokeniser.no_truncation()
        self.text = text
        self.pad = pad
        self.size = int(self.tokeniser.get_vocab_size(with_added_tokens=True))
        framed = self.tokeniser.encode("a")
        inside = [place for place, special in enumerate(framed.special_tokens_mask) if not special]
        first, last = (inside[0], inside[-1]) if inside else (len(framed.ids), len(framed.ids))
        self.prefix = tuple(framed.ids[:first])
        self.suffix = tuple(framed.ids[last + 1 :])
        if not 0 <= pad < max(1, self.size):
            raise ArtefactError("the tokeniser pads with a token that it does not have; take the folder from its source again")

    def encode(self, texts: Sequence[str]) -> Encoded:
        """The ids of the subwords, computed in parallel; texts are not truncated."""
        return _joined([self._chunk(chunk) for chunk in _chunks(texts)], None if self.prefix or self.suffix else self.pad)

    def spans(self, text: str) -> NDArray[np.int64]:
        """Start and end (tokens, 2) of the subwords of one text."""
        found = self.tokeniser.encode(_valid(text), add_special_tokens=False).offsets
        spans = np.array(found, dtype=np.int64).reshape(-1, 2)
        return spans if self.prefix or self.suffix else _at_least_one(spans)

    def _chunk(self, texts: Sequence[str]) -> Encoded:
        clean = [_valid(text) for text in texts]
        found = [piece.ids for piece in self.tokeniser.encode_batch_fast(clean, add_special_tokens=False)]
        offsets = np.zeros(len(found) + 1, dtype=np.int64)
        np.cumsum([len(ids) for ids in found], out=offsets[1:])
        return np.fromiter(itertools.chain.from_iterable(found), dtype=np.int32, count=int(offsets[-1])), offsets

    def state(self) -> dict[str, Any]:
        """The JSON text."""
        return {"kind": "subwords", "tokeniser": np.frombuffer(self.text.encode("utf-8"), np.uint8), "pad": self.pad}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> SubwordTokens:
        """Restore what ``state`` returned."""
        return cls(bytes(np.asarray(state["tokeniser"])).decode("utf-8"), int(state["pad"]))


def tokens_from_state(state: dict[str, Any]) -> WordTokens | SubwordTokens:
    """The saved tokeniser, of either kind."""
    return WordTokens.from_state(state) if state["kind"] == "words" else SubwordTokens.from_state(state)


def content_key(tokens: Tokens, texts: Sequence[str]) -> str:
    """A checksum of the tokeniser and the texts: the cache key of their ids."""
    digest = hashlib.sha256()
    for name, value in sorted(tokens.state().items()):
        digest.update(name.encode() + (value.tobytes() if isinstance(value, np.ndarray) else json.dumps(value).encode()))
    for text in texts:
        piece = text.encode("utf-8", "surrogatepass")
        digest.update(len(piece).to_bytes(8, "little") + piece)
    return digest.hexdigest()


def _valid(text: str) -> str:
    """The text without lone surrogates, which are not valid UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _at_least_one(spans: NDArray[np.int64]) -> NDArray[np.int64]:
    """The spans; that of the filler, for a text without tokens."""
    return spans if len(spans) else np.zeros((1, 2), dtype=np.int64)


def _chunks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(texts), _CHUNK):
        yield texts[start : start + _CHUNK]


def _joined(parts: Sequence[Encoded], filler: int | None) -> Encoded:
    """Concatenate all parts; a text without tokens gets the filler, if there is one, because an input must not be empty."""
    if not parts:
        return np.empty(0, np.int32), np.zeros(1, np.int64)
    ids = np.concatenate([part[0] for part in parts])
    lengths = np.concatenate([np.diff(part[1]) for part in parts])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    if filler is not None and not lengths.all():
        ids = np.insert(ids, offsets[:-1][lengths == 0], filler).astype(np.int32)
        offsets = np.concatenate([[0], np.cumsum(np.maximum(lengths, 1))])
    return ids, offsets.astype(np.int64)
