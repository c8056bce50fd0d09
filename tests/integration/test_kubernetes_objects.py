"""The exports for Kubernetes by its own tools: kustomize, helm, strict schemas, models of operators."""

from __future__ import annotations

import copy
import shutil
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import deployments, kubernetes, serve_repository, tuned_deployments
from tests.support.deployments import GIT, KEY, OCI, SCALED, bucket, gateway, server
from tests.support.kubernetes import built, by_name, custom_faults, faults, run, templated
from tests.support.prometheus import promtool
from triton_repo_builder.ship import rendered as folder
from triton_repo_builder.ship.targets import export

pytestmark = pytest.mark.kubernetes
QUICK = ("1.29", "1.31", "1.33", "1.35", "1.37")
ALL = [
    pytest.param(version, marks=() if version in QUICK else pytest.mark.slow)
    for version in kubernetes.VERSIONS
]
LARGE = (
    gateway() + SCALED + '[exposure]\ndomain = "m.example"\n[kubernetes]\nparent_gateway = "edge/public"\n'
)
SOURCES: Mapping[str, tuple[str, str]] = {
    "oci": (OCI, LARGE),
    "image": ("image", server(more="gpus = 1")),
    "two images": ("image", server() + gateway()),
    "git": (GIT, '[kubernetes]\nfetch_image = "registry.example/git:2.47"\n'),
    "s3": (bucket("s3"), SCALED),
    "tuned": ("image", server() + '[autoscaling]\nmost = 8\nreport = "report.json"\n'),
    "az": (bucket("az"), gateway() + '[kubernetes]\nfetch_image = "registry.example/trb-az:1"\n'),
}
NAMES = ("sentiment", "sentiment-gateway")
EVERYTHING = "monitoring.enabled=true,route.enabled=true,smoke.enabled=true"


def placed(tables: str) -> str:
    """The tables with the namespace that helm takes by default."""
    stated, table = 'namespace = "default"\n', "[kubernetes]\n"
    return tables.replace(table, table + stated) if table in tables else tables + table + stated


def unplaced(folder: Path) -> dict[tuple[str, str], Any]:
    """Objects of a kustomization without the namespace, which helm gives them when it installs a chart."""
    objects = built(folder)
    assert {each["metadata"].pop("namespace") for each in objects} == {"default"}
    return by_name(objects)


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """For each source a folder with ``kubernetes/`` and ``helm/``."""
    roots = {}
    for name, (source, tables) in SOURCES.items():
        roots[name] = tmp_path_factory.mktemp("exported")
        tuned_deployments.report(roots[name] / "report.json")
        deployment = deployments.read(roots[name], source=source, tables=placed(tables))
        for target in ("kubernetes", "helm"):
            folder.write(export.render(target, deployment), roots[name] / target)
    return roots


@pytest.fixture(params=SOURCES)
def exported(request: pytest.FixtureRequest, exports: Mapping[str, Path]) -> Path:
    return exports[request.param]


@pytest.fixture
def oci(exports: Mapping[str, Path]) -> Path:
    """The richest export, for Kubernetes."""
    return exports["oci"] / "kubernetes"


def kustomizations(root: Path) -> list[Path]:
    return sorted(
        file.parent
        for part in ("base", "overlays")
        for file in (root / "kubernetes" / part).rglob("kustomization.yaml")
    )


def test_every_kustomization_builds_and_is_valid(exported: Path) -> None:
    """The oldest and the newest version that know all of its fields."""
    listed = kustomizations(exported)
    assert {path.name for path in listed} >= {"base", "operators", "rollout", "canary"}
    for path in listed:
        objects = by_name(built(path))
        oldest = "1.31" if path.name == "image-volume" else "1.29"
        for version in (oldest, "1.37"):
            assert faults([*objects.values()], version) == [], (path.name, version)


@pytest.mark.parametrize("version", ALL)
def test_strict_schemas_of_each_version(oci: Path, version: str) -> None:
    assert faults(built(oci / "overlays" / "rollout"), version) == []


