"""Source, task, options and recording become the plan of an endpoint. Standard library only."""
