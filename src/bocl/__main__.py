"""``python -m bocl``."""

from bocl.cli.main import main

main()
