"""One small worker per peer, run in the peer's own virtual environment, and what the comparison needs around them."""
