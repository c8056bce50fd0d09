"""Reports of a benchmark and their comparison."""
