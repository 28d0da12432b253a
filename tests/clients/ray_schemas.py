"""Check a config file on standard input against Ray's schema; prints the problem as JSON, null for none."""

import json
import sys

import yaml
from pydantic import ValidationError
from ray.serve.schema import ServeDeploySchema

try:
    ServeDeploySchema.model_validate(yaml.safe_load(sys.stdin))
    problem = None
except ValidationError as error:
    problem = str(error)
json.dump(problem, sys.stdout)
