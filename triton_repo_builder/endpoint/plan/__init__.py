"""Source, task, options and recording → ``EndpointPlan``: every rule of what is written."""
