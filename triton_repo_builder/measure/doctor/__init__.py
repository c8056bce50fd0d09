"""Causes behind the questions that people bring to forums, from the facts of a repository and a server."""
