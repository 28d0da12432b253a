"""Builds the sdist and, from it, the wheel into dist/.

Only tracked files are built, so that nothing of a working copy gets into a release. The same commit gives the
same wheel, byte for byte.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"


def git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True).stdout


def copy_tracked_files(target: str) -> None:
    """Copy the tracked files as they are now, with their links."""
    # a commit of the changes in the working copy, or nothing if there are none
    commit = git("stash", "create").decode().strip() or "HEAD"
    with tarfile.open(fileobj=io.BytesIO(git("archive", "--format=tar", commit))) as archive:
        archive.extractall(target, filter="tar")


def add_addresses(project: Path, repository: str) -> None:
    """Write the addresses of the repository, which a clone does not know, into the metadata."""
    lines = f'Source = "{repository}"\nChangelog = "{repository}/blob/main/CHANGELOG.md"\n'
    with project.open("a", encoding="utf-8") as file:
        file.write(f"\n[project.urls]\n{lines}")


def main() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    environment = os.environ | {"SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct").decode().strip()}
    with tempfile.TemporaryDirectory() as folder:
        copy_tracked_files(folder)
        # GitHub sets both in a workflow
        if {"GITHUB_SERVER_URL", "GITHUB_REPOSITORY"} <= environment.keys():
            repository = f"{environment['GITHUB_SERVER_URL']}/{environment['GITHUB_REPOSITORY']}"
            add_addresses(Path(folder, "pyproject.toml"), repository)
        command = [sys.executable, "-m", "build", "--installer", "uv", "--outdir", DIST, folder]
        built = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if built.returncode:
        sys.exit(built.stdout + built.stderr)
    sys.stdout.writelines(f"{path.relative_to(ROOT)}\n" for path in sorted(DIST.iterdir()))


if __name__ == "__main__":
    main()
