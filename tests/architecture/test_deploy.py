"""The files of deploy/ are valid for the programs that read them, where these are installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from sixfold import settings
from sixfold.core.gateway.gateway import TokenCounts
from sixfold.web.metrics import Metrics
from tests.architecture import source
from tools import chart
from tools import container_smoke_test as images_tool

DEPLOY = source.ROOT / "deploy"
DEFAULTS = {field.name: field.default for field in fields(settings.Settings)}
KNOWN = {f"SIXFOLD_{name.upper()}" for name in DEFAULTS}


def steps() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, with continued lines put together."""
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", source.text("deploy/Dockerfile"), flags=re.MULTILINE))
    pairs = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    return [(word, " ".join(rest.split())) for word, rest in pairs]


def composed() -> dict[str, Any]:
    return yaml.safe_load(source.text("deploy/compose/compose.yaml"))


def test_image_copies_existing_files_and_runs_unprivileged() -> None:
    result = steps()
    remaining = {
        line.strip()[1:]
        for line in source.text("deploy/Dockerfile.dockerignore").splitlines()
        if line[0] == "!"
    }
    copied = [rest.split()[:-1] for word, rest in result if word == "COPY" and not rest.startswith("--from")]
    for name in chain.from_iterable(copied):
        assert (source.ROOT / name).exists(), name
        assert any(Path(name).match(pattern) for pattern in remaining), f"{name} is ignored"
    assert [rest for word, rest in result if word == "USER"] == ["10001"]
    last = [word for word, _ in result]
    assert "RUN" not in last[last.index("USER") :], "nothing is done to the image after its user is chosen"
    project = tomllib.loads(source.text("pyproject.toml"))["project"]
    (extras,) = (rest.partition("=")[2] for word, rest in result if word == "ARG")
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    text = dict(result)
    assert json.loads(text["ENTRYPOINT"])[0] in project["scripts"]
    assert json.loads(text["HEALTHCHECK"].partition("CMD ")[2])[0] == "python"


def test_every_setting_in_deploy_files_exists() -> None:
    for path in sorted(DEPLOY.rglob("*")):
        if path.is_file():
            named = set(re.findall(r"SIXFOLD_[A-Z_]+[A-Z]", path.read_text()))
            assert named <= KNOWN, (path.name, named - KNOWN)


def test_every_probe_path_is_a_route() -> None:
    request = re.findall(r"path: (/\w+)", source.text("deploy/kubernetes/sixfold.yaml"))
    (healthy,) = (rest for word, rest in steps() if word == "HEALTHCHECK")
    request += re.findall(r"127\.0\.0\.1:8600(/\w+)", healthy)
    assert len(request) == 4
    assert set(request) <= set(source.text("src/sixfold/api/platform/routes.py").split('"')), request


def test_compose_file_is_consistent() -> None:
    document = composed()
    services: dict[str, dict[str, Any]] = document["services"]
    for name, service in services.items():
        assert set(service.get("depends_on", ())) <= set(services), name
        for secret in service.get("secrets", ()):
            assert secret["source"] in document["secrets"]
        for volume in service.get("volumes", ()):
            where = volume.partition(":")[0]
            assert where in document["volumes"] or (DEPLOY / "compose" / where).exists(), volume
        for other, expected in service.get("depends_on", {}).items() if "store" in service else ():
            assert "healthcheck" in services[other] or expected != {"condition": "service_healthy"}
    assert {services[name]["command"][0] for name in ("server-1", "server-2")} == {"serve"}


def test_small_compose_file_reaches_the_machine_that_runs_it() -> None:
    document = yaml.safe_load(source.text("deploy/compose/small.yaml"))
    (service,) = document["services"].values()
    assert service["image"] == OWN_IMAGE
    assert service["ports"] == ["127.0.0.1:8600:8600"]
    assert service["environment"]["SIXFOLD_PUBLIC_URL"] == "http://localhost:8600"
    assert [entry.partition(":")[0] for entry in service["extra_hosts"]] == ["host.docker.internal"]
    assert [volume.partition(":")[0] for volume in service["volumes"]] == list(document["volumes"])


def test_image_names_the_licenses_of_its_codecs() -> None:
    (label,) = (rest for word, rest in steps() if word == "LABEL")
    (licenses,) = re.findall(r'image\.licenses="([^"]+)"', label)
    for name in ("GPL-2.0-or-later", "GPL-3.0-or-later", "LGPL-2.1-or-later"):
        assert name in licenses.split(" AND ")
        assert name in source.text("docs/reference/licenses.md")


