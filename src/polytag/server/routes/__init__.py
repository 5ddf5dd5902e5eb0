"""Routes of the service, one file per subject; the hot one is in ``server/hot_route.py``."""
