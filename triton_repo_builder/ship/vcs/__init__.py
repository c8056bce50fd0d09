"""A repository in git: commit it with its provenance, and trace what is served back to a commit."""
