"""Tests that prove what a module does, where neither a name nor an import tells: ``make mutants`` runs them first."""

from __future__ import annotations

from collections.abc import Iterator

TABLES = "tests/test_docs.py::test_generated_tables_say_what_the_code_says"  # defaults and limits of all settings
NEAREST = {  # by the beginning of a module's name
    "polytag.analysis": ["test_describe"],
    "polytag.config.groups": [TABLES, "test_settings"],
    "polytag.config.groups.search_settings": ["test_match"],
    "polytag.config.groups.tree_settings": ["test_index"],
    "polytag.config.settings": ["test_settings", TABLES],
    "polytag.config.values": ["test_settings", "test_recipe"],
    "polytag.corpus": ["test_corpus", "test_misuse"],
    "polytag.formats": ["test_formats", "test_bad_inputs"],
    "polytag.formats.inputs": ["test_misuse"],
    "polytag.kernels": ["test_linear", "test_simd", "test_rank"],
    "polytag.labels": ["test_labels", "test_misuse"],
    "polytag.linear": ["test_linear"],
    "polytag.metrics": ["test_metrics"],
    "polytag.models": [TABLES],
    "polytag.models.base.joint_model": ["test_laco"],
    "polytag.models.base.linear_model": ["test_linear", "test_contract"],
    "polytag.models.base.saved_model": ["test_continue"],
    "polytag.models.base.tfidf_model": ["test_linear", "test_contract"],
    "polytag.models.model": ["test_settings", "test_contract"],
    "polytag.nn.encoding.restored_network": ["test_schema", "test_fuzz"],
    "polytag.nn.encoding.document_vectors": ["test_frozen"],
    "polytag.server": ["test_server", "test_server_load"],
    "polytag.server.drift": ["test_server_load"],
    "polytag.server.hosting.request_queue": ["test_server_load", "test_server"],
    "polytag.storage": ["test_artefact", "test_schema"],
    "polytag.verbs.comparison": ["test_cli"],
    "polytag.xmc": ["test_rank", "test_match", "test_xlinear"],
}


def nearest(module: str) -> Iterator[str]:
    """The tests of a module in this table, those of the longest name first."""
    for name in sorted(NEAREST, key=len, reverse=True):
        if f"{module}.".startswith(f"{name}."):
            yield from (test if "::" in test else f"tests/{test}.py" for test in NEAREST[name])
