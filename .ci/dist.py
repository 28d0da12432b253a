"""Builds the sdist and, from it, the wheel into dist/.

Tracked files are built as they are now, and nothing else of a working copy. The same files and commit give
the same wheel, byte for byte.
"""

from __future__ import annotations

import io
import os
import re
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


def add_addresses(folder: Path, repository: str, version: str) -> None:
    """Write the addresses of the repository, which a clone does not know, into metadata and README."""
    with (folder / "pyproject.toml").open("a", encoding="utf-8") as project:
        project.write(
            "\n[project.urls]\n"
            f'Source = "{repository}"\n'
            f'Documentation = "{repository}/blob/{version}/docs/README.md"\n'
            f'Changelog = "{repository}/blob/{version}/CHANGELOG.md"\n'
        )
    # a package index shows the README, without the files that it links to
    readme = folder / "README.md"
    text = re.sub(
        r"!\[([^]]*)\]\((?!https?:)", rf"![\1]({repository}/raw/{version}/", readme.read_text("utf-8")
    )
    text = re.sub(r"(?<!!)\[([^]]*)\]\((?!https?:|#)", rf"[\1]({repository}/blob/{version}/", text)
    readme.write_text(text, "utf-8")


def main() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    environment = os.environ | {"SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct").decode().strip()}
    with tempfile.TemporaryDirectory() as folder:
        copy_tracked_files(folder)
        # GitHub sets these in a workflow
        if {"GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_REF_NAME"} <= environment.keys():
            repository = f"{environment['GITHUB_SERVER_URL']}/{environment['GITHUB_REPOSITORY']}"
            add_addresses(Path(folder), repository, environment["GITHUB_REF_NAME"])
        command = [sys.executable, "-m", "build", "--installer", "uv", "--outdir", DIST, folder]
        built = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if built.returncode:
        sys.exit(built.stdout + built.stderr)
    sys.stdout.writelines(f"{path.relative_to(ROOT)}\n" for path in sorted(DIST.iterdir()))


if __name__ == "__main__":
    main()
