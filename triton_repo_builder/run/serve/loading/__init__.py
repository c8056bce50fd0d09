"""Load models, and explain failures."""
