"""docker-compose.yml is hardened, limited and documented. These tests read the file and need no engine."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from turnpike.common.distribution import VERSION
from turnpike.service.config.settings import Settings

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
FILE = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
CONTEXT = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
DOCUMENT = (ROOT / "docs/how-to/deploy.md").read_text(encoding="utf-8")
FILES = ("CERT", "KEY")
ONE_SHOT = {"export"}
# nothing connects to these, so they have no health check
WITHOUT_HEALTH_CHECK = {"export", "loadtest-worker"}
# those that clients reach without the proxy
DIRECT = ("service", "service-gpu", "service-openvino")
SERVING = (*DIRECT, "replica")
WITH_ONNXRUNTIME = (*SERVING, "export")
# settings that the compose file sets itself
SET_BY_FILE = {"models", "grpc_port", "drain_wait", "drain_seconds", "api_keys_file", "admin_key_file"}
# settings without a use in the container, options of the command, and keys that are not in files
NOT_PASSED_ON = {
    *("host", "port", "device", "tls_cert", "tls_key", "api_keys", "admin_key"),
    *("model_cache", "store_seconds", "weights_cache"),
    *("engine", "min_replicas", "max_replicas"),
    # an image of one's own has the application
    *("app", "fast_routes"),
    *("replica_requests", "replica_cpus", "replica_gpus", "replica_models"),
}


def seconds(text: str) -> float:
    match = re.fullmatch(r"(?:(\d+)m)?(?:(\d+)s)?", text)
    assert match, text
    return 60 * int(match[1] or 0) + int(match[2] or 0)


def environment(name: str) -> dict[str, str | None]:
    """The variables of a service; None for those that are passed on from the shell."""
    pairs = [entry.partition("=") for entry in SERVICES[name]["environment"]]
    return {key: value if mark else None for key, mark, value in pairs}


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_hardened(name: str) -> None:
    """A read-only root, no capabilities, and limits on memory, CPUs, processes and logs."""
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["init"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(entry.startswith("/tmp:size=") for entry in service["tmpfs"])
    assert service["pids_limit"] > 0
    assert re.fullmatch(r"\$\{[A-Z]+_MEMORY:-\d+[mg]\}", service["mem_limit"])
    assert re.fullmatch(r"\$\{[A-Z]+_CPUS:-[\d.]+\}", service["cpus"])
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}
    assert service["restart"] == ("no" if name in ONE_SHOT else "unless-stopped")
    assert not {"privileged", "cap_add", "pid", "ipc", "devices"} & service.keys()


@pytest.mark.parametrize("name", sorted(SERVICES.keys() - {"prometheus", "grafana"}))
def test_our_own_images_run_without_root(name: str) -> None:
    """Their user does not exist on the host."""
    assert SERVICES[name]["user"] == "10001:10001"


@pytest.mark.parametrize("name", sorted(SERVICES.keys() - WITHOUT_HEALTH_CHECK))
def test_every_server_has_a_health_check(name: str) -> None:
    """Every service that listens has a health check with a time limit."""
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] in ("CMD", "CMD-SHELL")
    assert seconds(check["timeout"]) <= seconds(check["interval"]) <= 30


@pytest.mark.parametrize("name", SERVING)
def test_the_health_check_asks_for_readiness(name: str) -> None:
    """`up --wait` must not end well if no model is served. It asks over HTTPS where that is spoken."""
    scheme = "http${TLS_CERT+s}" if name in DIRECT else "http"
    check = SERVICES[name]["healthcheck"]
    assert check["test"] == ["CMD", "alive", f"{scheme}://127.0.0.1:8000/v2/health/ready"]
    assert check["start_period"] == "${READY_SECONDS:-60}s"


@pytest.mark.parametrize("name", SERVING)
def test_only_services_without_a_proxy_have_the_certificate(name: str) -> None:
    """The options vanish from their command without a certificate. A new file makes a new container."""
    service = SERVICES[name]
    options = " ".join(
        f"${{TLS_{file}+--tls-{file.lower()} /run/secrets/tls_{file.lower()}}}" for file in FILES
    )
    has_certificate = name in DIRECT
    assert service.get("command", "").endswith(options) is has_certificate
    assert ({"tls_cert", "tls_key"} <= set(service["secrets"])) is has_certificate
    assert ("${TLS_CERT-} ${TLS_KEY-}" in service["labels"]["turnpike.keys"]) is has_certificate


def test_the_proxy_has_the_certificate_of_the_replicas() -> None:
    """Both ports speak TLS if a file is given, and the health check does."""
    proxy = SERVICES["proxy"]
    targets = {secret["source"]: secret["target"] for secret in proxy["secrets"]}
    # haproxy looks for the key in this file
    assert targets == {"tls_cert": "tls.pem", "tls_key": "tls.pem.key"}
    assert proxy["environment"] == ["TLS=${TLS_CERT+on}${TLS_KEY+on}"]
    assert proxy["labels"] == {"turnpike.keys": "${TLS_CERT-} ${TLS_KEY-}"}
    assert proxy["healthcheck"]["test"][-1] == "http${TLS_CERT+s}://127.0.0.1:8080/proxy/live"
    configuration = (ROOT / "deploy/proxy/haproxy.cfg").read_text(encoding="utf-8")
    binds = re.findall(
        r'^\.if !streq\("\$TLS",""\)\n    bind :(\d+) ssl crt /run/secrets/tls.pem', configuration, re.M
    )
    assert binds == ["8080", "8081"]


def test_the_load_test_speaks_https_to_a_service_with_a_certificate() -> None:
    """Its name for the service is not in the certificate."""
    command = SERVICES["loadtest"]["command"]
    assert "--host=${LOADTEST_HOST:-http${TLS_CERT+s}://service:8000}" in command
    assert command.endswith(" ${TLS_CERT+--insecure}")


@pytest.mark.parametrize("name", SERVING)
def test_a_service_has_time_to_drain(name: str) -> None:
    """It is not killed before both of its drains can end."""
    variables = environment(name)
    drain = float(variables["TURNPIKE_DRAIN_WAIT"] or "") + float(variables["TURNPIKE_DRAIN_SECONDS"] or "")
    assert seconds(SERVICES[name]["stop_grace_period"]) >= drain + 5


def test_the_proxy_detects_a_drain_in_time() -> None:
    """It checks a draining replica several times before that replica closes its port."""
    proxy = (ROOT / "deploy/proxy/haproxy.cfg").read_text(encoding="utf-8")
    # the same for HTTP and for gRPC
    interval, of_grpc = re.findall(r"check inter (\d+)ms fall 1 ", proxy)
    assert interval == of_grpc
    assert float(environment("replica")["TURNPIKE_DRAIN_WAIT"] or "") * 1000 >= 4 * int(interval)


def test_the_proxy_outlasts_its_requests() -> None:
    """It is killed only after haproxy has stopped waiting for answers."""
    proxy = (ROOT / "deploy/proxy/haproxy.cfg").read_text(encoding="utf-8")
    (hard,) = re.findall(r"hard-stop-after (\d+)s", proxy)
    assert seconds(SERVICES["proxy"]["stop_grace_period"]) > int(hard)
    assert SERVICES["proxy"]["stop_signal"] == "SIGUSR1"


@pytest.mark.parametrize("name", SERVING)
def test_every_setting_of_the_service_can_be_given(name: str) -> None:
    """Each is set by the file, passed on from the environment, or left out for a reason."""
    variables = environment(name)
    passed_on = Settings.model_fields.keys() - SET_BY_FILE - NOT_PASSED_ON
    known = {f"TURNPIKE_{field.upper()}" for field in passed_on}
    assert {key for key, value in variables.items() if value is None} == known


@pytest.mark.parametrize("name", WITH_ONNXRUNTIME)
def test_onnxruntime_sends_no_reports(name: str) -> None:
    """Unless the shell says so. An empty value would switch its reports on."""
    assert environment(name)["ORT_DISABLE_TELEMETRY"] == "${ORT_DISABLE_TELEMETRY:-1}"


def test_images_send_no_reports_without_compose_either() -> None:
    """The stage that all images with our code begin with sets the variable."""
    (run,) = re.findall(r"^FROM \S+ AS run$(.*?)^FROM ", DOCKERFILE, re.MULTILINE | re.DOTALL)
    assert re.search(r"^ENV .*\bORT_DISABLE_TELEMETRY=1\b", run, re.MULTILINE)


@pytest.mark.parametrize("name", SERVING)
def test_key_files_are_set_only_if_they_are_given(name: str) -> None:
    """Without a file the service's variable must not be set, because an empty one stops the start."""
    entries = SERVICES[name]["environment"]
    for file in FILES:
        assert FILE["secrets"][f"tls_{file.lower()}"] == {"file": f"${{TLS_{file}-/dev/null}}"}
    for key in ("API_KEYS", "ADMIN_KEY"):
        assert f"${{{key}_FILE+TURNPIKE_}}{key}_FILE=/run/secrets/{key.lower()}" in entries
        assert FILE["secrets"][key.lower()] == {"file": f"${{{key}_FILE-/dev/null}}"}