def test_image_locks_the_packages_of_extras_with_engines() -> None:
    extras = tomllib.loads(source.text("pyproject.toml"))["project"]["optional-dependencies"]
    (step,) = (rest for word, rest in steps() if word == "RUN" and rest.startswith("case"))
    locked = set(re.findall(r"\*(\w+)\*", step.partition(")")[0]))
    needed = {name for name, rows in extras.items() if any("sixfold[embedded" in row for row in rows)}
    assert locked == needed - {"test", "dev"} | {"embedded"}
    for variant in re.findall(r"EXTRAS=([\w,]+)", source.text("docs/howto/deploy.md")):
        assert set(variant.split(",")) <= set(extras), variant


def test_image_keeps_the_detectors_that_engines_load() -> None:
    detector = re.compile(r"haarcascade_\w+\.xml")
    engine = source.text("src/sixfold/engines/image/face_detection.py")
    assert set(detector.findall(source.text("deploy/Dockerfile"))) == set(detector.findall(engine))


# Built from this checkout, so it has no tag of a registry.
OWN_IMAGE = "sixfold"
IMAGE = re.compile(r"(?:^|/)[\w.-]+(?::(?P<tag>[\w.-]+))?(?:@sha256:[0-9a-f]{64})?$")


def images() -> list[tuple[str, str]]:
    """Return every image of a registry that deploy/ and its check use, with the file that names it."""
    results: list[tuple[str, str]] = []
    for path in sorted(DEPLOY.rglob("*")):
        text = path.read_text() if path.is_file() else ""
        if path.suffix == ".yaml" and DEPLOY / "helm" not in path.parents:
            names = re.findall(r"^[ -]*image: *\"?([^\s\"]+)", text, re.MULTILINE)
            results += [(path.name, name) for name in names]
        elif path.name == "Dockerfile":
            stages = set(re.findall(r"^FROM .* AS (\S+)", text, re.MULTILINE))
            names = re.findall(r"^FROM (?:--\S+ )*(\S+)", text, re.MULTILINE)
            results += [(f"{path.parent.name}/Dockerfile", name) for name in names if name not in stages]
        elif path.suffix == ".sh":
            command = r"(?:docker|podman) (?:run|pull) .*?(\S+)$"
            results += [(path.name, name) for name in re.findall(command, text, re.MULTILINE)]
    return [(file, name) for file, name in results if name.partition(":")[0] != OWN_IMAGE]


def is_pinned(name: str) -> bool:
    """Return whether an image's name has a digest, or a tag other than `latest`."""
    result = IMAGE.search(name)
    return "@sha256:" in name or (result is not None and result["tag"] not in (None, "latest"))


def test_every_registry_image_is_pinned_by_tag_or_digest() -> None:
    assert {name for _, name in images()} >= {"nginx:1.28-alpine", "postgres:18-alpine", "python:3.11-slim"}
    assert [(file, name) for file, name in images() if not is_pinned(name)] == []
    for name in ("minio/minio", "minio/minio:latest", "host:5000/store", "host:5000/store:latest"):
        assert not is_pinned(name)
    assert is_pinned("host:5000/store:2.1")
    assert is_pinned(f"minio/minio@sha256:{'0' * 64}")


def test_compose_check_substitutes_the_images_of_the_file() -> None:
    images = {service["image"] for service in composed()["services"].values()} - {OWN_IMAGE}
    known = set(images_tool.STAND_INS.values())
    assert {name.removeprefix("docker.io/").removeprefix("library/") for name in known} == images


def test_only_servers_reach_the_store_of_the_compose_file() -> None:
    services: dict[str, dict[str, Any]] = composed()["services"]
    near = {name for name, service in services.items() if "files" in service.get("networks", ())}
    assert near == {"server-1", "server-2", "head", "store"}
    assert list(services["store"]["networks"]) == ["files"]


