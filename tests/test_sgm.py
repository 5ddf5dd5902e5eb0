"""The model ``sgm``: sequences in an order, sets beside the scores, labels that depend on labels, windows, trees and files."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.labels import LabelSet
from polytag.models.base.sequence_model import SequenceModel, SequenceNetwork
from polytag.models.sgm import Sgm
from polytag.nn.decoding.label_sequences import target_sequences
from polytag.nn.training.batch import Batch, Documents, tokenise
from polytag.run import Run
from toys import toy_corpus

SMALL: dict[str, Any] = {
    "encoder": "words", "embedding": 16, "decoder_size": 16, "label_embedding": 8, "attention_size": 8, "first_state": "mean",
    "epochs": 10, "batch_size": 32, "encoder_rate": 0.02, "head_rate": 0.02, "dropout": 0.1, "device": "cpu", "precision": "fp32",
}  # fmt: skip
LAST = {"evaluate_every": 10_000, "epochs": 10, "batch_size": 8}  # the last weights, whatever validation documents say


def model(**options: Any) -> Sgm:
    sizes = {"hidden": 8, "layers": 1} if options.get("encoder") == "bilstm" else {}
    return Sgm.build({**SMALL, **sizes, **options})


def fitted(corpus: Corpus, **options: Any) -> Sgm:
    found = model(**options)
    found.fit(corpus, None, Run())
    return found


@pytest.fixture(scope="module")
def learned() -> Classifier:
    return Classifier("sgm", SMALL).fit(toy_corpus(240, 0), toy_corpus(60, 1))


def test_it_learns_and_its_sets_are_beside_its_scores(learned: Classifier) -> None:
    test = toy_corpus(80, 2)
    scores = learned.model.score(test.texts)
    assert scores.decoded is not None and scores.log_probability is not None
    assert scores.kind == "probability" and scores.log_probability.shape == (80,) and (scores.log_probability <= 0).all()
    right = (np.abs((scores.decoded - test.truth).toarray()).sum(axis=1) == 0).mean()
    assert right > 0.85
    assert {"decoded", "threshold"} <= set(learned.decision.report["cross_fitted"])


def test_no_set_is_longer_than_any_in_training(learned: Classifier) -> None:
    assert isinstance(learned.model, SequenceModel)
    assert learned.model.longest == int(np.diff(toy_corpus(240, 0).truth.indptr).max())
    for labels in learned.predict(toy_corpus(80, 2).texts):
        assert len(set(labels)) == len(labels) <= 4


def exclusive(n: int, seed: int) -> Corpus:
    """Every document looks alike and has either both a and b or both c and d: only the first label tells the second."""
    rng = np.random.default_rng(seed)
    texts = [" ".join(rng.choice(["red", "green", "blue"], 4)) for _ in range(n)]
    return Corpus.of(texts, [["a", "b"] if rng.random() < 0.55 else ["c", "d"] for _ in range(n)])


def test_a_label_depends_on_the_labels_before_it() -> None:
    """No rule over scores of single labels is right more often than the sets are: the words say nothing about them."""
    corpus = exclusive(200, 0)
    trained = fitted(corpus, beam=4, score_from="marginal", order="given", **LAST)
    batch = _batch(trained, exclusive(5, 1).texts)
    assert isinstance(trained.network, torch.nn.Module)
    found = trained.network.search(batch, 4, trained.longest, 0.0, False)  # type: ignore[operator]
    both = [sorted(row[:2]) for row in found.labels[0, :2].tolist()]
    assert sorted(both) == [[0, 1], [2, 3]], "the two sets that there are, and no mixture"
    shares = found.log_probability[:, :2].exp()
    assert (shares.sum(dim=1) > 0.9).all() and (shares[:, 1] > 0.25).all()
    one, other = (float(shares[0, both.index(pair)]) for pair in ([0, 1], [2, 3]))
    assert found.marginal[0].tolist() == pytest.approx([one, one, other, other], abs=0.1)


def _batch(trained: Sgm, texts: list[str]) -> Any:
    assert trained.tokens is not None
    data = Documents(tokenise(trained.tokens, texts), trained._layout(), torch.device("cpu"))
    rows = np.arange(len(texts))
    return data.batch(torch.from_numpy(rows), *data.shape(rows))


# -- orders and trees --------------------------------------------------------------------------------------------------

LABELS = LabelSet(["cat", "animal", "plant", "tree"], parents={"cat": "animal", "tree": "plant"})


def family(n: int = 40) -> Corpus:
    """The rare parents stand behind their children in the label set and are never given."""
    texts = ["meow purr" if i % 4 else "leaf bark" for i in range(n)]
    return Corpus.of(texts, [["cat"] if i % 4 else ["tree", *(["plant"] if i % 8 else [])] for i in range(n)], label_set=LABELS)


def taught(corpus: Corpus, **options: Any) -> list[list[str]]:
    """The sequences that a model is taught, as names."""
    found = model(**options)
    truth = found._taught(corpus).truth
    sequences = target_sequences(torch.from_numpy(truth.toarray()), found.ranks, found.longest + 1)
    names = [*corpus.labels.names, "<eos>", ""]
    return [[names[label] for label in row if label >= 0] for row in sequences.tolist()]


def test_the_order_changes_the_sequences() -> None:
    own = LabelSet(["rare", "often", "always"])
    corpus = Corpus.of(["a", "b", "c"], [["rare", "often", "always"], ["often", "always"], ["always"]], label_set=own)
    assert taught(corpus, order="given")[0] == ["rare", "often", "always", "<eos>"]
    assert taught(corpus, order="frequency")[0] == ["always", "often", "rare", "<eos>"]
    torch.manual_seed(0)
    assert len({tuple(taught(corpus, order="random")[0]) for _ in range(60)}) == 6
    assert taught(corpus, order="frequency", max_labels=1)[:2] == [["always", "often"], ["always", "often"]]


def test_labels_are_completed_by_their_ancestors_and_parents_come_first() -> None:
    sequences = taught(family(), order="topological", complete=True)
    assert sequences[1] == ["animal", "cat", "<eos>"] and sequences[0] == ["plant", "tree", "<eos>"]
    assert taught(family(), order="topological")[1] == ["cat", "<eos>"]
    trained = fitted(family(), complete=True, order="topological", **LAST)
    decoded = trained.score(["meow purr", "leaf bark"]).decoded
    assert decoded is not None and LABELS.decode(decoded) == [["cat", "animal"], ["plant", "tree"]]


def test_completing_does_not_touch_what_is_held_out() -> None:
    held = model(complete=True).fit(family(), family(16), Run())
    assert held is not None and held.truth.nnz == family(16).truth.nnz


# -- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"global_embedding": "adaptive"}, {"global_embedding": "fixed", "proportion": 0.4}, {"mask_repeats": False, "beam": 1},
        {"order": "random"}, {"attention": "dot", "decoder_size": 0}, {"encoder": "bilstm", "prior_bias": False},
        {"decoder_layers": 2, "smoothing": 0.1, "score_from": "marginal", "length_penalty": 0.5},
    ],
    ids=str,
)  # fmt: skip
def test_every_switch_learns(options: dict[str, Any]) -> None:
    trained = fitted(toy_corpus(240, 0), batch_size=12, **options)
    test = toy_corpus(60, 2)
    scores = trained.score(test.texts)
    assert scores.decoded is not None
    wrong = np.abs((scores.decoded - test.truth).toarray()).sum()
    assert wrong / test.truth.nnz < 0.35
    again = Sgm.from_state(trained.options(), trained.labels, trained.state()).score(test.texts)
    assert (again.matrix.data == scores.matrix.data).all()


def test_scores_are_pooled_over_the_steps_or_marginal_over_the_beam(learned: Classifier) -> None:
    """Pooled scores of decoded labels are at least the set's own probability; the marginal is 1 or 0 for a beam of 1."""
    assert isinstance(learned.model, Sgm)
    texts = toy_corpus(30, 3).texts
    pooled = learned.model.score(texts)
    assert pooled.decoded is not None and pooled.log_probability is not None
    inside = pooled.matrix.toarray()[pooled.decoded.toarray() > 0]
    assert inside.min() >= np.exp(pooled.log_probability).min() and (pooled.matrix.data > 0).all()
    one = Sgm.build({**learned.model.options(), "beam": 1, "score_from": "marginal"})
    one.labels = learned.labels
    one.restore(learned.model.state())
    greedy = one.score(texts)
    assert greedy.decoded is not None and (greedy.matrix.toarray() == greedy.decoded.toarray()).all()


