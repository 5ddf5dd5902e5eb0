"""``python -m polytag`` is the command line."""

from polytag.cli.entry import start

start()
