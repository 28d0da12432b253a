"""Validate the manifests on standard input, and print the problem of each as JSON; null if there is none."""

import json
import sys

import kubernetes_validate
import yaml

problems = {}
for manifest in yaml.safe_load_all(sys.stdin):
    try:
        kubernetes_validate.validate(manifest, sys.argv[1], strict=True)
        problem = None
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        problem = str(error)
    problems[f"{manifest['kind']} {manifest['metadata']['name']}"] = problem
json.dump(problems, sys.stdout)