def test_a_tuned_deployment_scales_by_queue_and_load(exports: Mapping[str, Path]) -> None:
    """The autoscalers and the adapter ask for the same numbers."""
    root = exports["tuned"] / "kubernetes"
    hpa = by_name(built(root / "base"))["HorizontalPodAutoscaler", "sentiment"]["spec"]
    keda = by_name(built(root / "overlays" / "operators"))["ScaledObject", "sentiment"]["spec"]
    adapter = yaml.safe_load((root / "prometheus-adapter.yaml").read_text())["rules"]["external"]
    names = [metric["external"]["metric"]["name"] for metric in hpa["metrics"]]
    assert names == ["sentiment-pending-batches", "sentiment-load"]
    assert names == [rule["name"]["as"] for rule in adapter]
    queries = [trigger["metadata"]["query"] for trigger in keda["triggers"]]
    assert queries == [rule["metricsQuery"] for rule in adapter]
    for rule, query in zip(adapter, queries, strict=True):
        assert rule["seriesQuery"] in query and rule["seriesQuery"].startswith("trb:")
    averages = [metric["external"]["target"]["averageValue"] for metric in hpa["metrics"]]
    thresholds = [float(trigger["metadata"]["threshold"]) for trigger in keda["triggers"]]
    assert averages == [f"{round(1000 * each)}m" for each in thresholds]
    assert hpa["behavior"] == keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]


def test_an_image_volume_is_refused_before_its_time(oci: Path) -> None:
    assert "'image' was unexpected" in faults(built(oci / "overlays" / "image-volume"), "1.30")[0]


def test_operators_take_their_objects(exports: Mapping[str, Path]) -> None:
    objects = [
        each for root in exports.values() for each in built(root / "kubernetes" / "overlays" / "rollout")
    ]
    assert {each["kind"] for each in objects} >= {
        *("Rollout", "AnalysisTemplate", "HTTPRoute", "GRPCRoute", "ServiceMonitor", "PrometheusRule"),
        "ScaledObject",
    }
    assert not any(custom_faults(objects))


def test_the_base_applies_to_a_bare_cluster(exported: Path) -> None:
    for each in built(exported / "kubernetes" / "base"):
        assert not each["apiVersion"].startswith(kubernetes.CUSTOM), each["kind"]


