"""Prints what CycloneDX's own schema finds wrong in a bill of materials, as JSON; null if nothing."""

import json
import sys
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

text = Path(sys.argv[1]).read_text(encoding="utf-8")
version = SchemaVersion.from_version(json.loads(text)["specVersion"])
error = JsonStrictValidator(version).validate_str(text)
sys.stdout.write(json.dumps(error and str(error)))
