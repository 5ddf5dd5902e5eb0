"""Going on from a finished run: known labels keep their weights by name, new ones are learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Command
from polytag.classifier import Classifier
from polytag.config.recipe import Recipe
from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.formats.document import ReadOptions
from polytag.run import Run
from polytag.storage.artefact import read_artefact
from polytag.verbs.training import DataPlan, train_run
from toys import LABELS, encoder_sizes, tiny_bert, toy_corpus

SIZES = {"batch_size": 8, "device": "cpu", "precision": "fp32"}
STILL = {"encoder_rate": 0.0, "head_rate": 0.0, "weight_decay": 0.0, "epochs": 1}
MODELS: dict[str, dict[str, Any]] = {
    "bert": encoder_sizes("bilstm", 16, 8),
    "cnn": {"filters": 8, "embedding": 16},
    "leam": encoder_sizes("words", 16, 8),
    "lsan": {**encoder_sizes("bilstm", 16, 8), "attention_size": 8, "dense": 8},
}

JOINT: dict[str, dict[str, Any]] = {  # whose labels have an order, or are encoded by their texts
    "sgm": {**encoder_sizes("bilstm", 16, 8), "label_embedding": 8, "decoder_size": 16, "attention_size": 8},
    "laco": {**encoder_sizes("words", 16, 8), "shared": True, "shared_size": 8},
}


def without(name: str, n: int, seed: int) -> Corpus:
    """Toy documents from before there was a label, though some are about it; all have another one."""
    corpus = toy_corpus(3 * n, seed)
    kept = [[other for other in labels if other != name] for labels in corpus.label_lists()]
    pairs = [(text, labels) for text, labels in zip(corpus.texts, kept, strict=True) if labels][:n]
    return Corpus.of([text for text, _ in pairs], [labels for _, labels in pairs])


def trained(model: str, train: Corpus, **options: Any) -> Classifier:
    settings = {"epochs": 2, "encoder_rate": 1e-2, "head_rate": 1e-2, **SIZES, **(MODELS | JOINT)[model], **options}
    return Classifier(model, settings).fit(train)


def again(model: str, earlier: Classifier, train: Corpus, **options: Any) -> Classifier:
    settings = {"encoder_rate": 1e-2, "head_rate": 1e-2, **SIZES, **(MODELS | JOINT)[model], **options}
    return Classifier(model, settings).continue_from(earlier).fit(train)


@pytest.mark.parametrize("model", MODELS | JOINT)
def test_edited_labels_start_with_the_rows_of_their_sources(model: str) -> None:
    """As many labels as before, but others: only the number of rows could not tell which tensors have one per label."""
    earlier = trained(model, toy_corpus(60, 1))
    first, second, third, *others = earlier.labels
    edited = trained(model, toy_corpus(60, 1)).merge({"both": [first, second]}).split({third: ["one", third]})
    new = Corpus.of(["river water", "tree leaf"] * 6, [["both"], ["one"]] * 6)
    later = again(model, edited, new, **STILL)
    assert later.labels.names == ("both", "one", third, *others)
    before, after = earlier.model.state()["weights"], later.model.state()["weights"]
    grown = [name for name, array in trained(model, without("animals", 60, 1)).model.state()["weights"].items()
             if array.shape != before[name].shape and len(before[name]) == len(earlier.labels)]  # fmt: skip
    assert grown and {name: array.shape for name, array in before.items()} == {name: array.shape for name, array in after.items()}
    for name, array in before.items():
        if name in grown:
            np.testing.assert_allclose(after[name][0], (array[0] + array[1]) / 2, rtol=1e-5, atol=1e-7)
            assert np.array_equal(after[name][1], array[2]) and np.array_equal(after[name][2:], array[2:])
        else:
            assert np.array_equal(after[name], array), name


@pytest.mark.parametrize("model", MODELS)
def test_known_labels_keep_their_rows_and_new_ones_are_added_behind(model: str) -> None:
    earlier = trained(model, without("animals", 60, 1))
    new = toy_corpus(40, 2)
    assert new.labels.names != earlier.labels.names and new.labels.names[0] == "animals"
    later = again(model, earlier, new, **STILL)
    assert later.labels.names == (*earlier.labels.names, "animals")
    before, after = earlier.model.state(), later.model.state()
    grown = [name for name, array in after["weights"].items() if array.shape != before["weights"][name].shape]
    assert grown
    for name, array in before["weights"].items():
        assert (after["weights"][name][: len(array)] == array).all(), name
    assert {after["weights"][name].shape[0] for name in grown} == {4}
    assert repr(after["tokens"]) == repr(before["tokens"])  # numbers of words stay what they were


@pytest.mark.parametrize("model", ["bert", "cnn", "lsan"])  # in leam every label has a say in which words count
def test_before_it_learns_anything_known_labels_have_the_scores_of_the_earlier_run(model: str) -> None:
    earlier = trained(model, without("boats", 60, 1))
    later = again(model, earlier, toy_corpus(40, 2), **STILL)
    texts = toy_corpus(30, 3).texts
    before, after = earlier.scores(texts).matrix.toarray(), later.scores(texts).matrix.toarray()
    assert np.ptp(before) > 0.05 and after[:, :3] == pytest.approx(before, abs=1e-5)


def test_a_short_continuation_knows_old_and_new_labels_where_a_fresh_start_knows_little() -> None:
    earlier = trained("bert", without("animals", 300, 1), epochs=10, encoder_rate=2e-2, head_rate=2e-2)
    new, test = toy_corpus(120, 2), toy_corpus(100, 3)
    short = {"epochs": 3, "encoder_rate": 1e-2, "head_rate": 1e-2}
    fresh = trained("bert", new, **short).evaluate(test)["micro_f1"]
    later = again("bert", earlier, new, **short)
    assert later.evaluate(test)["micro_f1"] > max(0.75, fresh + 0.1)
    assert later.evaluate(test)["unseen_labels"] == 0


def test_what_was_learned_from_adds_up() -> None:
    earlier = trained("bert", without("animals", 60, 1))
    new = toy_corpus(40, 2)
    later = again("bert", earlier, new, **STILL)
    counts = dict(zip(later.labels.names, later.training["label_counts"].tolist(), strict=True))
    for name in LABELS:
        old = sum(name in labels for labels in without("animals", 60, 1).label_lists())
        assert counts[name] == old + sum(name in labels for labels in new.label_lists())
    assert later.training["documents"] == 100


def test_a_transformer_goes_on_without_its_folder_and_takes_a_new_dropout(tmp_path: Path) -> None:
    folder = tiny_bert(tmp_path / "encoder")
    settings = {"encoder": str(folder), "device": "cpu", "precision": "fp32", "max_length": 16}
    earlier = Classifier("bert", {**settings, "epochs": 1}).fit(toy_corpus(40))
    for file in folder.iterdir():
        file.unlink()
    later = Classifier("bert", {**settings, **STILL, "encoder_dropout": 0.3}).continue_from(earlier).fit(toy_corpus(20, 1))
    assert later.model.state()["encoder"]["dropout"] == 0.3
    texts = toy_corpus(10, 2).texts
    assert later.scores(texts).matrix.toarray() == pytest.approx(earlier.scores(texts).matrix.toarray(), abs=1e-5)


# -- refusals ---------------------------------------------------------------------------------------------------------------


def test_another_model_or_another_shape_is_refused(br: Classifier) -> None:
    earlier = trained("cnn", toy_corpus(30))
    with pytest.raises(ConfigError, match="earlier model is 'br', and 'cnn' cannot continue from it; train 'br'"):
        Classifier("cnn").continue_from(br)
    with pytest.raises(ConfigError, match="'embedding' is 32, but 16 in the earlier run; leave it as it was"):
        again("cnn", earlier, toy_corpus(30), embedding=32)
    with pytest.raises(ConfigError, match=r"other sizes \('.*' is \(8, .* there and \(9, .* here\); leave the settings"):
        again("cnn", earlier, toy_corpus(30), filters=9)
    with pytest.raises(ConfigError, match=r"another network .* leave the settings that shape the network"):
        again("cnn", earlier, toy_corpus(30), convolutions=2)


def test_a_model_by_itself_wants_the_earlier_labels_first() -> None:
    earlier = trained("bert", without("animals", 40, 1))
    later = Classifier("bert", {**SIZES, **MODELS["bert"]})
    later.model.start_from(earlier.model)
    with pytest.raises(ConfigError, match="must start with those of the earlier run"):
        later.model.fit(toy_corpus(30), None, Run())


# -- command line -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Old and new documents, and a finished run on the old ones."""
    folder = tmp_path_factory.mktemp("continue")
    without("animals", 60, 1).write(folder / "old.jsonl")
    toy_corpus(40, 2).write(folder / "new.jsonl")
    settings = [f"{key}={value}" for key, value in {**SIZES, **MODELS["bert"], "epochs": 2, "head_rate": 0.01}.items()]
    recipe = Recipe("bert").with_overrides(settings)
    train_run(recipe, DataPlan.of(recipe, folder / "old.jsonl", None, None, ReadOptions()), folder / "first")
    return folder


