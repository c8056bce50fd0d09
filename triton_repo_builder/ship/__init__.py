"""Where repositories go: stores, version control, deployment, container images."""
