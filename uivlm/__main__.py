"""`python -m uivlm` is the `uivlm` command."""

from uivlm.cli import main

main()
