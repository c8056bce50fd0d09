"""The endpoint to be served: tasks, golden cases, the plan, and its rendering."""
