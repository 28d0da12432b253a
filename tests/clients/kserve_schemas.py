"""Makes KServe's classes of the manifests of its standard input, and says as JSON what does not fit them."""

import json
import re
import sys

import kserve.models
import kubernetes.client.models
import yaml

KINDS = {"ServingRuntime": "V1alpha1ServingRuntime", "InferenceService": "V1beta1InferenceService"}
PLAIN = {"str": str, "int": int, "bool": bool}


def strange(value, kind, where):
    """Where a value is not of the kind that the generated classes say."""
    if inner := re.fullmatch(r"list\[(.+)\]|dict\(str, (.+)\)", kind):
        items = enumerate(value) if inner[1] else value.items()
        return [found for key, one in items for found in strange(one, inner[1] or inner[2], f"{where}.{key}")]
    if hasattr(kserve.models, kind):
        return strange_model(value, getattr(kserve.models, kind), where)
    if hasattr(kubernetes.client.models, kind):
        return strange_part(value, getattr(kubernetes.client.models, kind), where)
    return [] if isinstance(value, PLAIN[kind]) else [where]


def strange_model(value, model, where):
    kinds = {key: model.openapi_types[name] for name, key in model.attribute_map.items()}
    found = [f"{where}.{key}" for key in value if key not in kinds]
    try:
        # it refuses to be made without what it needs
        model(**{name: value.get(key) for name, key in model.attribute_map.items()})
    except ValueError as error:
        found.append(f"{where}: {error}")
    known = [(key, one) for key, one in value.items() if key in kinds]
    return found + [each for key, one in known for each in strange(one, kinds[key], f"{where}.{key}")]


def strange_part(value, model, where):
    """The same of a class of Kubernetes, which passes over what it does not know."""
    try:
        read = json.loads(model.from_dict(value).to_json())
    except ValueError as error:
        return [f"{where}: {error}"]
    return [] if read == value else [f"{where}: {value} is read as {read}"]


said = {}
for manifest in yaml.safe_load_all(sys.stdin):
    said[manifest["kind"]] = strange(manifest, KINDS[manifest["kind"]], manifest["kind"])
json.dump(said, sys.stdout)
