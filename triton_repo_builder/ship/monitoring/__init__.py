"""Prometheus rules and Grafana dashboards of a repository's endpoints."""
