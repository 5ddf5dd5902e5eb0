"""The verbs on a cluster."""
