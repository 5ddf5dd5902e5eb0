"""The service: routes answer what the classifier says, wrong input is a problem, and nothing of a request reaches the disk."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")
import httpx

from polytag import Classifier, LabelSet
from polytag.server.access import Tokens
from polytag.server.app import create_app
from polytag.server.hosting.hosted_model import HostedModel
from polytag.server.hosting.label_search import LabelSearch
from polytag.server.hosting.model_shelf import Shelf
from polytag.server.limits import Limits
from polytag.server.service import Service

TEXTS = ["fish quotas in the north sea", "a python library for web servers", "", "wheat exports fell \U0001f41f again"]


def trained(seed: int = 0) -> Classifier:
    words = {"fish": "fisheries", "wheat": "grain", "python": "software", "sea": "oceans"}
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(120):
        chosen = rng.choice(list(words), size=int(rng.integers(1, 3)), replace=False)
        texts.append(" ".join([*chosen, *rng.choice(["the", "a", "of", "again"], size=4)]))
        labels.append([words[word] for word in chosen])
    return Classifier("br", {"c": [1.0]}).fit(texts, labels)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place = tmp_path_factory.mktemp("runs")
    for seed, name in enumerate(("first", "second")):
        trained(seed).save(place / name)
    return [place / "first", place / "second"]


@pytest.fixture(scope="module")
def service(folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Service:
    database = tmp_path_factory.mktemp("store") / "corrections.db"
    return Service(
        Shelf.load(folders, Limits(texts=50, text=5_000)), Limits(texts=50, text=5_000), Tokens(), f"sqlite:///{database}"
    )


class Client:
    """Calls the application in this process, one request per event loop."""

    def __init__(self, service: Service) -> None:
        self.app = create_app(service)

    def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        import asyncio

        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.request(method, path, **options)

        return asyncio.run(call())

    def predict(self, **request: Any) -> dict[str, Any]:
        answer = self("POST", "/v1/predict", json=request)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    yield Client(service)


def test_predict_answers_what_the_classifier_says(client: Client, folders: list[Path]) -> None:
    for folder in folders:
        direct = Classifier.load(folder)
        rows = [prediction for _, prediction in direct.stream((None, text) for text in TEXTS)]
        found = client.predict(texts=TEXTS, model=folder.name)
        assert found["model"] == folder.name
        assert [row["labels"] for row in found["predictions"]] == [row.labels for row in rows]
        for one, other in zip(found["predictions"], rows, strict=True):
            assert one["scores"] == pytest.approx(other.scores, abs=1e-6)
            assert set(one) == {"labels", "scores"}


def test_top_ask_and_floor_are_those_of_the_library(client: Client, folders: list[Path]) -> None:
    direct = Classifier.load(folders[0])
    found = client.predict(texts=TEXTS, top=2, ask=0.4, floor=0.1)["predictions"]
    rows = [prediction for _, prediction in direct.stream(((None, text) for text in TEXTS), top=2, ask=0.4)]
    assert [(one["labels"], one["ask"]) for one in found] == [(row.labels, row.ask) for row in rows]
    above = [[name for name, value in row if value >= 0.1] for row in direct.scores(TEXTS).top(4)]
    assert [one["candidates"]["labels"] for one in found] == above


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (b"", 400, "JSON"),
        (b"{", 400, "JSON"),
        (b"[" * 100_000, 422, "object"),
        (b'{"texts": "one"}', 422, "texts"),
        (b'{"texts": [1]}', 422, "texts"),
        (b'{"texts": ["a"], "top": 0}', 422, "top"),
        (b'{"texts": ["a"], "tops": 1}', 422, "tops"),
        (b'{"texts": ["a"], "model": "none"}', 404, "first"),
        (b'{"texts": ["a"], "ask": "precision=2"}', 422, "precision"),
        (b'{"texts": ["\xff"]}', 400, "JSON"),
        (json.dumps({"texts": ["a"] * 51}).encode(), 413, "50"),
        (json.dumps({"texts": ["a" * 5_001]}).encode(), 413, "5,000"),
    ],
)
def test_wrong_input_is_a_problem(client: Client, body: bytes, status: int, word: str) -> None:
    answer = client("POST", "/v1/predict", content=body)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert word in answer.json()["detail"]


def test_a_huge_body_is_refused_before_it_is_read(service: Service) -> None:
    small = Service(service.shelf, Limits(body=1_000), Tokens())
    assert Client(small)("POST", "/v1/predict", content=b"x" * 1_001).status_code == 413
    assert Client(small)("POST", "/v1/explain", content=b"x" * 1_001).status_code == 413


def test_explain_gives_the_words_of_the_library(client: Client, folders: list[Path]) -> None:
    answer = client("POST", "/v1/explain", json={"text": TEXTS[0], "labels": ["grain"]}).json()
    assert answer["labels"] == Classifier.load(folders[0]).explain(TEXTS[0], ["grain"]).to_json()["labels"]
    assert client("POST", "/v1/explain", json={"text": "a", "labels": ["none"]}).status_code == 422


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics", "/v1/models", "/openapi.json", "/"])
def test_every_answer_has_a_strict_policy_and_no_cors(client: Client, path: str) -> None:
    answer = client("GET", path)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("path", ["/../pyproject.toml", "/%2e%2e/app.py", "//etc/passwd", "/..%2f..%2fapp.py", "/app.py"])
def test_no_path_reaches_the_file_system(client: Client, path: str) -> None:
    assert client("GET", path).status_code == 404


def test_pages_of_other_origins_cannot_post(client: Client) -> None:
    for path in ("/v1/predict", "/v1/corrections"):
        assert client("POST", path, json={"texts": []}, headers={"Origin": "http://elsewhere.test"}).status_code == 403
    assert client("POST", "/v1/predict", json={"texts": []}, headers={"Origin": "http://localhost"}).status_code == 200


# -- label search ------------------------------------------------------------------------------------------------------


def test_label_search_finds_what_a_scan_finds() -> None:
    rng = np.random.default_rng(0)
    names = sorted({"".join(rng.choice(list("abc -"), size=6)).strip() or "a" for _ in range(300)})
    counts = rng.integers(0, 50, len(names))
    search = LabelSearch(LabelSet(names), counts)
    for query in ("a", "ab", "c a", "A-", "bca", "zz"):
        wanted = query.casefold()
        plain = [" ".join(name.split()) for name in names]
        hits = {number for number, name in enumerate(plain) if wanted in name}
        found = search.find(query, 1_000)
        assert set(found) == hits
        starts = [number for number in found if plain[number].startswith(wanted)]
        assert found[: len(starts)] == sorted(starts, key=lambda number: (names[number] != query, -counts[number], number))


def test_label_search_over_35_000_labels_is_fast_enough_to_type_with() -> None:
    rng = np.random.default_rng(1)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz  -"))
    names = sorted({"".join(rng.choice(letters, size=20)) for _ in range(35_000)})
    search = LabelSearch(LabelSet(names), rng.integers(0, 9, len(names)))
    search.find("a", 1)
    times = []
    for query in ("a", "e", "ab", "th", " x", "zzzz", ""):
        start = time.process_time()
        search.find(query, 20)
        times.append(time.process_time() - start)
    assert max(times) < 0.05


def test_the_tree_can_be_browsed() -> None:
    labels = LabelSet(["a", "b", "c", "d"], parents={"b": "a", "c": "a", "d": "c"})
    search = LabelSearch(labels, np.array([4, 1, 2, 1]))
    assert [search.record(number)["name"] for number in search.children(None)] == ["a"]
    assert [search.record(number).get("children") for number in search.children("a")] == [None, 1]


# -- versions ----------------------------------------------------------------------------------------------------------


def test_a_new_version_is_swapped_in_and_back(tmp_path: Path) -> None:
    trained(0).save(tmp_path / "one")
    shelf = Shelf.load([tmp_path / "one"], Limits())
    client = Client(Service(shelf, Limits(), Tokens(), f"sqlite:///{tmp_path / 'c.db'}"))
    before = client.predict(texts=TEXTS)
    assert client("POST", "/v1/admin/models/one/reload").json()["version"] == before["version"]
    assert client("POST", "/v1/admin/models/one/back").status_code == 409
    trained(5).save(tmp_path / "one")
    assert client.predict(texts=TEXTS) == before
    version = client("POST", "/v1/admin/models/one/reload").json()["version"]
    assert version == HostedModel.load(tmp_path / "one").version != before["version"]
    assert client.predict(texts=TEXTS)["version"] == version
    client("POST", "/v1/admin/models/one/back")
    assert client.predict(texts=TEXTS) == before


# -- corrections -------------------------------------------------------------------------------------------------------


def correct(client: Client, key: str | None = None, **correction: Any) -> httpx.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return client("POST", "/v1/corrections", json=correction, headers=headers)


def test_a_correction_is_stored_once_per_key_and_undone(client: Client) -> None:
    said = {"text": "new fish", "added": ["fisheries"], "user": "ann"}
    first = correct(client, "k1", **said)
    again = correct(client, "k1", **said)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert correct(client, "k1", **{**said, "added": ["grain"]}).status_code == 409
    number = first.json()["id"]
    undone = client("DELETE", f"/v1/corrections/{number}").json()
    assert undone["undone"] is not None
    assert client("DELETE", f"/v1/corrections/{number}").json() == undone
    assert client("GET", f"/v1/corrections/{number}").json() == undone
    assert client("DELETE", "/v1/corrections/999999").status_code == 404
    assert "new fish" not in client("GET", "/v1/corrections/export").text


def test_people_who_disagree_are_shown_and_not_overwritten(client: Client) -> None:
    correct(client, text="old sea", accepted=["oceans"], added=["grain"], user="ann")
    correct(client, text="old sea", accepted=["oceans"], removed=["grain"], user="bob")
    found = client("GET", "/v1/corrections/disagreements").json()["texts"]
    assert [one["labels"] for one in found if one["text"] == "old sea"] == [{"grain": {"for": ["ann"], "against": ["bob"]}}]
    assert "old sea" not in client("GET", "/v1/corrections/export").text
    lines = [json.loads(line) for line in client("GET", "/v1/corrections/export?disputed=true").text.splitlines()]
    assert [line["labels"] for line in lines if line["text"] == "old sea"] == [["oceans"]]
    correct(client, text="old sea", accepted=["grain"], user="bob")
    lines = [json.loads(line) for line in client("GET", "/v1/corrections/export").text.splitlines()]
    assert [line["labels"] for line in lines if line["text"] == "old sea"] == [["oceans", "grain"]]


def test_corrections_survive_odd_text(client: Client) -> None:
    assert correct(client, text="nul \0 \ufffe \U0001f41f", added=["\0"], user="\0").status_code == 201
    half = {"content": b'{"text": "half \\ud83d"}', "headers": {"Content-Type": "application/json"}}
    assert client("POST", "/v1/corrections", **half).status_code == 422
    assert client("GET", "/v1/corrections").status_code == 200


# -- what the page needs -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def paged(folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Client:
    from polytag import Corpus
    from polytag.formats.document import Document
    from polytag.server.hosting.evaluation_set import EvaluationSet
    from polytag.server.hosting.labelling_queue import LabellingQueue

    texts = ["fish of the sea", "wheat", "python again the fish", "sea sea", "of the again", "wheat python"] * 5
    truth = [["fisheries"], ["grain", "oceans"], ["software", "fisheries"], ["oceans"], [], ["grain"]] * 5
    pool = [Document(str(at), f"text {at} {word}") for at, word in enumerate(["fish", "wheat", "nothing", "python sea"] * 3)]
    return Client(
        Service(
            Shelf.load(folders, Limits()),
            Limits(),
            Tokens(),
            f"sqlite:///{tmp_path_factory.mktemp('paged') / 'c.db'}",
            evaluation=EvaluationSet(Corpus.of(texts, truth)),
            queue=LabellingQueue(pool),
        )
    )


def test_errors_are_those_of_the_predicted_sets(paged: Client, folders: list[Path]) -> None:
    found = paged("GET", "/v1/models/first/errors?limit=1000").json()
    predicted = {text: Classifier.load(folders[0]).predict([text])[0] for text in {row["text"] for row in found["errors"]}}
    assert found["documents"] == 30 and found["errors"]
    for row in found["errors"]:
        assert set(row["wrong"]) == set(predicted[row["text"]]) - set(row["labels"])
        assert set(row["missed"]) == set(row["labels"]) - set(predicted[row["text"]])


def test_a_promise_gives_a_threshold_that_keeps_it(paged: Client) -> None:
    low, high = (paged("GET", f"/v1/models/first/promise?goal=recall={level}").json() for level in (0.5, 0.8))
    assert low["threshold"] >= high["threshold"]
    assert high["recall"] >= 0.8
    assert paged("GET", "/v1/models/first/promise?goal=nonsense").status_code == 422


def test_the_map_has_every_label_with_documents(paged: Client) -> None:
    points = paged("GET", "/v1/models/first/map").json()["points"]
    assert {point["label"] for point in points} == {"fisheries", "grain", "software", "oceans"}


def test_texts_to_label_next_are_unsure_and_not_yet_corrected(paged: Client, folders: list[Path]) -> None:
    first = paged("GET", "/v1/next?limit=3").json()["texts"]
    assert len({text["text"] for text in first}) == 3
    correct(paged, text=first[0]["text"], added=["grain"])
    assert first[0]["text"] not in [text["text"] for text in paged("GET", "/v1/next?limit=12").json()["texts"]]


def test_what_is_not_there_is_said(client: Client) -> None:
    for path in ("/v1/models/first/errors", "/v1/models/first/promise?goal=recall=.9", "/v1/next"):
        assert client("GET", path).status_code == 409
    assert client("GET", "/v1/models/none/map").status_code == 404
    assert client("GET", "/v1/models/first/candidate").status_code == 404
    assert client("POST", "/v1/admin/models/first/live").status_code == 409


def docx(xml: str) -> bytes:
    import io
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", xml)
    return out.getvalue()


@pytest.mark.parametrize(
    ("kind", "body", "texts"),
    [
        ("txt", "fish ü".encode(), ["fish ü"]),
        ("csv", b"id,text\n1,one\n2,two\n", ["one", "two"]),
        ("jsonl", b'{"text": "one"}\n{"text": "two"}\n', ["one", "two"]),
        ("docx", docx('<w:d xmlns:w="w"><w:p><w:r><w:t>one</w:t></w:r></w:p><w:p><w:t>two</w:t></w:p></w:d>'), ["one\ntwo"]),
    ],
)
def test_files_become_texts(client: Client, kind: str, body: bytes, texts: list[str]) -> None:
    answer = client("POST", f"/v1/extract?kind={kind}", content=body)
    assert [document["text"] for document in answer.json()["documents"]] == texts


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("docx", b"no archive"),
        ("docx", docx("<w>")),
        ("docx", docx('<!DOCTYPE d [<!ENTITY a "b">]><d>&a;</d>')),
        ("docx", docx(" " * 2_000_000)),
        ("jsonl", b"{"),
        ("csv", b"\xff\xfe"),
        ("pdf", b"%PDF-1.4 nothing"),
        ("exe", b""),
    ],
)
def test_bad_files_are_problems(client: Client, kind: str, body: bytes) -> None:
    answer = client("POST", f"/v1/extract?kind={kind}", content=body)
    assert 400 <= answer.status_code < 500
    assert "/tmp" not in answer.text


# -- the short way -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"calibrate": False}, {"min_labels": 2}, {"promise": "recall=.6"}, {"preprocess": "clean"}]
)
def test_the_short_way_answers_what_the_long_way_answers(options: dict[str, Any]) -> None:
    from polytag.server.hosting.lean_prediction import LeanPredictor

    rng = np.random.default_rng(3)
    words = [f"w{n}" for n in range(60)]
    texts = [" ".join(rng.choice(words, size=int(rng.integers(0, 12)))) for _ in range(300)]
    labels = [sorted({f"l{word[1]}" for word in text.split()}) for text in texts]
    classifier = Classifier("br", {"c": [1.0], **options}).fit(texts, labels)
    lean = LeanPredictor.of(classifier)
    assert lean is not None
    for size in (1, 7, 300):
        found = lean.predict(texts[:size])
        rows = [row for _, row in classifier.stream((None, text) for text in texts[:size])]
        assert [one.labels for one in found] == [row.labels for row in rows]
        assert [one.scores for one in found] == [row.scores for row in rows]


@pytest.mark.parametrize("model", ["lp", "cc", "xlinear"])
def test_other_models_have_no_short_way(model: str) -> None:
    from polytag.server.hosting.lean_prediction import LeanPredictor

    texts, labels = ["fish sea", "wheat", "fish", "sea wheat"] * 10, [["a", "b"], ["c"], ["a"], ["b", "c"]] * 10
    assert LeanPredictor.of(Classifier(model).fit(texts, labels)) is None


# -- who may do what ---------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(service: Service, tmp_path: Path) -> tuple[Client, dict[str, dict[str, str]], Path]:
    from polytag.server.access import ROLES, add_token

    path = tmp_path / "tokens"
    headers = {role: {"Authorization": f"Bearer {add_token(path, f'{role}er', role)}"} for role in ROLES}
    return Client(Service(service.shelf, service.limits, Tokens(path), service.database)), headers, path


def test_roles_open_what_they_name(guarded: tuple[Client, dict[str, dict[str, str]], Path]) -> None:
    client, headers, _ = guarded
    calls = [
        ("read", "POST", "/v1/predict", {"texts": ["a"]}),
        ("read", "GET", "/v1/models", None),
        ("read", "GET", "/metrics", None),
        ("correct", "POST", "/v1/corrections", {"text": "guarded", "added": ["grain"], "user": "somebody else"}),
        ("correct", "GET", "/v1/corrections", None),
        ("correct", "GET", "/v1/corrections/export", None),
        ("admin", "POST", "/v1/admin/models/first/reload", None),
        ("admin", "GET", "/v1/admin/trail", None),
    ]
    order = ["read", "correct", "admin"]
    for needed, method, path, body in calls:
        assert client(method, path, json=body).status_code == 401
        assert client(method, path, json=body, headers={"Authorization": "Bearer pt_wrong"}).status_code == 401
        for role in order:
            status = client(method, path, json=body, headers=headers[role]).status_code
            assert (status < 300) == (order.index(role) >= order.index(needed)), (role, path, status)
    assert client("GET", "/health").status_code == client("GET", "/").status_code == 200
    rows = client("GET", "/v1/corrections?user=correcter", headers=headers["admin"]).json()["corrections"]
    assert {row["user"] for row in rows} == {"correcter"}  # the token's name, not what the request says


def test_others_corrections_are_undone_by_administrators_alone(guarded: tuple[Client, dict[str, dict[str, str]], Path]) -> None:
    client, headers, _ = guarded
    said = {"text": "mine", "added": ["grain"]}
    number = client("POST", "/v1/corrections", json=said, headers=headers["admin"]).json()["id"]
    assert client("DELETE", f"/v1/corrections/{number}", headers=headers["correct"]).status_code == 403
    assert client("DELETE", f"/v1/corrections/{number}", headers=headers["admin"]).status_code == 200


def test_tokens_are_hashed_and_can_be_removed(guarded: tuple[Client, dict[str, dict[str, str]], Path]) -> None:
    from polytag.server.access import remove_token

    client, headers, path = guarded
    assert headers["read"]["Authorization"].split()[1] not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    assert client("GET", "/v1/models", headers=headers["read"]).status_code == 200
    remove_token(path, "reader")
    client.app.service.tokens._checked = 0.0
    assert client("GET", "/v1/models", headers=headers["read"]).status_code == 401
    assert client("GET", "/v1/models", headers=headers["admin"]).status_code == 200


def test_a_token_has_a_rate(service: Service) -> None:
    slow = Client(Service(service.shelf, Limits(rate=0.01, burst=3), Tokens()))
    assert [slow("GET", "/v1/models").status_code for _ in range(4)] == [200, 200, 200, 429]
    assert int(slow("GET", "/v1/models").headers["retry-after"]) >= 1


def test_a_service_that_others_reach_needs_tokens(folders: list[Path]) -> None:
    from polytag import ConfigError
    from polytag.server.startup import Plan

    with pytest.raises(ConfigError, match="token"):
        Plan(folders, host="0.0.0.0").service()


# -- jobs --------------------------------------------------------------------------------------------------------------


def finished(client: Client, number: str) -> dict[str, Any]:
    for _ in range(500):
        found = dict(client("GET", f"/v1/jobs/{number}").json())
        if found["state"] not in ("waiting", "running"):
            return found
        time.sleep(0.02)
    raise AssertionError("the job does not end")


def test_a_job_labels_a_corpus(client: Client, folders: list[Path]) -> None:
    texts = [f"{TEXTS[n % 4]} {n}" for n in range(200)]
    body = "".join(json.dumps({"id": f"d{n}", "text": text}) + "\n" for n, text in enumerate(texts))
    sent = client("POST", "/v1/jobs?model=second", content=body.encode())
    assert sent.status_code == 202
    number = sent.json()["id"]
    state = finished(client, number)
    assert (state["state"], state["done"], state["progress"]) == ("finished", 200, 1.0)
    rows = [json.loads(line) for line in client("GET", f"/v1/jobs/{number}/result").text.splitlines()]
    assert [row["id"] for row in rows] == [f"d{n}" for n in range(200)]
    assert [row["labels"] for row in rows] == Classifier.load(folders[1]).predict(texts)
    assert client("DELETE", f"/v1/jobs/{number}").status_code == 204
    assert client("GET", f"/v1/jobs/{number}/result").status_code == 404


def test_a_bad_corpus_fails_with_its_line(client: Client) -> None:
    number = client("POST", "/v1/jobs", content=b'{"text": "a"}\n{').json()["id"]
    state = finished(client, number)
    assert state["state"] == "failed" and "line 2" in state["detail"] and "/tmp" not in state["detail"]
    assert client("GET", f"/v1/jobs/{number}/result").status_code == 409
    assert client("GET", "/v1/jobs/../../etc/passwd").status_code == 404


# -- Annif's API -------------------------------------------------------------------------------------------------------


def test_annif_clients_get_suggestions(client: Client, folders: list[Path]) -> None:
    best = Classifier.load(folders[0]).scores(TEXTS[:2]).top(2)
    found = client("POST", "/v1/projects/first/suggest", data={"text": TEXTS[0], "limit": 2}).json()["results"]
    assert [(row["label"], row["uri"]) for row in found] == [(name, name) for name, _ in best[0]]
    documents = [{"text": text, "document_id": str(n)} for n, text in enumerate(TEXTS[:2])]
    rows = client("POST", "/v1/projects/first/suggest-batch?limit=2", json={"documents": documents}).json()
    assert [row["document_id"] for row in rows] == ["0", "1"]
    assert [[one["label"] for one in row["results"]] for row in rows] == [[name for name, _ in row] for row in best]
    assert client("POST", "/v1/projects/none/suggest", data={"text": "a"}).status_code == 404
    assert client("POST", "/v1/projects/first/suggest-batch", json={"documents": documents * 17}).status_code == 422
    assert client("GET", "/v1/projects").json()["projects"][1]["project_id"] == "second"
    assert client("GET", "/v1/vocabs").json()["vocabs"][0]["size"] == 4


def test_annif_clients_teach(client: Client) -> None:
    lesson = [{"text": "taught text", "subjects": [{"uri": "grain", "label": "grain"}]}]
    assert client("POST", "/v1/projects/first/learn", json=lesson).status_code == 204
    assert "taught text" in client("GET", "/v1/corrections/export").text
    assert client("POST", "/v1/projects/first/learn", json=[{"text": "t", "subjects": [{"uri": "x"}]}]).status_code == 400


# -- the database ------------------------------------------------------------------------------------------------------


def filled(url: str) -> Any:
    from polytag.server.corrections.correction_store import Correction, CorrectionStore
    from polytag.server.corrections.database import open_database

    store = CorrectionStore(open_database(url))
    for user, text in (("ann", "one"), ("bob", "one"), ("ann", "two"), ("bob", "three")):
        store.add(Correction(text, user, "m", "v", added=["grain"], key=text))
    store.undo(4, "bob")
    return store


def check_database(url: str, second: str, folder: Path) -> None:
    """Backup, restore, export and forget on one kind of database."""
    from polytag.server.corrections.correction_store import Correction
    from polytag.server.corrections.maintenance import backup, corrected, export_corpus, forget, restore

    store = filled(url)
    assert backup(url, folder / "saved.jsonl") == restore(second, folder / "saved.jsonl")
    backup(second, folder / "again.jsonl")
    assert (folder / "saved.jsonl").read_bytes() == (folder / "again.jsonl").read_bytes()
    with pytest.raises(Exception, match="empty"):
        restore(second, folder / "saved.jsonl")
    assert sorted(corrected(second).texts) == ["one", "two"]
    assert export_corpus(second, folder / "corpus.jsonl") == 2
    assert store.add(Correction("new", "ann", "m", "v"))[0]["id"] == 5
    assert forget(second, "ann") == {"corrections": 2, "texts": 1}
    assert [row["text"] for row in type(store)(_engine(second)).page()] == ["one", "three"]
    backup(second, folder / "after.jsonl")
    assert "two" not in (folder / "after.jsonl").read_text() and '"ann"' not in (folder / "after.jsonl").read_text()


def _engine(url: str) -> Any:
    from polytag.server.corrections.database import open_database

    return open_database(url)


def test_sqlite_is_backed_up_restored_exported_and_forgotten(tmp_path: Path) -> None:
    check_database(f"sqlite:///{tmp_path / 'a.db'}", str(tmp_path / "b.db"), tmp_path)


def test_migrations_make_the_tables_that_the_code_uses(tmp_path: Path) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from polytag.server.corrections.correction_tables import METADATA

    with _engine(f"sqlite:///{tmp_path / 'a.db'}").connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []


def test_a_training_takes_corrections(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from polytag.cli.app import app

    rows = [{"text": f"{a} {b}", "labels": [a]} for a in ("fish", "wheat") for b in "abcdefgh"]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    url = f"sqlite:///{tmp_path / 'c.db'}"
    filled(url)
    arguments = ["train", str(tmp_path / "train.jsonl"), "--out", str(tmp_path / "run"), "--with-corrections", url]
    assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0
    loaded = Classifier.load(tmp_path / "run")
    assert loaded.training["documents"] == 18 and "grain" in loaded.labels


@pytest.mark.parametrize("url", ["mysql://x/y", "sqlite:////nowhere/at/all.db", "postgresql://nobody@127.0.0.1:9/none"])
def test_a_database_that_cannot_be_opened_is_one_line(url: str) -> None:
    from polytag import PolytagError

    with pytest.raises(PolytagError):
        _engine(url)
