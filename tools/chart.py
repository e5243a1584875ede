"""Render the Helm chart with each option, and validate the manifests.

    python -m tools.chart                            with the schemas of Kubernetes
    python -m tools.chart --crds FILE FILE …         also with the CustomResourceDefinitions of operators

It needs the package `helm-python-sdk`, which is not in the lock: it contains Helm and takes 250 MB. The files
of the operators are `ray.io_rayclusters.yaml` of KubeRay, `keda.sh_scaledobjects.yaml` of KEDA and
`monitoring.coreos.com_servicemonitors.yaml` of the Prometheus operator.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from tools import lock

CHART = lock.ROOT / "deploy" / "helm"
OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "more servers": {"server": {"autoscaling": {"cpuPercent": 70}}},
    "KEDA": {"worker": {"autoscaling": {"prometheus": "http://prometheus:9090"}}},
    "KubeRay": {"ray": {"enabled": True}},
    "Prometheus operator": {"firstAccount": "ada@example.com", "monitor": {"enabled": True}},
}
CUSTOM_KINDS = {"RayCluster", "ScaledObject", "ServiceMonitor"}


def render(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the manifests of the chart; raises `ImportError` without the package `helm-python-sdk`."""
    chart = import_module("helm_python").Chart.load(str(CHART))
    texts = chart.render(dict(values), name="sixfold", namespace="sixfold")
    manifests = [text for name, text in sorted(texts.items()) if not name.endswith(".txt")]
    return [document for text in manifests for document in yaml.safe_load_all(text) if document]


def strict(schema: Any) -> Any:
    """Return a structural schema as a JSON schema that rejects unknown fields, as `kubectl` does."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    result: dict[str, Any] = {
        name: {field: strict(each) for field, each in value.items()}
        if name == "properties"
        else strict(value)
        for name, value in schema.items()
    }
    if result.get("x-kubernetes-int-or-string"):
        result.pop("type", None)
        result.setdefault("anyOf", [{"type": "integer"}, {"type": "string"}])
    unknown_fields = result.get("x-kubernetes-preserve-unknown-fields", False)
    return result if "properties" not in result else {"additionalProperties": unknown_fields, **result}


def custom_schemas(files: list[Path]) -> dict[tuple[str, str], Any]:
    """Return the schema of each version and kind that the CustomResourceDefinitions in `files` define."""
    schemas: dict[tuple[str, str], Any] = {}
    for file in files:
        spec = yaml.safe_load(file.read_text())["spec"]
        for version in spec["versions"]:
            schema = strict(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}
            schemas[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema
    return schemas


def errors(document: Mapping[str, Any], schemas: Mapping[tuple[str, str], Any]) -> Iterator[str]:
    """Yield what is wrong with a custom resource; a kind without a schema is an error as well."""
    name = document["apiVersion"], document["kind"]
    if name not in schemas:
        yield f"{name[1]}: no schema of {name[0]}; name its CustomResourceDefinition with --crds"
        return
    validator = import_module("jsonschema").Draft202012Validator(schemas[name])
    for error in validator.iter_errors(document):
        yield f"{name[1]}: {'.'.join(map(str, error.absolute_path))}: {error.message[:200]}"


def main() -> int:
    """Validate the manifests of each option; return the exit status."""
    parser = argparse.ArgumentParser(prog="chart", description="Render and validate the Helm chart.")
    parser.add_argument("--crds", type=Path, nargs="+", default=[], help="CustomResourceDefinitions")
    inputs = parser.parse_args()
    schemas, validate = custom_schemas(inputs.crds), import_module("kubernetes_validate")
    messages: list[str] = []
    for option, values in OPTIONS.items():
        documents = render(values)
        for document in documents:
            if document["kind"] not in CUSTOM_KINDS:
                validate.validate(document, validate.latest_version(), strict=True)
            elif inputs.crds:
                messages += errors(document, schemas)
        print(f"{option:20} {len(documents)} manifests")
    print(*messages, sep="\n", end="\n" if messages else "")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
