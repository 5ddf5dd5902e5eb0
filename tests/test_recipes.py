"""The recipes that come with the project: each reads strictly, builds its model, and says where its numbers come from."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from polytag.config.recipe import Recipe, build_model
from polytag.errors import ConfigError
from polytag.models.model import MODELS, model_name

ROOT = Path(__file__).resolve().parent.parent
RECIPES = sorted((ROOT / "recipes").glob("*.toml"))
# What the papers state, by recipe; SGM's section 3.3 and sections 4.2 and 4.3 of the BERT paper.
ADAM_OF_SGM = {"encoder_rate": 1e-3, "head_rate": 1e-3, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "clip": 10.0}
ADAM_OF_BERT = {"encoder_rate": 2e-5, "head_rate": 2e-5, "beta1": 0.9, "beta2": 0.99, "batch_size": 16, "pooling": "cls"}
SIZES_OF_SGM = {**ADAM_OF_SGM, "encoder": "bilstm", "max_length": 500, "hidden": 256, "layers": 2, "decoder_size": 512}
STATED: dict[str, dict[str, Any]] = {
    "sgm-rcv1": {**SIZES_OF_SGM, "vocabulary": 50_000, "embedding": 512, "decoder_layers": 2, "beam": 5, "order": "frequency"},
    "sgm-aapd": {**SIZES_OF_SGM, "vocabulary": 30_000, "embedding": 256, "decoder_layers": 1, "beam": 9, "order": "frequency"},
    "bert-sgm-paper": {
        **{name: value for name, value in ADAM_OF_BERT.items() if name != "pooling"},
        "preprocess": "spaced",
        "first_state": "cls",
        "attention": "dot",
        "query": "old",
        "mask_repeats": True,
    },
    "bert-paper-reuters": {**ADAM_OF_BERT, "epochs": 30, "preprocess": "spaced", "schedule": "linear"},
    "bert-paper-aapd": {**ADAM_OF_BERT, "epochs": 20, "preprocess": "spaced", "schedule": "linear"},
    "bert-laco": {"batch_size": 32, "max_length": 320, "encoder_rate": 5e-5, "head_rate": 5e-5},
    "laco-paper": {"batch_size": 32, "max_length": 320, "encoder_rate": 5e-5, "head_rate": 5e-5, "window": 10, "gamma": 0.5},
    "seqtag": {"batch_size": 32, "max_length": 320, "encoder_rate": 5e-5, "head_rate": 5e-5},
    "cnn-sgm-rcv1": {**ADAM_OF_SGM, "vocabulary": 50_000, "embedding": 512, "max_length": 500, "convolutions": 1},
    "cnn-sgm-aapd": {**ADAM_OF_SGM, "vocabulary": 30_000, "embedding": 256, "max_length": 500, "convolutions": 1},
    "cnn-bert-paper": {"convolutions": 2},
    "xbert": {"pooling": "cls", "index": "text", "warmup": 0.2, "max_words": 300, "preprocess": "spaced-numbers"},
    "xttention": {"hidden": 512, "attention_size": 350, "heads": 30, "dense": 2000, "vocabulary": 80_000, "max_words": 300},
    "xlinear": {"max_leaf": 100, "c": 1.0, "ngrams": 1},
}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_reads_strictly_and_builds_its_model(path: Path) -> None:
    written = tomllib.loads(path.read_text(encoding="utf-8"))
    recipe = Recipe.read(path)
    model = build_model(recipe)
    named = max((name for name in MODELS if f"{path.stem}-".startswith(f"{name}-")), key=len)
    assert model_name(model) == written["model"] == named
    assert written["options"], "a recipe without settings says nothing"
    assert {name: model.options()[name] for name in written["options"]} == written["options"]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_comes_back_from_the_file_that_a_run_keeps(path: Path, tmp_path: Path) -> None:
    recipe = Recipe.read(path)
    recipe.write(tmp_path / "recipe.toml")
    assert Recipe.read(tmp_path / "recipe.toml") == recipe


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_says_which_section_of_which_paper_or_that_it_is_ours(path: Path) -> None:
    comment = " ".join(line[1:].strip() for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#"))
    assert "tuned" in path.stem or any(word in comment.lower() for word in ("section", "3.1", "4.2"))
    assert ("Our setting" in comment) == ("tuned" in path.stem)
    assert ("our default" in comment) != ("tuned" in path.stem), "what a paper does not give is named"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_with_a_misspelt_setting_is_refused(path: Path, tmp_path: Path) -> None:
    changed = tmp_path / path.name
    changed.write_text(path.read_text(encoding="utf-8") + "batchsize = 3\n", encoding="utf-8")
    linear = path.stem in ("xlinear", "mixed-labels-tuned")  # those without batches
    close = "known: seed" if linear else "did you mean 'batch_size'"
    with pytest.raises(ConfigError, match=rf"no option 'batchsize'; {close}"):
        Recipe.read(changed)


@pytest.mark.parametrize("name", STATED)
def test_a_papers_numbers_reach_the_model(name: str) -> None:
    options = build_model(Recipe.read(ROOT / "recipes" / f"{name}.toml")).options()
    assert {key: options[key] for key in STATED[name]} == STATED[name]


def test_every_recipe_is_described() -> None:
    page = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("neural.md", "extreme.md"))
    assert len(RECIPES) >= 8
    assert [path.name for path in RECIPES if f"(../recipes/{path.name})" not in page] == []
