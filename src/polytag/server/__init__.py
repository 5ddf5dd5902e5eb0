"""The service: REST routes, batches of requests, versions of models, corrections, and the page."""