@pytest.mark.skipif(shutil.which("nginx") is None, reason="no nginx on this machine")
def test_nginx_accepts_the_proxy_configuration(tmp_path: Path) -> None:
    text = source.text("deploy/compose/nginx.conf")
    for name in ("server-1", "server-2"):
        assert name in composed()["services"]
        text = text.replace(f"{name}:8600", "127.0.0.1:8600")
    (tmp_path / "nginx.conf").write_text(f"pid {tmp_path}/pid;\nerror_log stderr;\n{text}")
    command = ["nginx", "-t", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "non_idempotent;" not in text, "a call that is sent twice may be paid twice"


# Fields of the custom resources in the chart that the schemas of the operators have (docs/howto/deploy.md).
VALIDATED_FIELDS = {
    "RayCluster": """rayVersion enableInTreeAutoscaling headGroupSpec workerGroupSpecs rayStartParams
        groupName replicas minReplicas maxReplicas template""",
    "ScaledObject": """scaleTargetRef minReplicaCount maxReplicaCount triggers type serverAddress query
        threshold""",
    "ServiceMonitor": "selector matchLabels endpoints port path authorization credentials",
}
# Fields that every manifest of Kubernetes or a pod has, which kubernetes-validate knows.
_KUBERNETES_FIELDS = {"apiVersion", "kind", "metadata", "name", "labels", "annotations", "spec"}
_POD_FIELDS = {"containers", "env", "command", "args", "resources"}


def _validate(documents: list[dict[str, Any]]) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for document in documents:
        if document["kind"] not in chart.CUSTOM_KINDS:
            validate.validate(document, validate.latest_version(), strict=True)


def _render(option: str) -> list[dict[str, Any]]:
    pytest.importorskip("helm_python", reason="helm-python-sdk is not installed")
    return chart.render(chart.OPTIONS[option])


def _manifests() -> list[dict[str, Any]]:
    text = source.text("deploy/kubernetes/sixfold.yaml")
    return [document for document in yaml.safe_load_all(text) if document]


def _name(document: dict[str, Any]) -> tuple[str, str]:
    return document["kind"], document["metadata"]["name"]


def test_manifests_equal_the_rendered_chart() -> None:
    assert sorted(_render("defaults"), key=_name) == sorted(_manifests(), key=_name)


@pytest.mark.parametrize(
    ("option", "kinds"),
    [
        ("more servers", {"HorizontalPodAutoscaler"}),
        ("KEDA", {"ScaledObject"}),
        ("KubeRay", {"RayCluster"}),
        ("Prometheus operator", {"Job", "ServiceMonitor"}),
    ],
)
def test_the_chart_renders_with_each_option(option: str, kinds: set[str]) -> None:
    documents = _render(option)
    _validate(documents)
    names = [_name(document) for document in documents]
    assert kinds <= {kind for kind, _ in names}
    assert len(set(names)) == len(names)


def test_custom_resources_have_only_validated_fields() -> None:
    """A new field is validated with `python -m tools.chart --crds`, and added to the table."""
    text = "".join(path.read_text() for path in sorted((chart.CHART / "templates").glob("*.yaml")))
    fields: dict[str, set[str]] = {}
    for manifest in re.split(r"^apiVersion: ", text, flags=re.MULTILINE):
        (kind,) = re.findall(r"^kind: (\w+)", manifest, re.MULTILINE) or [""]
        if kind in chart.CUSTOM_KINDS:
            fields[kind] = set(re.findall(r"^ *(?:- )?([a-z]\w+):(?: |$)", manifest, re.MULTILINE))
    assert fields.keys() == chart.CUSTOM_KINDS == VALIDATED_FIELDS.keys()
    for kind, names in fields.items():
        assert names - _KUBERNETES_FIELDS - _POD_FIELDS == set(VALIDATED_FIELDS[kind].split()), kind


def test_ray_pods_have_probes_and_the_head_a_token() -> None:
    """KubeRay's own probes need ray[default] or wget, and its autoscaler the token of a service account."""
    head, workers = source.text("deploy/helm/templates/ray.yaml").split("workerGroupSpecs:")
    for group in (head, workers):
        (port,) = re.findall(r'include "sixfold.rayProbes" (\d+)', group)
        assert group == head or f'node-manager-port: "{port}"' in group
    assert ['"token"' in group for group in (head, workers)] == [True, False]


def test_chart_check_rejects_fields_that_a_custom_resource_lacks(tmp_path: Path) -> None:
    port = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {}}
    spec = {"type": "object", "properties": {"port": port, "free": free}}
    schema = {"type": "object", "properties": {"apiVersion": {}, "kind": {}, "metadata": {}, "spec": spec}}
    definition = {
        "spec": {
            "group": "example.com",
            "names": {"kind": "Lamp"},
            "versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}],
        }
    }
    (tmp_path / "lamp.yaml").write_text(yaml.safe_dump(definition))
    schemas = chart.custom_schemas([tmp_path / "lamp.yaml"])
    lamp = {"apiVersion": "example.com/v1", "kind": "Lamp", "metadata": {"name": "a"}}
    for port_value in (80, "http"):
        assert not list(chart.errors({**lamp, "spec": {"port": port_value, "free": {"any": 1}}}, schemas))
    (unknown,) = chart.errors({**lamp, "spec": {"ports": 80}}, schemas)
    assert "'ports' was unexpected" in unknown
    (missing,) = chart.errors({**lamp, "apiVersion": "example.com/v2", "spec": {}}, schemas)
    assert "no schema of example.com/v2" in missing


