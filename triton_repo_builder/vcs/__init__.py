"""A repository in git: commit it with its provenance, and say what is served from where."""
