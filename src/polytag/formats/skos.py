"""SKOS vocabularies as label records: concepts with preferred labels in languages, notations, definitions and broader concepts.

Statements that a label has no place for are kept as N-Triples, so that reading and writing loses none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from polytag.errors import ConfigError, DataError, brief
from polytag.formats.label_uris import id_of, unique_names, uri_of

try:
    from rdflib import Graph, Literal, URIRef
    from rdflib.namespace import OWL, RDF, SKOS, XSD
except ModuleNotFoundError as missing:
    raise ConfigError(f"a SKOS file needs the package {missing.name!r}; install polytag[skos]") from None

STATUS = URIRef("http://www.w3.org/ns/adms#status")
DEPRECATED = "deprecated"


def read_skos(data: bytes, format: str, where: str, language: str | None) -> tuple[list[dict[str, Any]], list[str]]:
    """One record per concept, by URI, and the statements about other things as lines of N-Triples."""
    graph = Graph()
    try:
        graph.parse(data=data, format=format, publicID="")
    except Exception as error:  # parsers raise whatever they like
        reason = brief(str(error), 120)
        raise DataError(f"{where}: not a SKOS file in {format} ({reason}); check its ending and its text") from None
    concepts = sorted({str(s) for s in graph.subjects(RDF.type, SKOS.Concept) if isinstance(s, URIRef)})
    named = {s for s in graph.subjects(SKOS.prefLabel) if isinstance(s, URIRef) and (s, RDF.type, None) not in graph}
    concepts = sorted({*concepts, *map(str, named)})
    if not concepts:
        raise DataError(f"{where}: no concept with a skos:prefLabel; a label needs a preferred name")
    titles = {uri: _titles(graph, uri, where) for uri in concepts}
    spoken = Counter(tag for own in titles.values() for tag in own)
    first = language or min(spoken, key=lambda tag: (-spoken[tag], tag != "en", tag))
    titles = {uri: {tag: own[tag] for tag in sorted(own, key=lambda tag: (tag != first, tag))} for uri, own in titles.items()}
    notations = [_notation(graph, uri) for uri in concepts]
    unique = unique_names([next(iter(titles[uri].values())) for uri in concepts], notations, concepts)
    names = dict(zip(concepts, unique, strict=True))
    parents = _parents(graph, set(concepts))
    records = []
    for uri, notation in zip(concepts, notations, strict=True):
        own = titles[uri] if any(titles[uri]) or names[uri] != titles[uri].get("") else {}  # an untagged one is the name
        text = {
            "name": names[uri], "id": id_of(uri), "notation": notation, "status": _status(graph, uri),
            "description": _description(graph, uri, next(iter(titles[uri]))), "titles": own,
            "parents": [names[parent] for parent in parents.get(uri, ())],
        }  # fmt: skip
        records.append({key: value for key, value in text.items() if value})
    return records, _add_statements(graph, names, records)


def _titles(graph: Graph, uri: str, where: str) -> dict[str, str]:
    """The preferred labels of a concept by language; of several in one language the first by text."""
    found = sorted(t for t in graph.objects(URIRef(uri), SKOS.prefLabel) if isinstance(t, Literal) and str(t).strip())
    if not found:
        raise DataError(f"{where}: the concept {uri} has no skos:prefLabel; add one, or leave the concept out")
    return {text.language or "": str(text) for text in reversed(found)}


def _notation(graph: Graph, uri: str) -> str:
    found = sorted(graph.objects(URIRef(uri), SKOS.notation), key=lambda text: text.n3())
    return str(found[0]) if found else ""


def _description(graph: Graph, uri: str, language: str) -> str:
    found = [text for text in graph.objects(URIRef(uri), SKOS.definition) if isinstance(text, Literal)]
    best = min(found, key=lambda t: (t.language != language, bool(t.language), t.n3()), default=None)
    return "" if best is None else str(best)


def _status(graph: Graph, uri: str) -> str:
    if (URIRef(uri), OWL.deprecated, Literal(True)) in graph:
        return DEPRECATED
    return next((str(text) for text in graph.objects(URIRef(uri), STATUS) if isinstance(text, Literal)), "")


def _parents(graph: Graph, concepts: set[str]) -> dict[str, list[str]]:
    """The broader concepts of every concept, stated in either direction."""
    pairs = {(str(s), str(o)) for s, o in graph.subject_objects(SKOS.broader)}
    pairs |= {(str(o), str(s)) for s, o in graph.subject_objects(SKOS.narrower)}
    found: dict[str, list[str]] = {}
    for child, parent in sorted(pairs):
        if child in concepts and parent in concepts:
            found.setdefault(child, []).append(parent)
    return found


def _add_statements(graph: Graph, names: Mapping[str, str], records: Sequence[dict[str, Any]]) -> list[str]:
    """Add to every record what it has no key for; return the lines about other things."""
    known = _triples(records, names)
    rest = Graph()
    for subject, predicate, value in graph:
        if isinstance(value, Literal) and value.datatype == XSD.string:
            value = Literal(str(value))  # the same, by RDF 1.1
        if (subject, predicate, value) not in known:
            rest.add((subject, predicate, value))
    by_uri = {f"<{uri}>": record for uri, record in zip(names, records, strict=True)}
    others = []
    for line in sorted(rest.serialize(format="nt").splitlines()):
        subject_text, _, statement = line.removesuffix(" .").partition(" ")
        if subject_text in by_uri:
            by_uri[subject_text].setdefault("statements", []).append(statement)
        elif line:
            others.append(line)
    return others


def skos_text(records: Sequence[Mapping[str, Any]], vocabulary: Sequence[str], format: str) -> str:
    """Records and other statements as a SKOS file; a label without a URI gets one that is made of its name."""
    lines = [f"<{uri_of(r)}> {statement} ." for r in records for statement in r.get("statements", ())]
    graph = Graph()
    try:
        graph.parse(data="\n".join([*lines, *vocabulary, ""]), format="nt")
    except Exception as error:
        reason = brief(str(error), 120)
        raise DataError(f"the statements of a label are not N-Triples ({reason}); correct or remove them") from None
    stated = {(s, p, str(o)) for p in (SKOS.definition, SKOS.notation) for s, o in graph.subject_objects(p)}
    try:
        for subject, predicate, value in _triples(records, {uri_of(record): record["name"] for record in records}):
            if (subject, predicate, str(value)) not in stated:  # said already, in whatever language or type
                graph.add((subject, predicate, value))
        for prefix, space in (("skos", SKOS), ("owl", OWL)):
            graph.bind(prefix, space)
        return str(graph.serialize(format=format))
    except Exception as error:  # a language that is none, or a property that RDF/XML has no name for
        raise DataError(f"the labels cannot be written in {format} ({brief(str(error), 120)}); correct them") from None


def _triples(records: Iterable[Mapping[str, Any]], names: Mapping[str, str]) -> set[tuple[Any, Any, Any]]:
    """What the keys of records say, as triples; ``names`` are the names of labels by URI."""
    uris = {name: URIRef(uri) for uri, name in names.items()}
    found: set[tuple[Any, Any, Any]] = set()
    for record in records:
        subject, titles = uris[record["name"]], record.get("titles") or {"": record["name"]}
        own = next(iter(titles)) or None
        found.add((subject, RDF.type, SKOS.Concept))
        found |= {(subject, SKOS.prefLabel, Literal(text, lang=tag or None)) for tag, text in titles.items()}
        if record.get("description"):
            found.add((subject, SKOS.definition, Literal(record["description"], lang=own)))
        if record.get("notation"):
            found.add((subject, SKOS.notation, Literal(record["notation"])))
        if record.get("status"):
            old = record["status"] == DEPRECATED
            found.add((subject, OWL.deprecated if old else STATUS, Literal(True) if old else Literal(record["status"])))
        parents = [*record.get("parents", ()), *([record["parent"]] if record.get("parent") else [])]
        found |= {(subject, SKOS.broader, uris[parent]) for parent in parents}
    return found
