"""`python -m gguftools` is the same as the `gguftools` command."""

from .cli import main

main()
