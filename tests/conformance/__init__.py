"""Architectures × tasks, served and compared with transformers in PyTorch; writes docs/tasks.md.

Two environments work on it. ``export`` and what it uses (``architectures``, ``heads``, ``families``,
``references``) run in .venv-export, which has torch; ``serve``, ``compare`` and ``table`` in .venv, which has
the tritonserver. ``tasks`` and ``inputs`` are plain data for both.
"""