def test_models_are_mounted_read_only_in_the_service() -> None:
    """The export never writes to a folder of the user either."""
    for name in SERVING:
        assert SERVICES[name]["volumes"] == ["${MODELS:-models}:/models:ro"]
    assert SERVICES["export"]["volumes"] == ["${MODELS:-models}:/models${MODELS:+:ro}"]


@pytest.mark.parametrize("name", [*SERVING, "export"])
def test_a_folder_of_models_is_not_created(name: str) -> None:
    """A config is mounted only if it exists, and a volume is created. So a typo in MODELS stops the start."""
    (mount,) = SERVICES[name]["configs"]
    assert mount["source"] == "folder"
    assert FILE["configs"]["folder"] == {"file": "${MODELS:-/dev/null}"}


def test_the_export_has_no_network() -> None:
    assert SERVICES["export"]["network_mode"] == "none"
    assert "ports" not in SERVICES["export"]


def test_ports_are_open_to_the_local_host_only() -> None:
    """A variable may open them to others."""
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    for port in ports:
        assert port.startswith(("127.0.0.1:", "${BIND:-127.0.0.1}:"))


@pytest.mark.parametrize("profile", ["loadtest", "monitoring", "gpu", "scale"])
def test_every_profile_has_services(profile: str) -> None:
    """It is documented too."""
    assert [name for name, service in SERVICES.items() if profile in service.get("profiles", [])]
    assert f"--profile {profile}" in DOCUMENT


