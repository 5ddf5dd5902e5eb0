"""Another language is another encoder: Russian texts go the whole way, with words of their own and with a multilingual encoder.

The multilingual encoder here is tiny and random. It proves the path, and nothing about quality.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from polytag import Classifier, Corpus

TEXTS = [
    ("Кот спит на крыше старого дома", ["животные"]),
    ("Чай и кофе подают в саду", ["напитки"]),
    ("Собака пьёт чай, когда спит щенок", ["животные", "напитки"]),
    ("Поезд в Москву отходит утром", ["города"]),
    ("Кот едет в Москву на поезде", ["животные", "города"]),
] * 24
SMALL: dict[str, Any] = {"epochs": 12, "batch_size": 12, "encoder_rate": 5e-3, "head_rate": 1e-2, "device": "cpu"}
SMALL |= {"decoder_size": 0, "label_embedding": 16, "max_length": 32}


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus.of([text for text, _ in TEXTS], [labels for _, labels in TEXTS])


@pytest.fixture(scope="module")
def multilingual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random XLM-RoBERTa with a unigram vocabulary over both alphabets, as a Hugging Face folder."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("multilingual")
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokeniser = Tokenizer(models.Unigram())
    tokeniser.pre_tokenizer = pre_tokenizers.Metaspace()
    texts = [text for text, _ in TEXTS[:5]] + ["a cat sleeps on the roof", "the train leaves in the morning"]
    tokeniser.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=150, special_tokens=special, unk_token="<unk>"))
    ends = [(name, tokeniser.token_to_id(name)) for name in ("<s>", "</s>")]
    tokeniser.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"}
    PreTrainedTokenizerFast(tokenizer_object=tokeniser, **names).save_pretrained(folder)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2, "pad_token_id": 1}
    config = AutoConfig.for_model("xlm-roberta", vocab_size=tokeniser.get_vocab_size(), max_position_embeddings=66, **sizes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModel.from_config(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("model", ["bert-sgm", "bert"])
def test_a_multilingual_encoder_is_only_another_folder(model: str, multilingual: Path, corpus: Corpus, tmp_path: Path) -> None:
    options = {
        key: value for key, value in SMALL.items() if model == "bert-sgm" or key not in ("decoder_size", "label_embedding")
    }
    classifier = Classifier(model, {**options, "encoder": str(multilingual), "encoder_rate": 2e-3}).fit(corpus, corpus)
    classifier.save(tmp_path)
    again = Classifier.load(tmp_path)
    for text, labels in TEXTS[:5]:
        assert set(again.predict([text])[0]) == set(labels)


def test_a_bilstm_learns_russian_words(corpus: Corpus) -> None:
    options = {**SMALL, "decoder_size": 32, "encoder": "bilstm", "embedding": 32, "hidden": 16, "layers": 1}
    classifier = Classifier("sgm", options).fit(corpus, corpus)
    for text, labels in TEXTS[:5]:
        assert set(classifier.predict([text.upper()])[0]) == set(labels)  # words are compared in lower case
