"""The server's processes: stubs, ports, shared memory, watchdog."""
