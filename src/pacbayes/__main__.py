"""``python -m pacbayes``: the command line."""

from pacbayes.cli import main

main()
