"""Check the manifests on standard input against KServe's classes, and print the problems as JSON."""

import json
import re
import sys

import kserve.models
import kubernetes.client.models
import yaml

KINDS = {"ServingRuntime": "V1alpha1ServingRuntime", "InferenceService": "V1beta1InferenceService"}
PLAIN = {"str": str, "int": int, "bool": bool}


def problems(value, kind, where):
    """The paths of values that do not have the type of the generated classes."""
    if inner := re.fullmatch(r"list\[(.+)\]|dict\(str, (.+)\)", kind):
        items = enumerate(value) if inner[1] else value.items()
        return [
            found for key, one in items for found in problems(one, inner[1] or inner[2], f"{where}.{key}")
        ]
    if hasattr(kserve.models, kind):
        return model_problems(value, getattr(kserve.models, kind), where)
    if hasattr(kubernetes.client.models, kind):
        return part_problems(value, getattr(kubernetes.client.models, kind), where)
    return [] if isinstance(value, PLAIN[kind]) else [where]


def model_problems(value, model, where):
    kinds = {key: model.openapi_types[name] for name, key in model.attribute_map.items()}
    found = [f"{where}.{key}" for key in value if key not in kinds]
    try:
        # the constructor raises an error if a required field is missing
        model(**{name: value.get(key) for name, key in model.attribute_map.items()})
    except ValueError as error:
        found.append(f"{where}: {error}")
    known = [(key, item) for key, item in value.items() if key in kinds]
    return found + [path for key, item in known for path in problems(item, kinds[key], f"{where}.{key}")]


def part_problems(value, model, where):
    """The same for a class of Kubernetes, which ignores unknown fields."""
    try:
        read = json.loads(model.from_dict(value).to_json())
    except ValueError as error:
        return [f"{where}: {error}"]
    return [] if read == value else [f"{where}: {value} is read as {read}"]


by_kind = {}
for manifest in yaml.safe_load_all(sys.stdin):
    by_kind[manifest["kind"]] = problems(manifest, KINDS[manifest["kind"]], manifest["kind"])
json.dump(by_kind, sys.stdout)
