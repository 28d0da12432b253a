"""Alerts and dashboard use series that the service exposes, and work with a real Prometheus."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.support.digit_requests import BUNDLED_MODEL
from tests.support.live_server import Server, serving
from tests.support.load_clients import ClientRequest, LoadGenerator
from tests.support.prometheus import FOLDER, Prometheus, running_prometheus
from tests.support.promql import missing_series, selected_series
from tests.support.virtualenvs import ROOT, installed_programs, run_client
from turnpike.service.api.metrics import STATES
from turnpike.service.config.settings import Settings
from turnpike.service.errors import RequestError
from turnpike.service.gates.drift import ALARM, WATCH

GRAFANA = ROOT / "deploy/grafana"
DASHBOARD = json.loads((GRAFANA / "dashboards/turnpike.json").read_text(encoding="utf-8"))
ALERTS = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
CASES = yaml.safe_load((FOLDER / "alerts_test.yml").read_text(encoding="utf-8"))["tests"]
# an older Grafana, whose format later versions read too
GRAFANA_CLASSES = ("grafana", "grafana-foundation-sdk==1769699379!11.6.0")

needs_promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")


def panels() -> list[dict[str, Any]]:
    """All panels except headings."""
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries(interval: str = "40s") -> list[Any]:
    """Every query of the dashboard, as Grafana sends it with all jobs, instances and models chosen."""
    parameters = []
    for panel in panels():
        for target in panel["targets"]:
            query = re.sub(r"\$(job|instance|model)\b", ".*", target["expr"])
            query = query.replace("$__rate_interval", interval)
            parameters.append(pytest.param(query, id=f"{panel['title']}-{target['refId']}"))
    return parameters


@pytest.mark.parametrize("query", queries())
def test_panels_query_existing_series(query: str) -> None:
    """Every series and label of a query exists, and no variable is left in it."""
    assert "$" not in query
    assert selected_series(query)
    assert missing_series(query) == []


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_alerts_query_existing_series(alert: dict[str, Any]) -> None:
    """Every series and label of an alert exists; it has a severity and texts."""
    assert missing_series(alert["expr"]) == []
    assert alert["labels"]["severity"] in {"info", "warning", "critical"}
    assert set(alert["annotations"]) == {"summary", "description"}


def test_unknown_series_are_detected() -> None:
    """A misspelt series, label or grouping is reported."""
    assert missing_series("rate(turnpike_model_row_total[5m])") == ["turnpike_model_row_total"]
    assert missing_series('turnpike_workers{modle="m"}') == ["turnpike_workers{modle}"]
    assert missing_series('sum by (rout) (turnpike_http_requests_total{route="/{model}"})') == ["by (rout)"]


def test_states_and_reasons_in_queries_exist() -> None:
    """States and reasons in queries are those of the service."""
    kinds: list[type[RequestError]] = [RequestError, *RequestError.__subclasses__()]
    reasons = {kind.reason for kind in kinds}
    text = json.dumps([alert["expr"] for alert in ALERTS]) + json.dumps(DASHBOARD)
    text = text.replace("\\", "")
    states = set(re.findall(r'state="(\w+)"', text))
    named = {
        word for alternatives in re.findall(r'reason=~"([\w|]+)"', text) for word in alternatives.split("|")
    }
    assert states == {"READY"} <= set(STATES)
    assert named == {"overloaded", "expired"} <= reasons


def test_drift_thresholds_agree() -> None:
    """The dashboard, the alerts and the service have the same thresholds."""
    drift_panels = [panel for panel in panels() if "turnpike_gate_drift_psi" in panel["targets"][0]["expr"]]
    assert len(drift_panels) == 2
    for panel in drift_panels:
        steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        assert [step["value"] for step in steps] == [None, WATCH, ALARM]
    by_name = {alert["alert"]: alert["expr"] for alert in ALERTS}
    assert f">= {WATCH} < {ALARM}" in by_name["TurnpikeGatesWatch"]
    assert f">= {ALARM}" in by_name["TurnpikeGatesAlarm"]


def test_the_queue_alert_is_at_half_of_the_queue() -> None:
    """The alert's threshold is half of the default of --queue."""
    (expression,) = [alert["expr"] for alert in ALERTS if alert["alert"] == "TurnpikeQueueLong"]
    assert expression.endswith(f"> {Settings.model_fields['queue'].default // 2}")


def test_the_dashboard_layout_is_valid() -> None:
    """No two panels share an id or a place, none leaves the grid, and each uses the provisioned source."""
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    cells: Counter[tuple[int, int]] = Counter()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert 0 <= place["x"] <= place["x"] + place["w"] <= 24
        cells.update(
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        )
    assert set(cells.values()) == {1}
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    named = re.findall(r'"datasource": (\{[^}]*\})', json.dumps(DASHBOARD))
    assert {(entry["type"], entry["uid"]) for entry in map(json.loads, named)} == {
        (source["type"], source["uid"])
    }
    assert {variable["name"] for variable in DASHBOARD["templating"]["list"]} == {"job", "instance", "model"}