def test_every_variable_is_documented() -> None:
    """The table of docs/how-to/deploy.md has exactly the variables of the file, with their defaults."""
    found = re.findall(r"\$\{([A-Z_]+)(?::-((?:[^{}]|\{[^}]*\})*))?", TEXT)
    # without what a certificate changes
    used = {name: re.sub(r"\$\{TLS_CERT[^}]*\}", "", default) for name, default in found}
    rows = re.findall(r"^\| `([A-Z_]+)` \| ([^|]*) \|", DOCUMENT, re.MULTILINE)
    assert len(rows) == len(dict(rows))
    assert used.keys() | {"ROLL_SECONDS"} == dict(rows).keys()
    for name, default in rows:
        if used.get(name, "") not in ("", "/dev/null"):
            assert default == f"`{used[name]}`", name


def test_folders_in_documented_commands_are_absolute() -> None:
    """`docker compose run` takes a folder that begins with a dot for the name of a volume."""
    folders = re.findall(r"docker compose run .*--volume (\S+)", DOCUMENT)
    assert folders
    assert all(folder.startswith('"$PWD/') for folder in folders)


def test_targets_are_those_of_the_dockerfile() -> None:
    """Every image that the file builds is a target of the Dockerfile, with and without MODELS."""
    targets = set(re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE))
    for service in SERVICES.values():
        if "build" in service:
            target = service["build"]["target"]
            assert {
                target.replace("${MODELS:+-skipped}", ""),
                target.replace("${MODELS:+", "").rstrip("}"),
            } <= targets


def test_every_image_is_built_by_one_service() -> None:
    """Of two services that build the same image, each would make the containers of the other out of date.

    The image of a service that builds none is built with that of a service that it needs.
    """
    builders = {service["image"]: name for name, service in SERVICES.items() if "build" in service}
    assert len(builders) == sum("build" in service for service in SERVICES.values())
    for name, service in SERVICES.items():
        if "build" not in service and not service["image"].startswith("${"):
            assert builders[service["image"]] in service["depends_on"], name


def test_the_dockerfile_pulls_only_its_base() -> None:
    """Every stage builds on the base or on another stage; no `# syntax=` line loads a frontend."""
    froms = re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.MULTILINE)
    stages = {name for _, name in froms} | {"${BASE}"}
    bases = {base.replace("${DEVICE}", device) for base, _ in froms for device in ("cpu", "cuda", "openvino")}
    assert bases <= stages
    assert "syntax=" not in DOCKERFILE


def stage(name: str) -> tuple[str, str]:
    """The base of a stage of the Dockerfile, and its instructions."""
    ((base, text),) = re.findall(
        rf"^FROM (\S+) AS {name}$(.*?)(?=^FROM |\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL
    )
    return base, text


