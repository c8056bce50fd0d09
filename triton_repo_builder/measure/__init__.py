"""Numbers of what runs: load, tuning, smaller models, capacity."""
