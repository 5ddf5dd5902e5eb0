"""The artefact: states as JSON, array files, atomic writes."""
