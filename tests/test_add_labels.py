"""Labels that training never saw: scored from their words, decided, saved and loaded, learned later, or refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.decision.decision import Decision
from polytag.errors import ConfigError, DataError, NotFittedError
from polytag.labels import LabelSet
from polytag.models.laco import Laco
from polytag.nn.labels.cross_attention import SharedHead
from polytag.run import Run

THINGS = [f"thing{number}" for number in range(24)]
SEEN = THINGS[:18]
FILLERS = ["the", "a", "of", "on", "and", "with"]
OPTIONS: dict[str, Any] = {
    "encoder": "words", "embedding": 48, "label_text": "description", "shared": True, "shared_size": 32, "window": 1,
    "batch_size": 16, "epochs": 20, "encoder_rate": 0.01, "head_rate": 0.01, "frozen_layers": -1, "dropout": 0.0,
    "device": "cpu", "precision": "fp32", "similarity": "cosine",
}  # fmt: skip


def documents(n: int, seed: int, known: list[str]) -> Corpus:
    """A document names two or three things among other words, and has a label for each of those that is known.

    The label's name says nothing; its description is the thing's name. So a label can be told by its description alone.
    """
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(n):
        things = rng.choice(THINGS, int(rng.integers(2, 4)), replace=False).tolist()
        texts.append(" ".join(rng.permutation([*things, *rng.choice(FILLERS, 3)])))
        labels.append([f"label {thing}x" for thing in things if thing in known])
    return Corpus.of(texts, labels, label_set=LabelSet(described(known), descriptions=described(known)))


def described(things: list[str]) -> dict[str, str]:
    return {f"label {thing}x": thing for thing in things}


NEW = described(THINGS[18:])


@pytest.fixture(scope="module", params=[False, True], ids=["tokens", "pooled"])
def trained(request: pytest.FixtureRequest) -> Classifier:
    return Classifier("laco", {**OPTIONS, "pooled": request.param}).fit(documents(500, 0, SEEN), documents(80, 1, SEEN))


@pytest.fixture
def classifier(trained: Classifier, tmp_path: Path) -> Classifier:
    """A copy that a test may change."""
    trained.save(tmp_path / "copy")
    return Classifier.load(tmp_path / "copy")


def test_new_labels_are_found_by_their_descriptions(classifier: Classifier) -> None:
    """Ranked among themselves, the labels whose description stands in the text come first; by chance that is one in three."""
    classifier.add_labels(NEW)
    test = documents(80, 2, THINGS).with_labels(classifier.labels)
    values = classifier.scores(test.texts).matrix.toarray()[:, len(SEEN) :]
    truth = test.truth.toarray()[:, len(SEEN) :]
    assert truth.sum() > 30
    wins = [v[t > 0].min() > v[t == 0].max() for v, t in zip(values, truth, strict=True) if t.any()]
    assert np.mean(wins) > 0.8
    found = [set(labels) & set(NEW) for labels in classifier.predict(test.texts)]
    true = [set(labels) & set(NEW) for labels in test.label_lists()]
    hits = sum(len(f & t) for f, t in zip(found, true, strict=True))
    assert 2 * hits / (sum(map(len, found)) + sum(map(len, true))) > 0.7
    assert classifier.evaluate(test)["unseen_labels"] == len(NEW)


def test_what_was_known_is_scored_as_before(classifier: Classifier) -> None:
    texts = documents(30, 3, SEEN).texts
    before, limits = classifier.scores(texts).matrix.toarray(), classifier.decision.thresholds
    classifier.add_labels(NEW)
    scores = classifier.scores(texts)
    assert scores.matrix.toarray()[:, : len(SEEN)] == pytest.approx(before, abs=1e-6)
    assert tuple(scores.names) == classifier.labels.names == (*described(SEEN), *NEW)
    assert (classifier.decision.thresholds[: len(SEEN)] == limits).all() and len(classifier.decision.thresholds) == len(THINGS)
    assert [name for name, _ in classifier.scores(texts, k=3).top(3)[0]] == [name for name, _ in scores.top(3)[0]]


def test_labels_can_be_added_one_after_the_other(classifier: Classifier, trained: Classifier) -> None:
    """With words that do not meet, as here, one by one is the same as all at once."""
    texts = documents(20, 4, SEEN).texts
    for name, text in NEW.items():
        classifier.add_labels({name: text})
    one_by_one = classifier.scores(texts).matrix.toarray()
    twin = Laco.from_state(trained.model.options(), trained.labels, trained.model.state())
    twin.extend(LabelSet(NEW, descriptions=NEW))
    assert one_by_one == pytest.approx(twin.score(texts).matrix.toarray(), abs=1e-6)


def test_added_labels_are_saved_and_loaded(classifier: Classifier, tmp_path: Path) -> None:
    classifier.add_labels(NEW)
    classifier.save(tmp_path / "run")
    again = Classifier.load(tmp_path / "run")
    test = documents(30, 5, THINGS)
    assert again.labels == classifier.labels and again.labels.descriptions[next(iter(NEW))] == "thing18"
    assert (again.scores(test.texts).matrix.data == classifier.scores(test.texts).matrix.data).all()
    assert again.predict(test.texts) == classifier.predict(test.texts)
    assert again.evaluate(test) == classifier.evaluate(test)
    again.add_labels({"one more": "thing0"})
    assert again.scores(["thing0"]).matrix.shape == (1, len(THINGS) + 1)


def test_a_training_that_goes_on_learns_the_added_labels(classifier: Classifier) -> None:
    classifier.add_labels(NEW)
    later = Classifier("laco", {**OPTIONS, "epochs": 1, "max_steps": 2}).continue_from(classifier)
    later.fit(documents(60, 6, THINGS))
    assert isinstance(later.model, Laco) and later.model.seen == len(THINGS)
    assert set(later.labels) == {*described(SEEN), *NEW}


def test_training_anew_forgets_them(classifier: Classifier) -> None:
    classifier.add_labels(NEW)
    classifier.model.max_steps = 2  # type: ignore[attr-defined]
    classifier.fit(documents(40, 7, SEEN))
    assert len(classifier.labels) == len(SEEN) and classifier.scores(["thing1"]).matrix.shape == (1, len(SEEN))


def test_mistakes_are_said_in_one_line(classifier: Classifier) -> None:
    with pytest.raises(DataError, match="'label thing0x' is known already"):
        classifier.add_labels({"label thing0x": ""})
    with pytest.raises(DataError, match="no label to add"):
        classifier.add_labels({})
    with pytest.raises(NotFittedError):
        Classifier("laco").add_labels({"a": "b"})
    assert len(classifier.labels) == len(SEEN)


def test_other_models_refuse(br: Classifier) -> None:
    before = br.labels
    with pytest.raises(ConfigError, match=r"'br' kept no features; train it with --keep-features") as caught:
        br.add_labels({"new": "something"})
    assert "\n" not in str(caught.value) and br.labels is before
    chain = Classifier("cc").fit(documents(40, 9, SEEN))
    with pytest.raises(ConfigError, match=r"'cc' cannot score labels that it was not trained on; .*shared=true"):
        chain.add_labels({"new": "something"})


@pytest.mark.parametrize("options", [{"shared": False}, {"joint": False}, {"label_text": "new"}], ids=repr)
def test_a_laco_without_what_it_takes_refuses(options: dict[str, Any]) -> None:
    model = Laco.build({**{**OPTIONS, **options, "max_steps": 1}})
    model.fit(documents(20, 8, SEEN), None, Run())
    with pytest.raises(ConfigError, match="shared=true, joint=true"):
        model.extend(LabelSet(["new"]))
    assert len(model.labels) == len(SEEN)


def test_thresholds_of_new_labels() -> None:
    """Their own if one is known, else what is usual; known labels keep theirs, and rules without thresholds stay as they are."""
    one = Decision("threshold", thresholds=np.array([0.4], dtype=np.float32))
    one.extend(3, 2, 0.25)
    assert one.rule == "per_label" and one.thresholds.tolist() == pytest.approx([0.4, 0.4, 0.4, 0.25, 0.25])
    each = Decision("per_label", thresholds=np.array([0.2, 0.3, 0.7], dtype=np.float32))
    each.extend(3, 1, None)
    assert each.thresholds.tolist() == pytest.approx([0.2, 0.3, 0.7, 0.3])
    for rule in ("top_k", "decoded", "auto"):
        other = Decision(rule)
        other.extend(3, 2, 0.25)
        assert other.rule == rule and len(other.thresholds) == 1


def test_labels_are_added_after_edits_and_edited_after_they_were_added(classifier: Classifier, tmp_path: Path) -> None:
    """A name that was dropped is free again; the new label has its own scores, not those of the dropped one."""
    first, second, third, *_ = classifier.labels
    text = ["thing0 thing20 thing22"]
    names = list(NEW)
    other = Classifier.load(tmp_path / "copy").add_labels(NEW)
    expected = dict(zip(other.labels, other.scores(text).matrix.toarray()[0], strict=True))
    classifier.merge({"both": [second, third]}).drop([first]).add_labels({**NEW, first: "thing23"})
    classifier.rename({names[0]: "renamed"}).merge({"all": names[1:3]})
    classifier.save(tmp_path / "edited")
    for found in (classifier, Classifier.load(tmp_path / "edited")):
        scores = dict(zip(found.labels, found.scores(text).matrix.toarray()[0], strict=True))
        assert np.isclose(scores["renamed"], expected[names[0]], atol=1e-6)
        assert np.isclose(scores["all"], 1 - (1 - expected[names[1]]) * (1 - expected[names[2]]), atol=1e-6)
        assert np.isclose(scores[first], expected[names[5]], atol=1e-6) and scores[first] != expected[first]
        assert [edit.kind for edit in found.edits] == ["merge", "drop", "add", "rename", "merge"]
        assert (
            len(found.labels) == len(SEEN) - 2 + len(NEW) + 1 - 1 == len(found.decision.limits("probability", len(found.labels)))
        )


def test_labels_kept_out_of_the_shared_head_teach_it_nothing() -> None:
    """Their loss has no gradient, and the threshold of new labels is fitted on them; with few labels none is kept out."""
    head = SharedHead(6, 5, 0.0)
    head.keep_out(0.1, 40, seed=3)
    assert len(head.like_new) == 4 and head.like_new.tolist() == sorted(set(head.like_new.tolist()))
    logits = torch.randn(7, 40, requires_grad=True)
    head.for_loss(logits).sum().backward()
    assert logits.grad is not None
    assert np.flatnonzero((logits.grad == 0).all(dim=0).numpy()).tolist() == head.like_new.tolist()
    head.keep_out(0.1, 18, seed=3)
    assert head.for_loss(logits) is logits and len(head.like_new) == 18
    assert not any("taught" in name for name in head.state_dict())