def overlay(oci: Path, name: str, *files: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Objects of an overlay of ``docs/deploy-kubernetes.md``: as it stands there, but for the base's path."""
    page = (kubernetes.ROOT / "docs" / "deploy-kubernetes.md").read_text()
    folder = oci / name
    folder.mkdir()
    for file in files:
        block = page.partition(f"    # {name}/{file}\n")[2].partition("\n\n")[0]
        text = textwrap.dedent(block).replace("../../deploy/kubernetes/base", "../../base")
        (folder / file).write_text(text)
    made = built(folder)
    shutil.rmtree(folder)
    for version in ("1.29", "1.37"):
        assert faults(made, version) == []
    return by_name(made)


def test_the_overlay_of_the_docs_chooses_nodes_and_has_an_ingress(oci: Path) -> None:
    objects = overlay(oci, "overlays/web", "kustomization.yaml", "ingress.yaml")
    pods = {name: objects["Deployment", name]["spec"]["template"]["spec"] for name in NAMES}
    assert "nodeSelector" not in pods["sentiment-gateway"]
    assert pods["sentiment"]["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    assert pods["sentiment"]["tolerations"][0]["key"] == "nvidia.com/gpu"
    path = objects["Ingress", "sentiment-gateway"]["spec"]["rules"][0]["http"]["paths"][0]
    service = path["backend"]["service"]
    ports = objects["Service", service["name"]]["spec"]["ports"]
    assert service["port"]["number"] in [port["port"] for port in ports]


def test_the_overlay_of_the_docs_lets_in_one_namespace_and_gives_a_role(oci: Path) -> None:
    objects = overlay(oci, "overlays/search", "kustomization.yaml")
    for name in NAMES:
        peers = objects["NetworkPolicy", name]["spec"]["ingress"][0]["from"]
        assert [each["namespaceSelector"] for each in peers if "namespaceSelector" in each] == [
            {"matchLabels": {"kubernetes.io/metadata.name": "search"}}
        ]
    annotations = objects["ServiceAccount", "sentiment"]["metadata"]["annotations"]
    assert annotations["eks.amazonaws.com/role-arn"].endswith(":role/sentiment")


def test_budgets_of_a_chart_follow_the_replicas_of_its_gateway(exports: Mapping[str, Path]) -> None:
    chart = exports["oci"] / "helm"
    for replicas, budgets in (("1", ["sentiment"]), ("2", ["sentiment", "sentiment-gateway"])):
        objects = templated(chart, "--set", f"gateway.replicas={replicas}")
        names = [each["metadata"]["name"] for each in objects if each["kind"] == "PodDisruptionBudget"]
        assert sorted(names) == budgets
        assert faults(objects, "1.37") == []


def test_names_are_found(oci: Path) -> None:
    """Services select pods, autoscalers and budgets find their targets, rules their Services."""
    objects = by_name(built(oci / "overlays" / "rollout"))
    pods = [
        each["spec"]["template"]["metadata"]["labels"]
        for (kind, _), each in objects.items()
        if kind in ("Deployment", "Job")
    ]
    # Argo Rollouts labels the pods of both versions.
    strategy = objects["Rollout", "sentiment"]["spec"]["strategy"]["canary"]
    server_labels = objects["Deployment", "sentiment"]["spec"]["template"]["metadata"]["labels"]
    pods += [{**server_labels, **strategy[side]["labels"]} for side in ("stableMetadata", "canaryMetadata")]
    (gateway_,) = objects["Deployment", "sentiment-gateway"]["spec"]["template"]["spec"]["containers"]
    assert "--url=dns:///sentiment-stable:8001" in gateway_["args"]
    assert ("Service", "sentiment-stable") in objects
    for (kind, name), each in objects.items():
        selector = each["spec"]["selector"] if kind == "Service" else None
        selector = each["spec"]["podSelector"]["matchLabels"] if kind == "NetworkPolicy" else selector
        selector = each["spec"]["selector"]["matchLabels"] if kind == "PodDisruptionBudget" else selector
        if selector is not None:
            assert [labels for labels in pods if selector.items() <= labels.items()], (kind, name)
        if kind == "ScaledObject":
            target = each["spec"]["scaleTargetRef"]
            assert (target["kind"], target["name"]) in objects
        if kind in ("HTTPRoute", "GRPCRoute"):
            for backend in (each for rule in each["spec"]["rules"] for each in rule["backendRefs"]):
                ports = [port["port"] for port in objects["Service", backend["name"]]["spec"]["ports"]]
                assert backend["port"] in ports
        if kind == "Rollout":
            canary = each["spec"]["strategy"]["canary"]
            assert ("Service", canary["canaryService"]) in objects
            steps = [step["analysis"] for step in canary["steps"] if "analysis" in step]
            for analysis in (canary["analysis"], *steps):
                for template in analysis["templates"]:
                    assert ("AnalysisTemplate", template["templateName"]) in objects
    assert not [key for key in objects if key[0] == "HorizontalPodAutoscaler"]  # KEDA makes its own


def test_an_image_volume_replaces_the_init_container(oci: Path) -> None:
    objects = by_name(built(oci / "overlays" / "image-volume"))
    fetched = by_name(built(oci / "overlays" / "operators"))
    assert objects.keys() == fetched.keys()
    changed = {key for key in objects if objects[key] != fetched[key]}
    assert {kind for kind, _ in changed} == {"Deployment", "Job"} and len(changed) == 3
    for key in changed:
        spec = objects[key]["spec"]["template"]["spec"]
        assert not spec["initContainers"] and "credentials" not in str(spec["volumes"])
        (volume,) = (each for each in spec["volumes"] if each["name"] == "repository")
        assert set(volume) == {"name", "image"}


def test_a_canary_by_hand_touches_nothing_that_runs(oci: Path) -> None:
    base, canary = by_name(built(oci / "base")), by_name(built(oci / "overlays" / "canary"))
    assert not base.keys() & canary.keys()
    selectors = [each["spec"]["selector"] for (kind, _), each in base.items() if kind == "Service"]
    labels = canary["Deployment", "sentiment-canary"]["spec"]["template"]["metadata"]["labels"]
    assert not [selector for selector in selectors if selector.items() <= labels.items()]


def test_the_secret_is_made_as_the_comment_says(oci: Path, tmp_path: Path) -> None:
    """Without the line break, which would be a part of the key in the server's arguments."""
    comment = (oci / "base" / "kustomization.yaml").read_text()
    (line,) = (line for line in comment.splitlines() if "sentiment-admin-key" in line)
    assert line.startswith("#   tr -d '\\n' < admin_key | kubectl -n default create secret generic")
    words = line.partition("kubectl ")[2].split()
    secret = yaml.safe_load(run("kubectl", *words, "--dry-run=client", "-o", "yaml", stdin=KEY))
    container = by_name(built(oci / "base"))["Deployment", "sentiment"]["spec"]["template"]["spec"]
    reference = container["containers"][0]["env"][0]["valueFrom"]["secretKeyRef"]
    assert secret["metadata"]["name"] == reference["name"] and list(secret["data"]) == [reference["key"]]


# Helm.


def test_a_chart_has_the_objects_of_the_base(exported: Path) -> None:
    run("helm", "lint", "--strict", exported / "helm")
    assert by_name(templated(exported / "helm")) == unplaced(exported / "kubernetes" / "base")


def test_its_switches_have_the_objects_of_the_overlays(exported: Path) -> None:
    overlays = exported / "kubernetes" / "overlays"
    keda = ",autoscaling.keda=true" if (exported / "kubernetes" / "base" / "hpa.yaml").exists() else ""
    chosen = {"operators": f"{EVERYTHING}{keda}", "rollout": f"{EVERYTHING}{keda},rollout.enabled=true"}
    if (overlays / "image-volume").exists():
        chosen["image-volume"] = f"{EVERYTHING}{keda},repository.imageVolume=true"
    for overlay, switches in chosen.items():
        chart = by_name(templated(exported / "helm", "--set", switches))
        expected = unplaced(overlays / overlay)
        assert chart.keys() == expected.keys()
        for key in chart:
            assert _normal(chart[key]) == _normal(expected[key]), key


def test_values_change_what_they_name(tmp_path: Path) -> None:
    root = tmp_path / "helm"
    folder.write(export.render("helm", deployments.read(tmp_path, source=OCI, tables=LARGE)), root)
    sets = "image=other.example/triton:1,resources.cpu=500m,resources.gpus=2,autoscaling.most=30"
    objects = by_name(
        templated(root, "--set", sets, "--set", "gateway.replicas=3,networkPolicy.enabled=false")
    )
    (container,) = objects["Deployment", "sentiment"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "other.example/triton:1"
    assert container["resources"]["limits"] == {"cpu": "500m", "memory": "4Gi", "nvidia.com/gpu": 2}
    assert objects["HorizontalPodAutoscaler", "sentiment"]["spec"]["maxReplicas"] == 30
    assert objects["Deployment", "sentiment-gateway"]["spec"]["replicas"] == 3
    assert not [kind for kind, _ in objects if kind == "NetworkPolicy"]
    assert "replicas" not in objects["Deployment", "sentiment"]["spec"]
    whole = by_name(templated(root, "--set", "resources.cpu=3"))["Deployment", "sentiment"]["spec"]
    assert whole["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "3"
    fixed = by_name(templated(root, "--set", "autoscaling.enabled=false,replicas=5"))
    assert fixed["Deployment", "sentiment"]["spec"]["replicas"] == 5
    assert ("HorizontalPodAutoscaler", "sentiment") not in fixed


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("image.tag=3", "image"),
        ("replcias=3", "replcias"),
        ("resources.cpus=3", "cpus"),
        ("replicas=two", "replicas"),
    ],
)
def test_helm_refuses_wrong_values(tmp_path: Path, wrong: str, message: str) -> None:
    root = tmp_path / "helm"
    folder.write(export.render("helm", deployments.read(tmp_path, source=OCI, tables=LARGE)), root)
    assert message in run("helm", "template", "x", root, "--set", wrong, fails=True)


def test_a_chart_refuses_a_rollout_without_what_it_needs(exported: Path) -> None:
    """It would have neither weights to shift nor metrics to judge by."""
    for lacking in ("route.enabled=true", "monitoring.enabled=true", "smoke.enabled=true"):
        sets = f"rollout.enabled=true,{lacking}"
        told = run("helm", "template", "x", exported / "helm", "--set", sets, fails=True)
        assert "rollout.enabled needs route.enabled and monitoring.enabled" in told


def test_a_chart_keeps_to_the_namespace_of_its_release(exported: Path) -> None:
    objects = by_name(templated(exported / "helm", "-n", "staging", "--set", EVERYTHING))
    (relabeled,) = objects["ServiceMonitor", "sentiment"]["spec"]["endpoints"]
    assert {"targetLabel": "deployment", "replacement": "sentiment", "action": "replace"} in relabeled[
        "relabelings"
    ]
    groups = objects["PrometheusRule", "sentiment-rules"]["spec"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert all('namespace="staging"' in rule["expr"] for rule in rules if "vector(" not in rule["expr"])


def test_a_chart_is_packaged(tmp_path: Path) -> None:
    deployment = deployments.read(tmp_path, source=OCI, tables=LARGE)
    folder.write(export.render("helm", deployment), tmp_path / "helm")
    run("helm", "package", tmp_path / "helm", "-d", tmp_path)
    assert [path.name for path in tmp_path.glob("*.tgz")] == [
        f"sentiment-0.1.0+{deployment.revision[:12]}.tgz"
    ]


def test_any_name_of_a_model(tmp_path: Path) -> None:
    """Names that mean something to YAML, Jinja, Helm or PromQL."""
    for name in ("a.b,c", "pipe|d", 'quo"te', "{{ .Values.image }}", "ü", "$(TRB_ADMIN_KEY)", "# x"):
        serve_repository.python(tmp_path / "model_repository", name)
    source = deployments.image(tmp_path / "model_repository")
    deployment = export.read(
        deployments.written(tmp_path, source=source, tables=placed(LARGE), repository=False)
    )
    for target in ("kubernetes", "helm"):
        folder.write(export.render(target, deployment), tmp_path / target)
    expected = unplaced(tmp_path / "kubernetes" / "overlays" / "rollout")
    assert faults([*expected.values()], "1.37") == []
    keda = ",autoscaling.keda=true,rollout.enabled=true"
    chart = by_name(templated(tmp_path / "helm", "--set", f"{EVERYTHING}{keda}"))
    assert {key: _normal(each) for key, each in chart.items()} == {
        key: _normal(each) for key, each in expected.items()
    }
    run("helm", "lint", "--strict", tmp_path / "helm")


# PromQL.


@pytest.mark.prometheus
def test_promtool_takes_rules_and_queries(exports: Mapping[str, Path], tmp_path: Path) -> None:
    for name, root in exports.items():
        groups, queries = [], []
        for each in built(root / "kubernetes" / "overlays" / "rollout"):
            if each["kind"] == "PrometheusRule":
                groups += each["spec"]["groups"]
            elif each["kind"] == "AnalysisTemplate":
                providers = [metric["provider"] for metric in each["spec"]["metrics"]]
                queries += [one["prometheus"]["query"] for one in providers if "prometheus" in one]
            elif each["kind"] == "ScaledObject":
                queries += [trigger["metadata"]["query"] for trigger in each["spec"]["triggers"]]
        assert groups and len(queries) >= 4
        listed = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
        file = tmp_path / f"{name}.yml"
        file.write_text(yaml.safe_dump({"groups": [*groups, {"name": "queries", "rules": listed}]}))
        assert "SUCCESS" in promtool("check", "rules", file)


# The checks themselves can fail.

BROKEN: Mapping[str, Callable[[Any], None]] = {
    "typo": lambda each: each["spec"]["template"]["spec"].update(contaners=[]),
    "removed version": lambda each: each.update(apiVersion="extensions/v1beta1"),
    "unknown kind": lambda each: each.update(kind="Deplyoment"),
    "wrong type": lambda each: each["spec"].update(revisionHistoryLimit="three"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_object_is_a_fault(oci: Path, name: str) -> None:
    objects = by_name(built(oci / "base"))
    broken = copy.deepcopy(objects["Deployment", "sentiment"])
    BROKEN[name](broken)
    assert len(faults([broken], "1.33")) == 1


def test_a_broken_custom_object_is_a_fault(oci: Path) -> None:
    objects = by_name(built(oci / "overlays" / "rollout"))

    changes: list[tuple[str, Callable[[Any], None]]] = [
        ("ScaledObject", lambda each: each["spec"].update(maxReplicas=3)),
        ("ScaledObject", lambda each: each["spec"].update(maxReplicaCount="3")),
        ("HTTPRoute", lambda each: each["spec"]["rules"][0].update(backends=[])),
        ("Rollout", lambda each: each["spec"]["strategy"]["canary"]["steps"][0].update(setWeight="10")),
        ("Rollout", lambda each: each.update(apiVersion="argoproj.io/v1")),
        ("ServiceMonitor", lambda each: each["spec"]["endpoints"][0].update(interval="often")),
    ]
    broken: list[Any] = []
    for kind, change in changes:
        broken.append(copy.deepcopy(objects[kind, "sentiment"]))
        change(broken[-1])
    assert [index for index, listed in enumerate(custom_faults(broken)) if not listed] == []


def _normal(value: Any) -> Any:
    """Without empty lists, which a patch leaves, and lists of named things by name, which it reorders."""
    if isinstance(value, dict):
        return {name: _normal(each) for name, each in value.items() if each != []}
    if not isinstance(value, list):
        return value
    each_named = all(isinstance(each, dict) and "name" in each for each in value)
    listed = [_normal(each) for each in value]
    return sorted(listed, key=lambda each: str(each["name"])) if each_named else listed
