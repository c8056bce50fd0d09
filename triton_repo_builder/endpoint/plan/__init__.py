"""Source, task, options and recording → ``EndpointPlan``: all rules for the written files."""
