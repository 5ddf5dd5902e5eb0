"""``python -m polytag`` is the command line."""

from polytag.cli.app import main

main()
