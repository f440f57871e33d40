"""`python -m uivlm` is the `uivlm` command."""

from uivlm.cli.main import main

main()
