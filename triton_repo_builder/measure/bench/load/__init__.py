"""The load generator: workers, requests, arrivals."""
