"""Writes the software bill of materials of images, in CycloneDX's JSON format: dist/IMAGE.cdx.json.

cyclonedx-bom lists the Python packages. It is installed in a container of the image, for this run only. The
packages of Debian are those that dpkg lists.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

DIST = Path(__file__).parents[1] / "dist"
TOOL = "cyclonedx-bom==7.5.0"
IMAGES = ("turnpike-service", "turnpike-export", "turnpike-loadtest", "turnpike-proxy")
# the environment with turnpike, which the proxy's image lacks, and that of the base
PYTHON_PACKAGES = f"""
set -e
/usr/local/bin/python -m venv /tmp/sbom
/tmp/sbom/bin/pip install --quiet {TOOL} >&2
for python in /opt/turnpike/bin/python /usr/local/bin/python; do
    [ ! -x $python ] || /tmp/sbom/bin/cyclonedx-py environment --output-reproducible $python
done
"""
DEBIAN_PACKAGES = """
. /etc/os-release
echo "$ID $VERSION_CODENAME"
/usr/local/bin/python -c 'import platform; print(platform.python_version())'
dpkg-query --show --showformat '${Package} ${Version} ${Architecture}\\n'
"""


def run_inside(image: str, script: str) -> str:
    """The output of a script in a container, as root: the user of an image cannot install anything."""
    command = ["docker", "run", "--rm", "--user=0", "--entrypoint=sh", image, "-c", script]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def documents(text: str) -> list[dict[str, Any]]:
    """The JSON documents that follow each other in a text."""
    found, decoder = [], json.JSONDecoder()
    while text := text.strip():
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:]
    return found


def debian_components(text: str) -> list[dict[str, str]]:
    """Python itself and the packages of Debian, from what DEBIAN_PACKAGES prints."""
    system, python, *packages = text.splitlines()
    distribution, release = system.split()
    components = [{"name": "python", "version": python, "purl": f"pkg:generic/python@{python}"}]
    for package in packages:
        name, version, architecture = package.split()
        # in the address of a package, a + would be a space
        escaped = quote(version, safe="~")
        purl = f"pkg:deb/{distribution}/{name}@{escaped}?arch={architecture}&distro={release}"
        components.append({"name": name, "version": version, "purl": purl})
    return [{"type": "library", "bom-ref": one["purl"], **one} for one in components]


def describe(image: str) -> dict[str, Any]:
    """The bill of materials of an image."""
    bill, *others = documents(run_inside(image, PYTHON_PACKAGES))
    for other in others:
        known = {component["bom-ref"] for component in bill["components"]}
        for part, key in (("components", "bom-ref"), ("dependencies", "ref")):
            bill[part] += [entry for entry in other.get(part, ()) if entry[key] not in known]
    bill.setdefault("components", []).extend(debian_components(run_inside(image, DEBIAN_PACKAGES)))
    bill["metadata"]["component"] = {"type": "container", "name": image, "bom-ref": image}
    return bill


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("images", nargs="*", default=IMAGES, help=f"default: {' '.join(IMAGES)}")
    DIST.mkdir(exist_ok=True)
    for image in parser.parse_args().images:
        if subprocess.run(
            ["docker", "image", "inspect", image], stdout=subprocess.DEVNULL, check=False
        ).returncode:
            sys.exit(f"{image}: expected an image that is built, such as by docker compose build")
        file = DIST / f"{image.rpartition('/')[2].partition(':')[0]}.cdx.json"
        bill = describe(image)
        file.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
        sys.stdout.write(f"{file.relative_to(DIST.parent)}: {len(bill['components'])} components\n")


if __name__ == "__main__":
    main()
