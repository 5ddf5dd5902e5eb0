"""Annif with omikuji, trained on the same documents and loaded by the same sender in turn with the service.

``benchmarks/serving.py --parts annif --annif VENV`` calls this. Annif runs behind gunicorn with one and with two of uvicorn's
workers; the faster one counts. It answers with ten labels, and the service with as many as give the same size. Annif splits
texts by tables of NLTK (``punkt_tab``), which it downloads; without them its dummy backend is loaded, which does nothing.
"""

from __future__ import annotations

import json
import lzma
import subprocess
import urllib.request
from contextlib import chdir
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlencode

from serving import SCRIPT, free_port, polytag, started, wrk

BASE = "http://example.org/"
PROJECTS = "[{name}]\nname={name}\nlanguage=en\nbackend={backend}\nanalyzer=simple\nvocab=v\nlimit=10\n"


def prepared(environment: Path, data: Path, home: Path) -> str:
    """A trained project of Annif in a folder, which may be there already; returns its name."""
    if (home / "data" / "projects" / "omikuji" / "omikuji-model").exists():
        return "omikuji"
    home.mkdir(exist_ok=True)
    program = str((environment / "bin" / "annif").absolute())
    labels = [json.loads(line)["name"] for line in (data / "debtags" / "labels.jsonl").read_text().splitlines()]
    (home / "vocab.tsv").write_text("".join(f"<{BASE}{name}>\t{name}\n" for name in labels))
    with lzma.open(data / "debtags" / "train.jsonl.xz", "rt", encoding="utf-8") as file, open(home / "train.tsv", "w") as out:
        for document in map(json.loads, file):
            subjects = " ".join(f"<{BASE}{name}>" for name in document["labels"])
            out.write(f"{' '.join(document['text'].split())}\t{subjects}\n")
    sections = [PROJECTS.format(name=name, backend=name) for name in ("omikuji", "dummy")]
    (home / "projects.cfg").write_text("\n".join(sections))
    subprocess.run([program, "load-vocab", "--language", "en", "v", "vocab.tsv"], cwd=home, check=True, capture_output=True)
    done = subprocess.run([program, "train", "omikuji", "train.tsv"], cwd=home, check=False, capture_output=True)
    return "dummy" if done.returncode else "omikuji"


def compared(
    environment: Path, data: Path, run: Path, texts: list[str], folder: Path, home: Path, seconds: int, rounds: int
) -> dict[str, Any]:
    """Requests per second of the service and of Annif, in turn, and their ratio."""
    project = prepared(environment, data, home)
    forms = [urlencode({"text": text, "limit": 10}) for text in texts]
    (folder / "forms.txt").write_text("".join(f"{form}\n" for form in forms))
    found: dict[str, Any] = {"backend": project, "rounds": []}
    for _ in range(rounds):
        row: dict[str, Any] = {}
        for workers in (1, 2):
            row[f"annif_{workers}_workers"] = _annif(environment, home, project, workers, folder, forms[0], seconds)
        row |= _service(run, folder, texts, forms[0], row["annif_2_workers"]["bytes"], seconds)
        found["rounds"].append(row)
        print(json.dumps(row), flush=True)
    for name in ("suggest", "same_size", "predict"):
        found[f"times_{name}"] = median(_times(row, name) for row in found["rounds"])
    return found


def _times(row: dict[str, Any], name: str) -> float:
    best = max(row["annif_1_workers"]["requests_per_second"], row["annif_2_workers"]["requests_per_second"])
    return float(row[name]["requests_per_second"] / best)


def _annif(environment: Path, home: Path, project: str, workers: int, folder: Path, form: str, seconds: int) -> dict[str, Any]:
    port = free_port()
    server = [str((environment / "bin" / "gunicorn").absolute()), "annif:create_app()", "--bind", f"127.0.0.1:{port}"]
    server += ["--workers", str(workers), "--worker-class", "uvicorn.workers.UvicornWorker", "--timeout", "120"]
    path = f"/v1/projects/{project}/suggest"
    with chdir(home), started(server, port, "/v1/projects", {"ANNIF_CONFIG": "annif.default_config.ProductionConfig"}):
        return _loaded(port, path, folder, form, seconds)


def _service(run: Path, folder: Path, texts: list[str], form: str, size: int, seconds: int) -> dict[str, Any]:
    """The service: in Annif's form, as many labels as fill an answer of Annif's size, and the decided labels."""
    port = free_port()
    with polytag([run], port):
        found = {"suggest": _loaded(port, f"/v1/projects/{run.name}/suggest", folder, form, seconds)}
        top = next(top for top in range(1, 200) if _size(port, {"texts": texts[:1], "top": top}) >= size)
        (folder / "tops.txt").write_text("".join(json.dumps({"texts": [text], "top": top}) + "\n" for text in texts))
        for name, bodies in (("same_size", "tops"), ("predict", "json")):
            script = folder / f"{name}.lua"
            script.write_text(SCRIPT.format(kind="application/json", bodies=folder / f"{bodies}.txt", path="/v1/predict"))
            found[name] = wrk(f"http://127.0.0.1:{port}", script, seconds, 32)
        found["same_size"] |= {"top": top, "bytes": _size(port, {"texts": texts[:1], "top": top})}
    return found


def _size(port: int, body: dict[str, Any]) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/predict", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as answer:
        return len(answer.read())


def _loaded(port: int, path: str, folder: Path, form: str, seconds: int) -> dict[str, Any]:
    script, url = folder / "form.lua", f"http://127.0.0.1:{port}"
    script.write_text(SCRIPT.format(kind="application/x-www-form-urlencoded", bodies=folder / "forms.txt", path=path))
    with urllib.request.urlopen(f"{url}{path}", form.encode(), timeout=60) as answer:
        body = answer.read()
    wrk(url, script, 1, 32)
    size = {"bytes": len(body), "results": len(json.loads(body)["results"])}
    return {**wrk(url, script, seconds, 32), **size}
