"""The model ``embed``: its features are what a frozen encoder and tf-idf say, and nothing of the encoder is trained."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.classifier import Classifier
from polytag.errors import ConfigError
from polytag.models.embed import Embed
from polytag.run import Run, read_log
from polytag.text.tfidf import Tfidf
from toys import tiny_bert, toy_corpus

HIDDEN = 32
TRAIN, TEST = toy_corpus(200), toy_corpus(40, 3)
TEXTS = [*TEST.texts, "cat", "", "zzz unknown"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bert(tmp_path_factory.mktemp("bert"), hidden=HIDDEN)


def options(folder: Path, **more: Any) -> dict[str, Any]:
    return {"encoder": str(folder), "device": "cpu", "precision": "fp32", "c": [1.0], **more}


def fitted(folder: Path, **more: Any) -> Embed:
    model = Embed.build({**options(folder, **more)})
    model.fit(TRAIN, None, Run())
    return model


@pytest.fixture(scope="module")
def model(folder: Path) -> Embed:
    return fitted(folder)


def hugging_face_vectors(folder: Path, texts: list[str], pooling: str) -> NDArray[np.float32]:
    """Vectors of length one, each text read by itself, without any code of the project."""
    from transformers import AutoModel, AutoTokenizer

    encoder, tokeniser = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    rows = []
    for text in texts:
        with torch.no_grad():
            states = encoder(**tokeniser(text, return_tensors="pt")).last_hidden_state[0].numpy()  # (length, hidden)
        vector = {"cls": states[0], "mean": states.mean(axis=0), "max": states.max(axis=0)}[pooling]
        rows.append(vector / np.linalg.norm(vector))
    return np.array(rows, dtype=np.float32)


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_features_are_pooled_vectors_of_length_one_and_then_tfidf(folder: Path, pooling: str) -> None:
    rows = fitted(folder, pooling=pooling)._rows(TEXTS).toarray()
    words = Tfidf().fit(TRAIN.texts).transform(TEXTS).toarray()
    assert rows.shape == (len(TEXTS), HIDDEN + words.shape[1]) and words.any()
    assert rows[:, :HIDDEN] == pytest.approx(hugging_face_vectors(folder, TEXTS, pooling), abs=1e-5)
    assert (rows[:, HIDDEN:] == words).all()


def test_vectors_alone_are_the_first_columns_and_no_words_are_kept(folder: Path, model: Embed) -> None:
    alone = fitted(folder, inputs="vectors")
    assert alone._rows(TEXTS).shape == (len(TEXTS), HIDDEN)
    assert (alone._rows(TEXTS).toarray() == model._rows(TEXTS).toarray()[:, :HIDDEN]).all()
    assert alone.state()["tfidf"] is None and alone.trained.shape[0] == HIDDEN


def test_scores_are_the_margins_of_separators_on_the_features(folder: Path, model: Embed) -> None:
    vectors = hugging_face_vectors(folder, TEXTS, "mean")
    joined = np.concatenate([vectors, Tfidf().fit(TRAIN.texts).transform(TEXTS).toarray()], axis=1)
    expected = model.trained.all(csr_array(joined.astype(np.float32)))
    found = model.score(TEXTS)
    assert found.kind == "margin" and found.matrix.toarray() == pytest.approx(expected, abs=1e-4)


def test_training_leaves_the_encoder_as_it_is(folder: Path, model: Embed) -> None:
    from transformers import AutoModel

    assert model.network is not None
    reference = AutoModel.from_pretrained(folder).state_dict()
    own = {name.removeprefix("model."): tensor for name, tensor in model.network.state_dict().items()}
    assert own and set(own) <= set(reference)
    assert all(torch.equal(tensor, reference[name]) for name, tensor in own.items())


def test_it_learns_from_vectors_too(folder: Path) -> None:
    """Words that tf-idf would show are hidden in a random encoder's vectors, well enough to be far above chance."""
    classifier = Classifier("embed", options(folder)).fit(TRAIN)
    assert classifier.evaluate(TEST)["micro_f1"] > 0.9
    vectors = Classifier("embed", options(folder, inputs="vectors", c=[100.0])).fit(TRAIN).evaluate(TEST)["micro_f1"]
    shuffled = [TRAIN.label_lists()[row] for row in np.random.default_rng(0).permutation(len(TRAIN))]
    wrong = Classifier("embed", options(folder, inputs="vectors", c=[100.0])).fit(TRAIN.texts, shuffled)
    assert vectors > wrong.evaluate(TEST)["micro_f1"] + 0.1


@pytest.mark.parametrize("inputs", ["both", "vectors"])
def test_saved_and_loaded_scores_are_equal_without_the_encoders_folder(folder: Path, inputs: str, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "encoder"))
    classifier = Classifier("embed", options(copy, inputs=inputs)).fit(TRAIN)
    classifier.save(tmp_path / "run")
    shutil.rmtree(copy)
    again = Classifier.load(tmp_path / "run")
    assert (again.scores(TEXTS).matrix.data == classifier.scores(TEXTS).matrix.data).all()
    assert again.predict(TEXTS) == classifier.predict(TEXTS)


def test_weights_for_other_features_are_refused(folder: Path, model: Embed) -> None:
    state = {**model.state(), "weights": fitted(folder, inputs="vectors").state()["weights"]}
    del state["prior"]
    with pytest.raises(ValueError, match="features have different sizes"):
        Embed.from_state(model.options(), model.labels, state)


def test_only_so_many_tokens_are_read_and_texts_are_prepared(folder: Path) -> None:
    short = fitted(folder, max_length=6, preprocess="clean", inputs="vectors")  # [CLS], four subwords, [SEP]
    vectors = short._rows(
        ["cat dog tea milk oslo", "cat dog tea milk lima", "CAT, dog! Tea: milk?", "tea dog cat milk"]
    ).toarray()
    assert vectors[0] == pytest.approx(vectors[1], abs=1e-6) and vectors[0] == pytest.approx(vectors[2], abs=1e-6)
    assert np.abs(vectors[0] - vectors[3]).max() > 1e-4


def test_a_run_keeps_the_vectors_for_a_resumed_training(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Run(tmp_path / "run", progress=False) as run:
        first = Embed.build({**options(folder)})
        first.fit(TRAIN, None, run)
    monkeypatch.setattr(Embed, "_vectors", lambda *_: pytest.fail("they were computed again"))
    with Run(tmp_path / "run", progress=False, resume=True) as run:
        again = Embed.build({**options(folder)})
        again.fit(TRAIN, None, run)
    monkeypatch.undo()
    assert (again.score(TEXTS).matrix.data == first.score(TEXTS).matrix.data).all()
    assert "final" in [event["event"] for event in read_log(tmp_path / "run")]


@pytest.mark.parametrize("encoder", ["words", "bilstm"])
def test_an_encoder_that_knows_nothing_is_refused(encoder: str) -> None:
    with pytest.raises(ConfigError, match="is not pretrained"):
        Embed.build({"encoder": encoder}).fit(TRAIN, None, Run())
