"""``deploy.toml``, and the files that platforms make of it: Compose, Swarm, Kubernetes and others."""

TARGETS = {
    "compose": "Docker Compose: server, gateway, Traefik, Prometheus, on one machine.",
    "swarm": "Docker Swarm: replicas on several machines, rolling updates that go back.",
    "kubernetes": "Kubernetes: a kustomize base and overlays.",
    "helm": "Kubernetes: a Helm chart.",
    "kserve": "KServe: a ServingRuntime and an InferenceService.",
    "sagemaker": "Amazon SageMaker: requests of its API, and the archive of the model.",
    "oci": "An OCI image layout of the repository, for image volumes.",
}
"""Targets with a line of help each."""
