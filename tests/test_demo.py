"""The demo prints what was measured, and shows documents with right, wrong and missed labels marked as such."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from conftest import Toy
from polytag.classifier import Classifier
from polytag.cli import demo
from polytag.cli.demo import Example, example_view, pick_examples, results_table, train_and_measure


def printed(what: object) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_demo_prints_the_metrics_of_every_model_and_the_documents_asked_for(toy: Toy, br: Classifier) -> None:
    console = Console(file=io.StringIO(), width=120)
    results = demo.demo(["br", "lp"], (toy.train, toy.valid, toy.test), console, examples=2)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    expected = br.evaluate(toy.test)  # the same data and seed as in the fixture: the same numbers
    for key in demo.MEASURED:
        assert results[0].metrics[key] == pytest.approx(expected[key])
        assert f"{expected[key]:.4f}" in text
    rows = [line.split()[0] for line in text.splitlines() if line.startswith(("br ", "lp "))]
    assert rows == ["br", "lp"]
    shown = pick_examples(results[0].classifier, toy.test, 2)
    assert len(shown) == 2 and all(f"\n{example.id}\n" in text for example in shown)


def test_a_model_that_takes_long_is_shortened_and_the_demo_says_how(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = {"encoder": "words", "embedding": 8, "max_length": 7, "epochs": 1}
    monkeypatch.setitem(demo.SHORTENED, "bert", demo.Shortened(tiny, 100))
    console = Console(file=io.StringIO(), width=120)
    results = demo.demo(["bert"], tuple(toy), console, examples=0)
    assert isinstance(console.file, io.StringIO)
    words = "bert: encoder=words, embedding=8, max_length=7, epochs=1, at most 100 training documents"
    assert f"({words})" in console.file.getvalue()
    assert {key: results[0].classifier.model.options()[key] for key in tiny} == tiny
    assert results[0].classifier.training["documents"] == 100 + len(toy.valid)


@pytest.mark.parametrize("name", demo.SHORTENED)
def test_the_shortened_models_have_settings_that_exist(name: str) -> None:
    assert Classifier(name, demo.SHORTENED[name].options).recipe.options == demo.SHORTENED[name].options


def test_without_the_neural_packages_one_line_says_so_and_br_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=120)
    assert isinstance(console.file, io.StringIO)
    assert demo.default_models(console) == ["br", "embed", "bert"] and console.file.getvalue() == ""
    monkeypatch.setattr(demo.importlib.util, "find_spec", lambda name: None if name == "torch" else object())
    assert demo.default_models(console) == ["br"]
    said = console.file.getvalue()
    assert said.count("\n") == 1 and said.startswith("embed and bert need torch; install polytag[nn]")


def test_examples_are_test_documents_with_what_the_classifier_says_about_them(toy: Toy, br: Classifier) -> None:
    examples = pick_examples(br, toy.test, 3)
    truth = dict(zip(toy.test.ids, toy.test.label_lists(), strict=True))
    assert len({example.id for example in examples}) == 3
    for example in examples:
        assert example.text == toy.test.texts[toy.test.ids.index(example.id)]
        assert [name for name, _ in example.predicted] == br.predict([example.text])[0]
        assert all(0 <= score <= 1 for _, score in example.predicted)
        assert example.truth == truth[example.id]


def test_there_are_never_more_examples_than_documents(toy: Toy, br: Classifier) -> None:
    assert len(pick_examples(br, toy.test.subset([4, 5]), 10)) == 2
    assert pick_examples(br, toy.test, 0) == []


def test_right_wrong_and_missed_labels_are_told_apart() -> None:
    example = Example("7", "cod  and\nherring " * 40, [("fish", 0.91), ("trade", 0.4)], ["fish", "weather"])
    lines = printed(example_view(example)).splitlines()
    marks = {words[1]: (words[0], words[2]) for words in map(str.split, lines) if words and words[0] in "+-?"}
    assert marks == {"fish": ("+", "0.91"), "trade": ("-", "0.40"), "weather": ("?", "missed")}
    assert "cod and herring" in lines[1]
    assert sum(len(line.strip()) for line in lines) < demo.EXCERPT + 100  # a long text is cut


def test_the_best_of_several_models_is_bold_and_a_single_one_is_not(toy: Toy) -> None:
    one = train_and_measure("br", *toy)
    worse = demo.Result("lp", one.classifier, {key: value / 2 for key, value in one.metrics.items()}, 1.0, 1.0)
    cells = list(results_table([worse, one]).columns[1].cells)
    assert [str(getattr(cell, "style", "")) for cell in cells] == ["", "bold"]
    assert [str(getattr(cell, "style", "")) for cell in results_table([one]).columns[1].cells] == [""]


def test_the_command_trains_what_it_is_told_and_a_misspelt_model_is_one_line(
    toy: Toy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "load_sample", lambda: tuple(toy))
    assert demo.main(["lp", "--examples", "1"]) == 0
    assert "labelled by lp" in capsys.readouterr().out
    assert demo.main(["bx"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("polytag: there is no model 'bx'; ") and said.count("\n") == 1
