"""`python -m dovetail` is the `dovetail` command."""

from dovetail.cli import main

main()
