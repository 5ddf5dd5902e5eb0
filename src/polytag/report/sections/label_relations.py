"""Labels together: correlation, co-occurrence, combinations, and the map."""

from __future__ import annotations

from collections import Counter

from polytag.analysis.combinations import combinations
from polytag.analysis.label_map import LabelMap, Method, co_occurrence_vectors, label_map
from polytag.analysis.label_pairs import co_occurrence, correlations
from polytag.errors import DataError
from polytag.report.chart import COLOURS, Chart, Heat, Series
from polytag.report.data_table import DataTable, Rows
from polytag.report.draft import Draft
from polytag.report.evidence import Evidence
from polytag.report.markup import paragraph

_SHOWN = 20
_METHODS = {"tsne": "t-SNE", "umap": "UMAP", "pca": "principal components"}


def add_relations(draft: Draft, evidence: Evidence) -> None:
    """Whether the predicted labels come together as the true ones do."""
    if not evidence.tested:
        return
    part = draft.section("Labels that come together")
    run, out = evidence.tested[-1]
    found = correlations(out.truth, out.labels.names, out.predicted, shown=_SHOWN)
    if len(found.labels) > 2:
        true = Heat("Correlation of the true labels", found.labels, found.matrix, "phi", _PHI)
        assert found.predicted_matrix is not None
        mine = Heat(f"Correlation of the labels that {run.name} predicts", found.labels, found.predicted_matrix, "phi", _SAME)
        part.add(draft.figures(true, mine))
    rows: Rows = []
    for name, own in ((run.name, co_occurrence(out.truth, out.predicted)) for run, out in evidence.tested):
        rows.append([name, own.kl, own.common_kl, own.pairs, own.missing])
    header = ["run", "KL per label", "KL of common pairs", "true pairs", "never predicted"]
    part.add(draft.table(DataTable("Conditional co-occurrence, truth against predictions", header, rows), _KL))
    _add_combinations(draft, evidence)


_PHI = "Blue pairs come together more often than by chance, orange ones exclude each other; these are the most frequent labels."
_SAME = "The more this picture looks like that of the true labels, the better the model has learned which labels belong together."
_KL = "The nearer KL is to 0, the more the predicted labels come together as the true ones do."
_COMBINATIONS = (
    "An unseen set is one that no training document has. A model with few different sets, none of them new, repeats the sets of "
    "training."
)


def _add_combinations(draft: Draft, evidence: Evidence) -> None:
    part = draft.page.sections[-1]
    if evidence.train is None:
        part.add(paragraph("Sets of labels are not counted: the training documents are not where they were.", kind="note"))
        return
    rows: Rows = []
    for run, out in evidence.tested:
        own = combinations(out.truth, out.predicted, evidence.train, out.labels.names)
        rows.append(
            [run.name, own.predicted, own.true, own.unseen_predicted, own.unseen_true, own.seen_accuracy, own.unseen_accuracy]
        )
    header = ["run", "sets predicted", "sets true", "unseen predicted", "unseen true", "exact, seen", "exact, unseen"]
    part.add(draft.table(DataTable("Different sets of labels", header, rows), _COMBINATIONS))


# -- the map -----------------------------------------------------------------------------------------------------------


def add_map(draft: Draft, evidence: Evidence, method: Method = "auto") -> None:
    """Labels as points; similar ones are near each other."""
    run = evidence.last
    vectors, source = run.vectors, "what the model learned about each label"
    if vectors is None and evidence.train is not None and run.outcome is not None:
        vectors, source = (
            co_occurrence_vectors(evidence.train)[: len(run.labels)],
            "which labels training documents have together",
        )
    if vectors is None:
        return
    try:
        found = label_map(vectors, run.labels, run.train_counts, method=method, seed=evidence.seed)
    except DataError:
        return
    part = draft.section("Label map", f"Labels of {run.name} in two dimensions by {_METHODS[found.method]}, from {source}.")
    part.add(draft.figure(map_chart(found)))
    left = (
        f" {found.left_out:,} labels without vectors or beyond the most frequent ones are not on the map."
        if found.left_out
        else ""
    )
    part.add(
        paragraph(f"Of the ten nearest labels, {found.kept:.0%} are still among the ten nearest on the map.{left}", kind="note")
    )


def map_chart(found: LabelMap) -> Chart:
    """The map as a chart: the largest branches of the tree in colour, the others in grey."""
    sizes = Counter(found.groups)
    largest = [name for name, _ in sizes.most_common(COLOURS - (len(sizes) > COLOURS)) if name]
    groups = [*largest, *([None] if len(sizes) > len(largest) else [])]
    series = []
    for group in groups:
        rows = [i for i, name in enumerate(found.groups) if (name == group if group is not None else name not in largest)]
        name = group or ("other branches" if largest else "labels")
        x, y = found.places[rows, 0].tolist(), found.places[rows, 1].tolist()
        series.append(Series(name, x, y, names=[found.names[i] for i in rows]))
    meaning = (
        "Each point is a label; hover for its name. Near points are labels that the model treats alike; "
        + (
            "colours are branches of the label tree, so a cluster of one colour means that it found the branch. "
            if largest
            else ""
        )
        + "Positions and distances between far points mean nothing."
    )
    return Chart("point", "Label map", "", "", series, meaning, axes=False)
