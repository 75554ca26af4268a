"""`python -m lehd.cli` does what the `lehd` command does."""

from lehd.cli import main

main()