def test_windows_are_one_long_document_to_the_decoder() -> None:
    """What is said beyond the first window is found in the others, and a text of one window is read as it would be without."""
    base = toy_corpus(240, 0)
    padded = Corpus.of([f"{'the a of on ' * 4} {text}" for text in base.texts], base.label_lists(), label_set=base.labels)
    windows = {"max_length": 12, "long": "windows", "overlap": 2, "max_windows": 4}
    trained = fitted(padded, epochs=14, **windows)
    test = toy_corpus(60, 2)
    texts = [f"{'the a of on ' * 4} {text}" for text in test.texts]
    decoded, head = trained.score(texts).decoded, None
    other = Sgm.from_state({**trained.options(), "long": "head"}, trained.labels, trained.state())
    head = other.score(texts).decoded
    assert decoded is not None and head is not None
    wrong = [np.abs((found - test.truth).toarray()).sum() / test.truth.nnz for found in (decoded, head)]
    assert wrong[0] < 0.3 < 0.6 < wrong[1]
    short = ["cat and ferry", "oslo"]
    assert np.allclose(trained.score(short).matrix.data, other.score(short).matrix.data, atol=1e-5)


@pytest.mark.parametrize(("k", "many"), [(None, 4), (2, 2)])
def test_decoded_sets_come_with_candidates_too(learned: Classifier, k: int | None, many: int) -> None:
    scores = learned.model.score(["cat and tea", ""], k)
    assert scores.decoded is not None and np.diff(scores.matrix.indptr).tolist() == [many, many]
    nothing = learned.model.score([], k)
    assert nothing.decoded is not None and nothing.decoded.shape == (0, 4)