def test_paths_agree_with_the_compose_file() -> None:
    """Paths and names in the files are those that docker-compose.yml mounts and runs."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    prometheus, grafana = services["prometheus"], services["grafana"]
    assert "./deploy/prometheus:/etc/prometheus:ro" in prometheus["volumes"]
    assert prometheus["entrypoint"] == ["/bin/sh", "/etc/prometheus/start"]
    configuration = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    assert configuration["rule_files"][0] == "/etc/prometheus/alerts.yml"
    (job,) = configuration["scrape_configs"]
    assert [f"/run/secrets/{name}" for name in prometheus["secrets"]] == [
        job["authorization"]["credentials_file"]
    ]
    (names,) = [config["names"] for config in job["dns_sd_configs"]]
    assert set(names) == {
        name for name, service in services.items() if service.get("build", {}).get("target") == "service"
    }
    assert "./deploy/grafana/provisioning:/etc/grafana/provisioning:ro" in grafana["volumes"]
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/turnpike.yml").read_text())["providers"]
    assert f"./deploy/grafana/dashboards:{provider['options']['path']}:ro" in grafana["volumes"]
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"
    for service in (prometheus, grafana):
        assert re.fullmatch(r"\$\{[A-Z]+_IMAGE:-[a-z]+/[a-z]+:v?\d+\.\d+\.\d+\}", service["image"])


def test_the_interval_of_grafana_is_the_scrape_interval() -> None:
    """Grafana's interval is Prometheus' scrape interval."""
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    configuration = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    assert source["jsonData"]["timeInterval"] == configuration["global"]["scrape_interval"]


def test_every_alert_has_test_cases() -> None:
    """For each there is a case in which it fires and one in which it does not."""
    fires: dict[str, set[bool]] = {alert["alert"]: set() for alert in ALERTS}
    for case in CASES:
        for check in case["alert_rule_test"]:
            fires[check["alertname"]].add(bool(check.get("exp_alerts")))
    only_fire = {name for name, results in fires.items() if results == {True}}
    # these fire for one series of a case and not for another
    assert {name: results for name, results in fires.items() if True not in results} == {}
    assert only_fire <= {"TurnpikeSlow", "TurnpikeWaits", "TurnpikeModelAway", "TurnpikeRestarts"}


def test_every_alert_is_documented() -> None:
    """The table in docs/how-to/deploy.md lists exactly the alerts that exist."""
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("deploy*.md"))
    rows = "".join(re.findall(r"^\| Turnpike[^|]*\|", text, re.MULTILINE))
    assert sorted(re.findall(r"Turnpike\w+", rows)) == sorted(alert["alert"] for alert in ALERTS)


def started(folder: Path, **variables: str) -> tuple[str, dict[str, Any]]:
    """What deploy/prometheus/start runs or prints, and the files that it writes, by name."""
    (folder / "prometheus").write_text('#!/bin/sh\necho "$@"\n')
    (folder / "prometheus").chmod(0o755)
    script = (FOLDER / "start").read_text().replace("/tmp/", f"{folder}/")
    script = script.replace("/etc/prometheus/", f"{FOLDER}/")
    result = subprocess.run(
        ["sh", "-c", script, "start", "--web.x=y"],
        env={"PATH": f"{folder}:{os.environ['PATH']}", "REPLICAS": "3", "SCHEME": "http"} | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    files = {file.stem: yaml.safe_load(file.read_text()) for file in folder.glob("*.yml")}
    return (result.stdout + result.stderr).strip(), files


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_prometheus_starts_with_the_variables_of_the_compose_file(tmp_path: Path, scheme: str) -> None:
    """A rule has the number of replicas. Services are asked in their scheme, and replicas over HTTP."""
    command, files = started(tmp_path, SCHEME=scheme)
    assert command == f"--config.file={tmp_path}/prometheus.yml --web.x=y"
    (rule,) = files["replicas"]["groups"][0]["rules"]
    assert (rule["record"], rule["expr"]) == ("turnpike_replicas_expected", "vector(3)")
    original = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    assert original["rule_files"] == ["/etc/prometheus/alerts.yml", "/tmp/replicas.yml"]
    (job,) = original["scrape_configs"]
    relabel = job["relabel_configs"][-1]
    assert (relabel["target_label"], relabel["replacement"]) == ("__scheme__", "http")
    (names,) = [config["names"] for config in job["dns_sd_configs"]]
    assert [name for name in names if not re.fullmatch(relabel["regex"], name)] == ["replica"]
    relabel["replacement"] = scheme
    assert files["prometheus"] == original


@pytest.mark.parametrize("replicas", ["", "two", "-1", "2.5"])
def test_prometheus_does_not_start_with_a_wrong_number_of_replicas(tmp_path: Path, replicas: str) -> None:
    """Its rule would be invalid, and the reason hard to find."""
    message, files = started(tmp_path, REPLICAS=replicas)
    assert message == f"REPLICAS: expected a whole number, got '{replicas}'"
    assert files == {}


@needs_promtool
def test_a_lost_replica_is_noticed() -> None:
    """One or all of them gone, or one that cannot start; not a rolling update, and not fewer on purpose."""
    file = FOLDER / "alerts_test.yml"
    result = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False)
    assert "alertname: TurnpikeReplicaLost" not in result.stdout + result.stderr
    assert result.returncode == 0, result.stdout + result.stderr


@needs_promtool
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", "--syntax-only", FOLDER / "prometheus.yml"),
        ("check", "rules", FOLDER / "alerts.yml"),
        ("test", "rules", FOLDER / "alerts_test.yml"),
    ],
    ids=lambda arguments: " ".join(map(str, arguments[:2])),
)
def test_promtool_accepts_configuration_and_alerts(arguments: tuple[Any, ...]) -> None:
    """Prometheus' own tool accepts the configuration and the alerts, and their cases pass."""
    result = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@needs_promtool
