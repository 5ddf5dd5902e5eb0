"""``python -m polytag`` is the command line."""

from polytag.cli import main

main()