def test_the_command_goes_on_with_the_settings_of_the_run_and_its_recipe_repeats_it(place: Path, polytag: Command) -> None:
    second, third = place / "second", place / "third"
    told = polytag("train", place / "new.jsonl", "--from", place / "first", "--set", "epochs=1", "--out", second)
    assert told.code == 0, told.err
    recipe = Recipe.read(second / "recipe.toml")
    assert recipe.model == "bert" and recipe.options["hidden"] == 8 and recipe.options["epochs"] == 1
    assert recipe.data["from"] == str(place / "first")
    assert polytag("train", "--recipe", second / "recipe.toml", "--out", third).code == 0
    weights = [read_artefact(run / "model")["state"]["weights"] for run in (second, third)]
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])
    assert Classifier.load(second).labels.names == (*Classifier.load(place / "first").labels.names, "animals")


def test_a_checkpoint_does_not_serve_a_training_from_another_run(place: Path) -> None:
    recipe, new = Recipe("bert"), place / "new.jsonl"
    plans = [DataPlan.of(recipe, new, None, None, ReadOptions(), start) for start in (None, place / "first")]
    prints = {plan.recipe_table(*plan.read())["fingerprint"] for plan in plans}
    assert len(prints) == 2


def test_mistakes_are_one_line(place: Path, run_folder: Path, polytag: Command) -> None:
    def complaint(*arguments: object) -> str:
        return polytag("-q", "train", place / "new.jsonl", "--out", place / "no", *arguments).complaint

    assert "earlier model is 'br'" in complaint("--from", run_folder, "--model", "bert")
    assert "no such folder" in complaint("--from", place / "nowhere")
    assert not (place / "no").exists()