def test_promtool_parses_every_query_of_the_dashboard(tmp_path: Path) -> None:
    """Every query of the dashboard parses."""
    rules = [{"record": f"panel:{number}", "expr": query.values[0]} for number, query in enumerate(queries())]
    file = tmp_path / "panels.yml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    result = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{len(rules)} rules found" in result.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_grafana_classes_accept_the_dashboard(tmp_path: Path) -> None:
    """Grafana's own classes read the dashboard and write it back unchanged; they would drop a wrong field."""
    classes = installed_programs(*GRAFANA_CLASSES)
    assert run_client("grafana_dashboard.py", classes, GRAFANA / "dashboards/turnpike.json") == []
    wrong = json.loads(json.dumps(DASHBOARD))
    wrong["panels"][1]["fieldConfig"]["defaults"]["colour"] = {"mode": "thresholds"}
    (tmp_path / "wrong.json").write_text(json.dumps(wrong))
    lost = run_client("grafana_dashboard.py", classes, tmp_path / "wrong.json")
    assert lost == [".panels[1].fieldConfig.defaults.colour"]


KEY = "a-key-of-the-test"
SECONDS = 12


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Prometheus]]:
    """A service with every kind of traffic, good and bad, and the Prometheus that collected from it."""
    folder = tmp_path_factory.mktemp("monitored")
    for model, content in (("digits-10", BUNDLED_MODEL.read_bytes()), ("damaged", b"no model")):
        (folder / f"models/{model}/1").mkdir(parents=True)
        (folder / f"models/{model}/1/model.onnx").write_bytes(content)
    (folder / "keys").write_text(f"{KEY}\n")
    options = ("--models", folder / "models", "--api-keys-file", folder / "keys", "--no-access-log")
    with (
        serving(*options) as server,
        running_prometheus(folder, urlsplit(server.url).netloc, f"{KEY}\n") as prometheus,
    ):
        row = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [0.5] * 64}]}
        requests = [
            ClientRequest(path, json.dumps(body).encode(), (("X-Api-Key", KEY),))
            for path, body in (
                ("/v2/models/digits-10/infer", row),
                ("/v2/models/digits-10/gates", row),
                ("/v1/models/digits-10:predict", {"instances": [[0.5] * 64] * 32}),
                ("/v2/models/digits-10/infer", {"inputs": []}),
                ("/v2/models/damaged/infer", row),
            )
        ]
        asyncio.run(LoadGenerator(server.url, requests, 4).run(SECONDS))
        yield server, prometheus


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("prometheus"), reason="prometheus is not installed")
@pytest.mark.parametrize("query", queries("4s"))
def test_every_panel_shows_something(monitored: tuple[Server, Prometheus], query: str) -> None:
    """Under traffic every query of the dashboard returns numbers."""
    assert monitored[1].recent_values(query, SECONDS)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("prometheus"), reason="prometheus is not installed")
def test_a_real_prometheus_fires_the_expected_alerts(monitored: tuple[Server, Prometheus]) -> None:
    """It collects with the key, evaluates every alert, and fires those that fit this service."""
    _, prometheus = monitored
    target = prometheus.target()
    assert target["health"] == "up", target["lastError"]
    (group,) = prometheus.ask("rules")["groups"]
    assert len(group["rules"]) == len(ALERTS)
    assert {rule["health"] for rule in group["rules"]} == {"ok"}
    active = {rule["name"] for rule in group["rules"] if rule["state"] != "inactive"}
    # rows of equal values do not look like digits, hence the drift
    expected = {"TurnpikeModelAway", "TurnpikeLoadFailed", "TurnpikeErrors", "TurnpikeGatesAlarm"}
    assert active == expected


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("prometheus"), reason="prometheus is not installed")
def test_a_prometheus_without_the_key_reports_401(
    monitored: tuple[Server, Prometheus], tmp_path: Path
) -> None:
    """If a key is needed and none is given, the target is down, with the reason."""
    with running_prometheus(tmp_path, urlsplit(monitored[0].url).netloc, "") as prometheus:
        target = prometheus.target()
        assert target["health"] == "down"
        assert "401" in target["lastError"]
