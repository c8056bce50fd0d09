"""``python -m triton_repo_builder`` is ``trb``."""

from triton_repo_builder.cli import main

main()