def test_the_bias_starts_at_the_frequencies() -> None:
    corpus = toy_corpus(100, 0)
    still = {"encoder_rate": 0.0, "head_rate": 0.0, "epochs": 1, "weight_decay": 0.0}
    weights: dict[str, NDArray[Any]] = fitted(corpus, **still).state()["weights"]
    bias = np.append(weights["decoder.output.bias"], weights["decoder.stop.bias"])
    assert np.exp(bias).sum() == pytest.approx(1, abs=1e-5)
    without = fitted(corpus, **still, prior_bias=False).state()["weights"]
    assert without["decoder.output.bias"] != pytest.approx(weights["decoder.output.bias"])


# -- files -------------------------------------------------------------------------------------------------------------


def test_it_cannot_be_exported_and_says_so(learned: Classifier, tmp_path: Path) -> None:
    learned.save(tmp_path)
    assert isinstance(learned.model, Sgm)
    with pytest.raises(ConfigError, match="'sgm' generates labels step by step and cannot be exported"):
        learned.model.export(tmp_path / "model")
    assert not learned.model.use_export(tmp_path / "model")
    assert Classifier.load(tmp_path).predict(["cat and tea"]) == learned.predict(["cat and tea"])


def test_going_on_with_a_new_label_keeps_the_rows_of_the_others(learned: Classifier) -> None:
    new = Corpus.of(["spoon fork knife", "cat and tea"] * 20, [["tools"], ["animals", "drinks"]] * 20)
    options = {**SMALL, "encoder_rate": 0.0, "head_rate": 0.0, "weight_decay": 0.0, "epochs": 1}
    later = Classifier("sgm", options).continue_from(learned).fit(new)
    assert later.labels.names == (*learned.labels.names, "tools")
    before, after = learned.model.state()["weights"], later.model.state()["weights"]
    grown = {name for name in after if after[name].shape != before[name].shape}
    assert grown == {"decoder.labels", "decoder.output.weight", "decoder.output.bias"}
    assert all((after[name][: len(before[name])] == before[name]).all() for name in before)


def test_going_on_keeps_the_order_and_the_longest_sequence_of_the_earlier_run(tmp_path: Path) -> None:
    """In the new documents other labels are frequent, and label sets are small; a new label follows the known ones."""
    own = LabelSet(["a", "b", "c"])
    old = Corpus.of(["x y", "y z", "z"] * 10, [["a", "b", "c"], ["b", "c"], ["c"]] * 10, label_set=own)
    first = Classifier("sgm", {**SMALL, "epochs": 1}).fit(old)
    first.save(tmp_path)
    new = Corpus.of(["x", "y", "w"] * 12, [["a"], ["a"], ["new"]] * 11 + [["a"], ["b"], ["new"]])
    for earlier in (first, Classifier.load(tmp_path)):
        later = Classifier("sgm", {**SMALL, "epochs": 1}).continue_from(earlier).fit(new).model
        assert isinstance(later, Sgm) and later.ranks is not None and later.labels.names == ("a", "b", "c", "new")
        assert later.longest == 3 and later.ranks.tolist() == [2, 1, 0, 3]
    given = Classifier("sgm", {**SMALL, "epochs": 1, "order": "given", "max_labels": 2}).continue_from(first).fit(new).model
    assert isinstance(given, Sgm) and given.ranks is not None and given.ranks.tolist() == [0, 1, 2, 3] and given.longest == 2


def test_an_artefact_without_ranks_can_still_be_loaded(learned: Classifier) -> None:
    """Version 0.1.0 did not save them."""
    state = {name: part for name, part in learned.model.state().items() if name != "ranks"}
    again = Sgm.from_state(learned.model.options(), learned.labels, state)
    assert again.ranks is None
    assert (again.score(["cat and tea"]).matrix.data == learned.model.score(["cat and tea"]).matrix.data).all()


