"""Small things that tests share: a corpus that can be learned, a tiny encoder in a folder, a clock that stands still."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from polytag.auto.ladder import Candidate
from polytag.auto.trial import Workshop
from polytag.config.groups.training_settings import ComputeSettings, TrainingSettings
from polytag.corpus import Corpus
from polytag.linear.svm import Problem
from polytag.nn.training.optimiser import Setup
from polytag.work.workplace import Workplace
from polytag.xmc.index import LabelTree
from polytag.xmc.rank import TreeRanker
from polytag.xmc.tree_training import Ranking, TreeTraining

Network = TypeVar("Network", bound=torch.nn.Module)
torch.set_num_threads(1)  # for tensors as small as these, more threads only wait for one another

LABELS = ("animals", "boats", "cities", "drinks")
HINTS = {
    "animals": ("cat", "dog", "horse"),
    "boats": ("ferry", "canoe", "sail"),
    "cities": ("paris", "oslo", "lima"),
    "drinks": ("tea", "milk", "juice"),
}
DOCUMENTS = [[2, 3, 4, 5, 6], [7], [3, 3]]  # as numbers of tokens
FILLERS = ("the", "a", "of", "on", "and", "with", "some", "many", "new", "old", "red", "green", "blue", "big", "small")


class Stopwatch:
    """A clock that only moves when it is told to."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


class Unfinished(Workshop):
    """A place where no training of a search is finished; it remembers the time that each was given."""

    def __init__(self, place: Workplace, shared: Mapping[str, Any]) -> None:
        super().__init__(place, shared)
        self.given: list[float] = []

    def train(
        self, candidate: Candidate, train: Corpus, valid: Any, seconds: float, options: Any = None, paced: Any = None
    ) -> None:
        self.given.append(seconds)


def toy_corpus(n: int, seed: int = 0, most: int = 12) -> Corpus:
    """Documents whose labels can be read off single words, of different lengths."""
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(n):
        own = [name for name in LABELS if rng.random() < 0.4] or [LABELS[int(rng.integers(4))]]
        words = [str(rng.choice(HINTS[name])) for name in own] + rng.choice(FILLERS, int(rng.integers(1, most))).tolist()
        texts.append(" ".join(str(word) for word in rng.permutation(words)))
        labels.append(own)
    return Corpus.of(texts, labels)


def array(tensor: torch.Tensor | None) -> NDArray[Any]:
    """Its values, for equations in numpy that are more exact than what they are compared with."""
    assert tensor is not None
    return tensor.detach().double().numpy()


def padded(extra: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens of ``DOCUMENTS`` and where they are, with so many more places than are needed."""
    width = max(map(len, DOCUMENTS)) + extra
    ids = torch.tensor([d + [0] * (width - len(d)) for d in DOCUMENTS])
    return ids, ids > 0


def states_of(lengths: Sequence[int], size: int, extra: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """States of documents, and where they are; they say something about padding too, as those of transformers do."""
    width = max(lengths) + extra
    states = torch.randn(len(lengths), width, size, generator=torch.Generator().manual_seed(1))
    return states, torch.arange(width) < torch.tensor(lengths)[:, None]


def shaken(network: Network, much: float = 0.3) -> Network:
    """The network, now with nothing in it that is zero or alike."""
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(much * torch.randn_like(weight))
    return network


def tiny_bert(
    folder: Path, *, layers: int = 2, hidden: int = 32, texts: Sequence[str] | None = None, vocabulary: int = 120
) -> Path:
    """A random BERT with WordPieces of toy documents or other texts, saved as Hugging Face folders are.

    Pieces are letters and the most frequent words; the library's own trainer breaks ties differently in every process.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    normal, split = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    normalised = [normal.normalize_str(text) for text in texts or toy_corpus(200).texts]
    counts = Counter(word for text in normalised for word, _ in split.pre_tokenize_str(text))
    letters = sorted({letter for word in counts for letter in word})
    words = sorted((word for word in counts if len(word) > 1), key=lambda word: (-counts[word], word))
    pieces = [*special, *letters, *(f"##{letter}" for letter in letters), *words][:vocabulary]
    tokeniser = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokeniser.normalizer, tokeniser.pre_tokenizer = normal, split
    tokeniser.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(name, tokeniser.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    PreTrainedTokenizerFast(tokenizer_object=tokeniser, **names).save_pretrained(folder)
    sizes = {"hidden_size": hidden, "intermediate_size": 2 * hidden, "num_attention_heads": 2, "num_hidden_layers": layers}
    config = AutoConfig.for_model("bert", vocab_size=tokeniser.get_vocab_size(), max_position_embeddings=64, **sizes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModel.from_config(config).save_pretrained(folder)
    return folder


def train_ranker(problem: Problem, tree: LabelTree, settings: Ranking, positives: NDArray[Any] | None = None) -> TreeRanker:
    """Train every depth of a tree, one after the other, without a run."""
    return TreeTraining(problem, tree, settings, positives).run(lambda depth, make: make())


def setup(**settings: Any) -> Setup:
    """The settings of a training loop, given by name."""
    names = {f.name for f in dataclasses.fields(ComputeSettings)}
    compute = {name: settings.pop(name) for name in list(settings) if name in names}
    seed = settings.pop("seed", 0)
    return Setup(TrainingSettings(**settings), ComputeSettings(**compute), seed)


def encoder_sizes(encoder: str, embedding: int, hidden: int) -> dict[str, Any]:
    """An encoder with those of these sizes that have an effect for it: a BiLSTM of one layer has all, a folder none."""
    words = {"embedding": embedding} if encoder in ("words", "bilstm") else {}
    return {"encoder": encoder, **words, **({"hidden": hidden, "layers": 1} if encoder == "bilstm" else {})}
