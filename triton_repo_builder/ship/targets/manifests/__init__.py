"""Objects of Kubernetes, rendered once for kustomize and once for a Helm chart."""
