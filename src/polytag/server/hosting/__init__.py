"""Models in service: versions, batches of requests, label search."""