def labels(name: str) -> dict[str, str]:
    """The labels of OCI that a stage has, with those of the stages below."""
    base, text = stage(name)
    own = dict(re.findall(r'org\.opencontainers\.image\.(\S+)=("[^"]+"|\S+)', text))
    return own if base == "${BASE}" else labels(base) | own


@pytest.mark.parametrize("name", ["service", "ray", "export", "loadtest", "proxy"])
def test_every_image_is_labelled(name: str) -> None:
    """It says what it is, its version and its licence."""
    found = labels(name)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (found["version"], found["licenses"]) == (VERSION, project["license"])
    titles = [labels(other)["title"] for other in ("service", "ray", "export", "loadtest", "proxy")]
    assert titles.count(found["title"]) == 1
    assert len(found["description"]) > 20


def test_a_release_labels_the_commit_and_the_digest_of_the_base(tmp_path: Path) -> None:
    """The same commit gives the same labels."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/labels", tmp_path / ".ci")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    time = {"GIT_AUTHOR_DATE": "2020-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-05-01T12:00:00+02:00"}
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "x"], check=True, env=os.environ | time)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout

    def run(base: str, **variables: str) -> tuple[str, str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
        result = subprocess.run(
            [tmp_path / ".ci/labels", base],
            env=environment | variables,
            capture_output=True,
            text=True,
            check=False,
        )
        return result.stdout.replace("org.opencontainers.image.", ""), result.stderr

    output, _ = run("python:3.11-slim@sha256:0123")
    assert output.splitlines() == [
        f"revision={commit.strip()}",
        "created=2026-05-01T10:00:00Z",
        "base.name=python:3.11-slim",
        "base.digest=sha256:0123",
    ]
    output, _ = run("a@sha256:0", GITHUB_SERVER_URL="https://example.org", GITHUB_REPOSITORY="we/turnpike")
    assert output.endswith("\nsource=https://example.org/we/turnpike\n")
    assert run("python:3.11-slim") == (
        "",
        "expected an image with its digest, such as python:3.11-slim@sha256:..., got 'python:3.11-slim'\n",
    )


def test_a_release_publishes_the_image_that_its_bill_of_materials_describes() -> None:
    """Both builds have the same input: the digest of the base, and the labels."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
    steps = workflow["jobs"]["image"]["steps"]
    described, published = [
        step["with"] for step in steps if step.get("uses", "").startswith("docker/build-push-action")
    ]
    for name in ("context", "target", "build-args", "labels"):
        assert described[name] == published[name]
    assert published["build-args"] == "BASE=${{ steps.base.outputs.base }}"
    assert f"python3 .ci/sbom.py {described['tags']}" in [step.get("run") for step in steps]
    (attested,) = [step["with"] for step in steps if step.get("uses", "").startswith("actions/attest-sbom")]
    assert attested["sbom-path"] == f"dist/{described['tags']}.cdx.json"


def test_the_wheel_is_built_from_all_packages() -> None:
    """The build sees every package that src/turnpike links to, and nothing that a checkout has built."""
    packages = {link.name for link in (ROOT / "src/turnpike").iterdir() if link.is_symlink()}
    assert packages
    for name in packages | {"LICENSE", "README.md", "pyproject.toml", "setup.py", "src"}:
        assert f"!{name}" in CONTEXT, name
    assert {"*", "**/__pycache__", "**/*.egg-info"} <= set(CONTEXT)


def test_the_wheel_is_built_by_the_setuptools_of_pyproject() -> None:
    """The build without isolation does not look at these requirements."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for requirement in project["build-system"]["requires"]:
        assert f'/opt/builder/bin/pip install "{requirement}"' in DOCKERFILE


def test_locust_gets_a_file_of_the_image() -> None:
    """The Dockerfile copies it; the current folder of the image is empty."""
    assert SERVICES["loadtest"]["entrypoint"] == ["locust", "-f", "/usr/local/share/turnpike/locustfile.py"]
    assert "\nCOPY loadtest/locustfile.py /usr/local/share/turnpike/\n" in DOCKERFILE


@pytest.mark.parametrize("script", ["roll", "first-model", "alive.py", "proxy/proxy.py", "prometheus/start"])
def test_scripts_are_executable(script: str) -> None:
    """They have a first line `#!` and are executable."""
    path = ROOT / "deploy" / script
    assert path.read_text(encoding="utf-8").startswith("#!")
    assert path.stat().st_mode & stat.S_IXUSR
