"""Encoders of many families: tiny random ones are read from their folders as Hugging Face reads them, trained and saved."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from polytag.classifier import Classifier
from polytag.config.groups.encoder_settings import WordSettings
from polytag.errors import ConfigError
from polytag.nn.encoding.encoders import Transformer, build_encoder
from polytag.nn.encoding.pretrained import describe_encoder, load_pretrained
from toys import tiny_bert, toy_corpus

SIZES: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2}
T5: dict[str, Any] = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}
BART: dict[str, Any] = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "albert": {**SIZES, "embedding_size": 16},
    "deberta-v2": SIZES,
    "distilbert": {"dim": 32, "hidden_dim": 64, "n_heads": 2, "n_layers": 2},
    "electra": {**SIZES, "embedding_size": 16},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 2},
    "modernbert": {**SIZES, "global_attn_every_n_layers": 2, "cls_token_id": 2, "sep_token_id": 3},
    "mpnet": SIZES,
    "qwen3": {**SIZES, "num_key_value_heads": 2, "head_dim": 16, "max_window_layers": 2},
    "roberta": SIZES,
    "squeezebert": {**SIZES, "embedding_size": 32},
    "xlnet": {"d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 64},
    "bart": BART,
    "mt5": T5,
    "t5": T5,
}
TRAINED: dict[str, dict[str, Any]] = {
    "bert": {"epochs": 1, "frozen_layers": 1},
    "laco": {"epochs": 1},
    "bert-sgm": {"epochs": 1},
    "embed": {"c": [1.0]},
}
TEXTS = toy_corpus(12).texts


@pytest.fixture(scope="module")
def tokeniser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bert(tmp_path_factory.mktemp("bert"))


def folder_of(family: str, sizes: dict[str, Any], tokeniser: Path, folder: Path) -> Path:
    """A random model of a family with the tokeniser of another, as a Hugging Face folder."""
    from transformers import AutoConfig, AutoModel
    from transformers.utils import logging as messages

    messages.disable_progress_bar()
    size = json.loads((tokeniser / "config.json").read_text())["vocab_size"]
    special = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    config = AutoConfig.for_model(family, vocab_size=size, **special, **sizes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModel.from_config(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokeniser / name, folder / name)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_gives_the_states_that_hugging_face_gives(family: str, tokeniser: Path, tmp_path: Path) -> None:
    """Those of the encoder alone, where there is a decoder too; one text at a time, and padded."""
    from transformers import AutoModel

    folder = folder_of(family, FAMILIES[family], tokeniser, tmp_path / family)
    tokens, description = describe_encoder(str(folder), [], WordSettings(), None)
    encoder = build_encoder(json.loads(json.dumps(description)))
    load_pretrained(encoder, str(folder), tokens)
    assert isinstance(encoder, Transformer) and encoder.eval().hidden == 32
    whole = AutoModel.from_pretrained(folder).eval()
    reference = whole.get_encoder() if whole.config.is_encoder_decoder else whole
    ids = torch.tensor([[2, 7, 8, 9, 3], [2, 5, 3, 0, 0]])
    mask = ids > 0
    with torch.no_grad():
        found = encoder(ids, mask)
        for row, length in enumerate((5, 3)):
            alone = ids[row : row + 1, :length]
            expected = reference(input_ids=alone, attention_mask=torch.ones_like(alone)).last_hidden_state[0]
            assert torch.allclose(found[row, :length], expected, atol=1e-4), row
    assert max(encoder.depths().values()) == (1 if family == "albert" else 2), "albert has one layer, used twice"


@pytest.mark.parametrize("family", FAMILIES)
def test_models_over_a_family_are_trained_saved_and_loaded(family: str, tokeniser: Path, tmp_path: Path) -> None:
    folder = folder_of(family, FAMILIES[family], tokeniser, tmp_path / family)
    shared = {"encoder": str(folder), "max_length": 12, "device": "cpu", "precision": "fp32"}
    for model, options in TRAINED.items():
        classifier = Classifier(model, {**shared, **options}).fit(toy_corpus(24))
        classifier.save(tmp_path / model)
        assert Classifier.load(tmp_path / model).predict(TEXTS) == classifier.predict(TEXTS)


@pytest.mark.parametrize("family", ["vit", "whisper"])
def test_a_model_that_does_not_encode_text_is_refused_with_one_line(family: str, tokeniser: Path, tmp_path: Path) -> None:
    sizes = SIZES if family == "vit" else BART
    folder = folder_of(family, {k: v for k, v in sizes.items() if k != "max_position_embeddings"}, tokeniser, tmp_path / family)
    with pytest.raises(ConfigError, match=f"a model of the type '{family}' does not encode text; name another encoder") as caught:
        Classifier("bert", {"encoder": str(folder), "device": "cpu"}).fit(toy_corpus(24))
    assert len(str(caught.value).splitlines()) == 1
