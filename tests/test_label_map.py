"""The label map: projections against scikit-learn, neighbours against brute force, vectors from models and from documents."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from polytag.analysis.label_map import co_occurrence_vectors, label_map
from polytag.classifier import Classifier
from polytag.errors import ConfigError, DataError
from polytag.labels import LabelSet
from polytag.report.sections.label_relations import map_chart

GENERATOR = np.random.default_rng(0)
NAMES = LabelSet([f"l{i}" for i in range(40)], parents={f"l{i}": f"l{i % 4}" for i in range(4, 40)})
CENTRES = GENERATOR.normal(size=(4, 30)) * 4
VECTORS = CENTRES[np.arange(40) % 4] + GENERATOR.normal(size=(40, 30))
ONES = np.ones(40, dtype=int)


def test_principal_components_are_those_of_scikit_learn() -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    unit = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)
    expected = decomposition.PCA(2).fit_transform(unit)
    places = label_map(VECTORS, NAMES, ONES, method="pca").places
    for at in range(2):
        assert np.allclose(places[:, at], expected[:, at]) or np.allclose(places[:, at], -expected[:, at])
    assert (places[np.abs(places).argmax(axis=0), [0, 1]] > 0).all()


def test_the_share_of_kept_neighbours_is_that_of_a_loop() -> None:
    found = label_map(VECTORS, NAMES, ONES, method="pca")
    unit = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)
    shares = []
    for i in range(40):
        near = [sorted(range(40), key=lambda j: np.linalg.norm(space[i] - space[j]))[1:11] for space in (unit, found.places)]
        shares.append(len(set(near[0]) & set(near[1])) / 10)
    assert found.kept == pytest.approx(np.mean(shares))


@pytest.mark.parametrize("method", ["tsne", "umap", "auto"])
def test_branches_that_lie_apart_stay_apart_and_the_seed_decides(method: str) -> None:
    pytest.importorskip({"tsne": "sklearn", "umap": "umap"}.get(method, "numpy"))
    if method == "umap":
        pytest.skip("its compilation takes a minute; tested by make test-services")
    found = label_map(VECTORS, NAMES, ONES, method=method)  # type: ignore[arg-type]
    distances = np.linalg.norm(found.places[:, None] - found.places[None], axis=2) + np.diag([np.inf] * 40)
    nearest = [found.groups[j] for j in distances.argmin(axis=1).tolist()]
    assert nearest == list(found.groups)
    assert np.array_equal(found.places, label_map(VECTORS, NAMES, ONES, method=method).places)  # type: ignore[arg-type]


def test_labels_without_documents_or_vectors_and_the_rarest_are_left_out() -> None:
    counts, vectors = np.arange(40), VECTORS.copy()
    vectors[39] = 0
    found = label_map(vectors, NAMES, counts, method="pca", most=10)
    assert found.names == tuple(f"l{i}" for i in range(29, 39))
    assert found.left_out == 30
    with pytest.raises(DataError, match="at least three labels"):
        label_map(vectors, NAMES, np.eye(40, dtype=int)[0], method="pca")


def test_mistakes_are_named() -> None:
    with pytest.raises(ConfigError, match="no projection 'som'; known: auto, umap, tsne, pca"):
        label_map(VECTORS, NAMES, ONES, method="som")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="40 labels, 39 vectors"):
        label_map(VECTORS[1:], NAMES, ONES, method="pca")


def test_without_the_extra_the_message_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs the extra 'report': pip install 'polytag\[report\]'"):
        label_map(VECTORS, NAMES, ONES, method="umap")
    assert label_map(VECTORS, NAMES, ONES).method == "pca"


def test_many_small_weights_do_not_move_the_map_much() -> None:
    """Only the largest thousand weights of a label count."""
    noise = random_array((40, 30_000), density=0.1, rng=np.random.default_rng(1), data_sampler=lambda size: np.full(size, 1e-4))
    wide = csr_array(np.hstack([VECTORS, noise.toarray()]))
    assert np.allclose(
        label_map(wide, NAMES, ONES, method="pca").places, label_map(VECTORS, NAMES, ONES, method="pca").places, atol=0.01
    )


def test_co_occurrence_vectors_are_positive_mutual_information() -> None:
    truth = csr_array((np.random.default_rng(2).random((50, 6)) < 0.4).astype(np.float32))
    dense, found = truth.toarray().astype(float), co_occurrence_vectors(truth).toarray()
    for a in range(6):
        for b in range(6):
            both, one, other = (dense[:, a] * dense[:, b]).mean(), dense[:, a].mean(), dense[:, b].mean()
            assert found[a, b] == pytest.approx(max(0.0, np.log(both / (one * other))) if both else 0.0)


def test_a_linear_model_gives_the_weights_of_its_separators(br: Classifier) -> None:
    vectors = br.model.label_vectors()
    assert vectors is not None and vectors.shape[0] == len(br.labels)
    features = br.model._rows(["trawler cod net"])  # type: ignore[attr-defined]
    margins = (features @ vectors.T).toarray()[0] + br.model.trained.bias  # type: ignore[attr-defined]
    assert np.allclose(margins, br.model.score(["trawler cod net"]).matrix.toarray()[0], atol=1e-5)


def test_a_network_gives_the_rows_of_its_output_layer() -> None:
    torch = pytest.importorskip("torch")
    from toys import toy_corpus

    options = {"encoder": "words", "embedding": 8, "epochs": 1, "device": "cpu", "precision": "fp32"}
    classifier = Classifier("bert", options).fit(toy_corpus(40))
    vectors = classifier.model.label_vectors()
    assert vectors is not None and vectors.shape == (4, 8)
    assert np.array_equal(vectors, classifier.model.network.output.weight.detach().numpy())  # type: ignore[attr-defined]
    assert isinstance(classifier.model.network, torch.nn.Module)  # type: ignore[attr-defined]


def test_the_chart_has_every_label_once_and_the_largest_branches_in_colour() -> None:
    labels = LabelSet([f"l{i}" for i in range(60)], parents={f"l{i}": f"l{i % 12}" for i in range(12, 60)})
    vectors = np.random.default_rng(3).normal(size=(60, 5))
    chart = map_chart(label_map(vectors, labels, np.ones(60, dtype=int), method="pca"))
    assert len(chart.series) == 8 and chart.series[-1].name == "other branches"
    assert sorted(name for one in chart.series for name in one.names) == sorted(labels)
    flat = LabelSet([f"l{i}" for i in range(60)])
    assert [one.name for one in map_chart(label_map(vectors, flat, np.ones(60, dtype=int), method="pca")).series] == ["labels"]
