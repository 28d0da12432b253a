"""Validates the manifests of its standard input, and says as JSON what is wrong with each."""

import json
import sys

import kubernetes_validate
import yaml

said = {}
for manifest in yaml.safe_load_all(sys.stdin):
    try:
        kubernetes_validate.validate(manifest, sys.argv[1], strict=True)
        wrong = None
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        wrong = str(error)
    said[f"{manifest['kind']} {manifest['metadata']['name']}"] = wrong
json.dump(said, sys.stdout)