def test_workers_are_scaled_by_an_existing_metric() -> None:
    text = source.text("deploy/helm/templates/worker.yaml")
    (metric,) = re.findall(r"query: .*\b(sixfold_\w+)", text)
    assert f'"{metric}"' in source.text("src/sixfold/web/metrics.py")


def test_manifests_are_valid_for_kubernetes() -> None:
    documents = _manifests()
    _validate(documents)
    kinds = [document["kind"] for document in documents]
    assert kinds.count("Deployment") == 2
    for document in documents:
        if document["kind"] == "Deployment":
            inside = document["spec"]["template"]["spec"]
            assert inside["securityContext"]["runAsNonRoot"]
            drain = DEFAULTS["drain_seconds"]
            assert isinstance(drain, int | float)
            assert inside["terminationGracePeriodSeconds"] > drain, "a server is given the time to drain"
            labels = document["spec"]["template"]["metadata"]["labels"]
            assert document["spec"]["selector"]["matchLabels"] == labels


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd on this machine")
@pytest.mark.parametrize("unit", ["sixfold.service", "sixfold-worker.service"])
def test_units_are_valid_for_systemd(unit: str, tmp_path: Path) -> None:
    text = source.text(f"deploy/systemd/{unit}")
    shutil.copy("/bin/true", tmp_path / "sixfold")
    (tmp_path / unit).write_text(text.replace("/opt/sixfold/bin/sixfold", str(tmp_path / "sixfold")))
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / unit)]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if "Failed to initialize" in result.stderr or "Operation not permitted" in result.stderr:
        pytest.skip("systemd-analyze cannot run here")
    assert (result.returncode, result.stderr) == (0, "")


def test_container_walks_follow_the_documented_commands() -> None:
    """The tool runs them in containers as root, which no test does; each is in the guide."""
    guide, tool = source.text("docs/howto/deploy.md"), source.text("tools/container_walks.py")
    commands = re.findall(r'run\(("[^()]*)\)', tool)
    words = [" ".join(re.findall(r'"([^"]+)"', command)) for command in commands]
    documented = ("python3 -m venv /opt/sixfold", "systemctl enable --now sixfold")
    assert set(documented) <= set(words)
    assert all(f"$ {command}" in guide for command in documented)
    assert "small.yaml run --rm sixfold account create you@example.com --credit 10 --operator" in guide
    assert {"run --rm -T sixfold", "up -d --no-build"} <= set(words)


def read_exposed() -> set[str]:
    """Return the names of the series of /metrics."""
    metrics = Metrics()
    metrics.count_response("platform", "/", "GET", 200, 0.1)
    metrics.add_gateway(TokenCounts())
    results: set[str] = {"up"}
    for family in metrics._registry.collect():
        results |= {family.name, f"{family.name}_total", f"{family.name}_bucket"}
    return results


def test_prometheus_rules_are_valid_and_use_our_series() -> None:
    promql = pytest.importorskip("promql_parser", reason="promql-parser is not installed")
    (group,) = yaml.safe_load(source.text("deploy/prometheus/sixfold.rules.yaml"))["groups"]
    for rule in group["rules"]:
        promql.parse(rule["expr"])
        series = set(re.findall(r"\b(?:sixfold_\w+|up)\b", rule["expr"]))
        assert series, rule["alert"]
        assert series <= read_exposed(), (rule["alert"], series - read_exposed())
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert rule["annotations"]["summary"]