def test_an_artefact_with_ends_over_words_can_still_be_loaded(learned: Classifier) -> None:
    """Version 0.1.0 trained such models; only training them is refused now."""
    again = Sgm.from_state({**learned.model.options(), "first_state": "ends"}, learned.labels, learned.model.state())
    assert again.score(["cat and tea"]).decoded is not None


# -- where the decoder starts, and how far it goes ---------------------------------------------------------------------


@pytest.mark.parametrize("first", ["ends", "layers"])
@pytest.mark.parametrize("name", ["sgm", "bert-sgm"])
def test_ends_of_an_encoder_that_has_none_are_refused_in_one_line(first: str, name: str) -> None:
    options = {**SMALL, "attention": "additive", "first_state": first, "decoder_size": 0}
    with pytest.raises(ConfigError, match=f"first_state='{first}' needs a BiLSTM") as caught:
        Classifier(name, options).fit(toy_corpus(20, 0))
    assert "\n" not in str(caught.value) and "'words'" in str(caught.value)


@pytest.mark.parametrize("first", ["ends", "layers"])
def test_both_ends_of_a_bilstm_start_the_decoder(first: str) -> None:
    trained = fitted(toy_corpus(240, 0), encoder="bilstm", first_state=first, batch_size=8)
    test = toy_corpus(60, 2)
    scores = trained.score(test.texts)
    assert scores.decoded is not None and np.abs((scores.decoded - test.truth).toarray()).sum() / test.truth.nnz < 0.35
    again = Sgm.from_state(trained.options(), trained.labels, trained.state()).score(test.texts)
    assert (again.matrix.data == scores.matrix.data).all()


def test_in_windows_the_ends_are_those_of_the_first_and_the_last_window() -> None:
    """The decoder's initial state for a text of two windows comes from its outer halves, encoded alone."""
    trained = fitted(
        toy_corpus(40, 0), encoder="bilstm", first_state="layers", layers=2, epochs=1, max_length=4, long="windows", overlap=0
    )
    assert isinstance(trained.network, SequenceNetwork)
    trained.network.eval()
    both, left, right = _batch(trained, ["cat tea oslo milk dog ferry", "cat tea oslo milk", "dog ferry"]), 1, 2
    last = trained.network(both.ids, both.mask).last
    assert last is not None
    parts = last.view(3, 4, 2, 8)  # (documents, layers * 2, directions, size)
    assert torch.allclose(parts[0, :, 0], parts[right, :, 0], atol=1e-6)
    assert torch.allclose(parts[0, :, 1], parts[left, :, 1], atol=1e-6)


def test_steps_after_the_last_end_of_a_batch_change_nothing() -> None:
    """Loss and gradients are the same if a batch knows its maximum number of labels, and fewer steps are made."""
    corpus = toy_corpus(240, 0)
    trained = fitted(corpus, encoder="bilstm", first_state="ends", dropout=0.0, epochs=1)
    assert isinstance(trained.network, SequenceNetwork) and trained.tokens is not None and trained.longest == 4
    data = Documents(
        tokenise(trained.tokens, corpus.texts), trained._layout(), torch.device("cpu"), corpus.truth, label_multiple=2
    )
    rows = np.flatnonzero(np.diff(corpus.truth.indptr) <= 2)[:9]
    steps: list[int] = []
    teacher = trained.network.decoder.teacher
    trained.network.decoder.teacher = lambda *told: steps.append(told[2].shape[1]) or teacher(*told)  # type: ignore
    found = []
    for most in (0, data.most_labels(rows)):
        loss = trained._loss(trained.network, data.batch(torch.from_numpy(rows), *data.shape(rows), most))
        found.append([loss, *torch.autograd.grad(loss, list(trained.network.parameters()))])
    assert steps == [5, 3]
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*found, strict=True))


def test_going_on_with_another_decoder_is_refused(learned: Classifier) -> None:
    with pytest.raises(ConfigError, match=r"another network|other sizes"):
        Classifier("sgm", {**SMALL, "decoder_size": 24}).continue_from(learned).fit(toy_corpus(30, 4))


def test_a_step_asks_the_host_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the device without data that torch has for this, anything that needs a value fails: so a step can be captured."""
    trained = fitted(toy_corpus(60, 0), epochs=1, order="random", global_embedding="adaptive")
    assert trained.network is not None and all(getattr(m, "capturable", True) for m in trained.network.modules())
    network = trained.network.to("meta").train()
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())  # which knows real devices only
    ids = torch.zeros(3, 7, dtype=torch.long, device="meta")
    batch = Batch(ids[:, 0], ids, ids == 0, torch.ones(3, 4, device="meta"))
    loss = trained._loss(network, batch)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.device.type == "meta" and loss.shape == ()
