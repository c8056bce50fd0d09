"""Search the setting of an endpoint that serves most requests while a latency objective holds."""
