"""Load models, and say why one failed."""
