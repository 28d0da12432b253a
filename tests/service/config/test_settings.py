"""Settings: the order of their sources, their valid values, and errors for invalid ones."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from turnpike.service.config.resolve import ResolvedSettings, resolve, settings_as_toml
from turnpike.service.config.settings import SECRETS, Settings, check_address
from turnpike.service.errors import SettingError

pytestmark = pytest.mark.usefixtures("without_variables")

RECEIVER = (
    "--payload-events: expected an address such as http://broker.example/path without a user, got another"
)


def error_of(flags: dict[str, Any] | None = None, config: Path | None = None) -> str:
    """The message of the SettingError for these invalid settings."""
    with pytest.raises(SettingError) as raised:
        resolve(flags or {}, config)
    return str(raised.value)


def test_flags_override_environment_file_and_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each value has the origin of its source."""
    file = tmp_path / "serve.toml"
    file.write_text("port = 1\nworkers = 1\nqueue = 1\nmax_rows = 9\n")
    monkeypatch.setenv("TURNPIKE_PORT", "2")
    monkeypatch.setenv("TURNPIKE_WORKERS", "2")
    resolved = resolve({"port": "3"}, file)
    settings = resolved.settings
    assert (settings.port, settings.workers, settings.queue, settings.max_rows) == (3, 2, 1, 9)
    assert settings.max_batch == 128
    assert resolved.origins == {
        "port": "--port",
        "workers": "TURNPIKE_WORKERS",
        "queue": f"{file}: queue",
        "max_rows": f"{file}: max_rows",
    }


def test_an_address_is_polled_less_often(tmp_path: Path) -> None:
    """Unless the interval is given. A path stays a path."""
    remote = resolve({}, models="s3://bucket/models/").settings
    assert (remote.models, remote.poll) == ("s3://bucket/models", 30)
    assert resolve({"poll": "2"}, models="s3://bucket/models").settings.poll == 2
    local = resolve({"models": str(tmp_path)}).settings
    assert (local.models, local.poll) == (tmp_path, 2)


def test_an_address_with_a_password_is_refused() -> None:
    message = error_of({"models": "ftp://me:secret@example.org/models"})
    assert message.startswith("--models: expected an address without a password")
    assert "secret" not in message


def test_settings_created_directly_ignore_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNPIKE_PORT", "2")
    assert Settings().port == 8000
    assert Settings(workers=3).workers == 3


def test_the_environment_may_name_the_config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--config overrides TURNPIKE_CONFIG."""
    (tmp_path / "a.toml").write_text("port = 1\n")
    (tmp_path / "b.toml").write_text("port = 2\n")
    monkeypatch.setenv("TURNPIKE_CONFIG", str(tmp_path / "a.toml"))
    assert resolve({}).settings.port == 1
    assert resolve({}, tmp_path / "b.toml").settings.port == 2
    monkeypatch.setenv("TURNPIKE_CONFIG", "")
    assert error_of().startswith("TURNPIKE_CONFIG: expected a TOML file that can be read")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"max_batch": "1x"}, "--max-batch: expected a whole number from 1 to 128, got '1x'"),
        ({"max_batch": "0"}, "--max-batch: expected a whole number from 1 to 128, got '0'"),
        ({"max_batch": "129"}, "--max-batch: expected a whole number from 1 to 128, got '129'"),
        ({"max_batch": "1.5"}, "--max-batch: expected a whole number from 1 to 128, got '1.5'"),
        ({"port": "65536"}, "--port: expected a whole number from 0 to 65535, got '65536'"),
        ({"grpc_port": "http"}, "--grpc-port: expected a whole number from 0 to 65535, got 'http'"),
        (
            {"grpc_port": "8000"},
            "--grpc-port: expected another port than --port, got 8000 for both",
        ),
        (
            {"grpc_port": "8001", "engine": "ray"},
            "--grpc-port: expected none with --engine ray, whose proxies speak HTTP",
        ),
        ({"queue": "0"}, "--queue: expected a whole number from 1, got '0'"),
        ({"poll": "-1"}, "--poll: expected a number from 0, got '-1'"),
        ({"poll": "nan"}, "--poll: expected a number from 0, got 'nan'"),
        ({"drain_seconds": "inf"}, "--drain-seconds: expected a number from 0, got 'inf'"),
        ({"idle_seconds": "0"}, "--idle-seconds: expected a number above 0, got '0'"),
        ({"worker_seconds": "0.5"}, "--worker-seconds: expected 0, or at least 1 second, got 0.5"),
        ({"worker_seconds": "-1"}, "--worker-seconds: expected a number from 0 to 3600, got '-1'"),
        ({"worker_seconds": "3601"}, "--worker-seconds: expected a number from 0 to 3600, got '3601'"),
        ({"device": "tpu"}, "--device: expected one of cpu, cuda, openvino, got 'tpu'"),
        ({"precision": "bf16"}, "--precision: expected fp32 with --device cpu, got bf16, which needs"),
        ({"exact": "maybe"}, "--exact: expected true or false, got 'maybe'"),
        ({"versions": "new"}, "--versions: expected latest, all, or version numbers such as 1,3, got 'new'"),
        ({"versions": "1,"}, "--versions: expected latest, all, or version numbers such as 1,3, got '1,'"),
        ({"versions": "0"}, "--versions: expected latest, all, or version numbers such as 1,3, got '0'"),
        ({"models": "/absent"}, "--models: expected a folder of models that can be read, got '/absent'"),
        ({"tls_key": "/absent"}, "--tls-key: expected a file that can be read, got '/absent'"),
        ({"api_keys_file": "/"}, "--api-keys-file: expected a file that can be read, got '/'"),
        ({"cors": ["a.org"]}, "--cors: expected origins such as https://example.org, or *, got 'a.org'"),
        ({"cors": ["http://a.org/"]}, "got 'http://a.org/'"),
        (
            {"allowed_hosts": "http://a.org"},
            "--allowed-hosts: expected hosts such as example.org, *.example.org or *, got 'http://a.org'",
        ),
        ({"allowed_hosts": "a.*.org"}, "got 'a.*.org'"),
        ({"allowed_hosts": "a.org,,b.org"}, "and one of them is empty"),
        ({"payload_events": "broker:80"}, RECEIVER),
        ({"payload_events": "http://user:secret@broker/"}, RECEIVER),
        ({"payload_events": "http://broker:99999/"}, RECEIVER),
        ({"payload_events": "http://broker/a b"}, RECEIVER),
        (
            {"payload_mode": "request"},
            "--payload-mode: expected none without --payload-events, got request",
        ),
        ({"otlp": "localhost"}, "--otlp: expected an address such as http://127.0.0.1:4318, got 'localhost'"),
        ({"host": ""}, "--host: got an empty value: give one, or leave it out"),
        (
            {"max_body": "9", "max_held": "8"},
            "--max-held: expected at least the 9 bytes of --max-body, got 8",
        ),
    ],
)
def test_an_invalid_value_is_reported(flags: dict[str, Any], message: str) -> None:
    """The error has the flag, the value, and the valid values."""
    assert message in error_of(flags)


def test_an_error_names_the_variable_or_the_key_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error says where the value was given, not only the name of the setting."""
    file = tmp_path / "serve.toml"
    file.write_text('max_batch = "many"\n')
    assert error_of(config=file) == f"{file}: max_batch: expected a whole number from 1 to 128, got 'many'"
    monkeypatch.setenv("TURNPIKE_MAX_BATCH", "500")
    assert error_of() == "TURNPIKE_MAX_BATCH: expected a whole number from 1 to 128, got '500'"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('port = "5"', "port: expected a whole number from 0 to 65535, got '5'"),
        ("port = 5.0", "port: expected a whole number from 0 to 65535, got 5.0"),
        ("workers = true", "workers: expected a whole number from 1 to 256 or auto, got True"),
        ('poll = "1"', "poll: expected a number from 0, got '1'"),
        ("poll = false", "poll: expected a number from 0, got False"),
        ('access_log = "no"', "access_log: expected true or false, got 'no'"),
        ("exact = 1", "exact: expected true or false, got 1"),
        ("versions = 1", "versions: expected a string, got 1"),
        ("models = ['x']", "models: expected a string, got ['x']"),
        ("device = 0", "device: expected one of cpu, cuda, openvino, got 0"),
        ('cors = "https://a.org"', "cors: expected a list of strings, got 'https://a.org'"),
        ("cors = [1]", "cors: expected a list of strings, got [1]"),
        ("admin_key = 4711", "admin_key: expected a string, got something else"),
    ],
)
def test_values_of_a_file_must_have_the_right_type(tmp_path: Path, line: str, message: str) -> None:
    """TOML has types, so nothing is converted; flags and variables are always strings."""
    file = tmp_path / "serve.toml"
    file.write_text(line + "\n")
    assert error_of(config=file) == f"{file}: {message}"


def test_a_float_setting_accepts_an_integer(tmp_path: Path) -> None:
    """A list may be empty, but an empty string is an error here too."""
    file = tmp_path / "serve.toml"
    file.write_text("poll = 2\ncors = []\n")
    assert resolve({}, file).settings == Settings(poll=2)
    file.write_text('host = ""\n')
    assert error_of(config=file) == f"{file}: host: got an empty value: give one, or leave it out"


def test_the_config_file_may_be_a_pipe() -> None:
    """An example is `--config <(pass show config)`."""
    reading, writing = os.pipe()
    try:
        path = f"/dev/fd/{reading}"
        assert resolve({"api_keys_file": path}).settings.api_keys_file == Path(path)
    finally:
        os.close(reading)
        os.close(writing)


def test_a_tls_certificate_needs_its_key(tmp_path: Path) -> None:
    """Certificate and key belong together: the service must not fall back to plain HTTP."""
    (tmp_path / "pem").touch()
    pem = str(tmp_path / "pem")
    assert error_of({"tls_cert": pem}).startswith("--tls-key: expected a file, as --tls-cert is given")
    assert error_of({"tls_key": pem}).startswith("--tls-cert: expected a file, as --tls-key is given")
    assert resolve({"tls_key": pem, "tls_cert": pem}).settings.tls_key == tmp_path / "pem"


def test_unknown_settings_suggest_the_nearest_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt setting is not ignored, in the file or in the environment."""
    file = tmp_path / "serve.toml"
    file.write_text("max_bach = 3\n")
    assert error_of(config=file) == f"{file}: max_bach: there is no such setting; did you mean max_batch?"
    monkeypatch.setenv("TURNPIKE_WROKERS", "3")
    assert error_of() == "TURNPIKE_WROKERS: there is no such setting; did you mean TURNPIKE_WORKERS?"
    monkeypatch.delenv("TURNPIKE_WROKERS")
    monkeypatch.setenv("TURNPIKE_ZZZ", "3")
    assert error_of() == "TURNPIKE_ZZZ: there is no such setting"
    monkeypatch.delenv("TURNPIKE_ZZZ")
    monkeypatch.setenv("TURNPIKE_MY_PORT", "80")
    assert error_of() == "TURNPIKE_MY_PORT: there is no such setting; did you mean TURNPIKE_PORT?"


def test_other_environment_variables_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of other commands, and those that Kubernetes sets for Services of similar names."""
    monkeypatch.setenv("TURNPIKE_DATA", "/data")
    monkeypatch.setenv("TURNPIKE_CACHE", "/cache")
    monkeypatch.setenv("TURNPIKE_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("TURNPIKE_SERVICE_PORT_HTTP", "80")
    monkeypatch.setenv("TURNPIKE_PORT", "tcp://10.0.0.1:80")
    monkeypatch.setenv("TURNPIKE_PORT_80_TCP_ADDR", "10.0.0.1")
    monkeypatch.setenv("TURNPIKE_DIGITS_PREDICTOR_SERVICE_HOST", "10.0.0.2")
    monkeypatch.setenv("TURNPIKE_DIGITS_PREDICTOR_SERVICE_PORT", "80")
    monkeypatch.setenv("TURNPIKE_DIGITS_PREDICTOR_PORT", "tcp://10.0.0.2:80")
    monkeypatch.setenv("TURNPIKE_DIGITS_PREDICTOR_PORT_80_TCP", "tcp://10.0.0.2:80")
    resolved = resolve({})
    assert resolved.settings == Settings()
    assert resolved.origins == {}


@pytest.mark.parametrize("content", ["port 3", "[server]\nport = 3\n", "\xff"])
def test_a_file_that_is_not_toml_is_refused(tmp_path: Path, content: str) -> None:
    """So are unknown tables and bytes that are not UTF-8. The error names the file."""
    file = tmp_path / "serve.toml"
    file.write_bytes(content.encode("latin-1"))
    assert str(file) in error_of(config=file)
    assert "--config: expected a TOML file that can be read" in error_of(config=tmp_path / "absent")


def test_lists_are_comma_separated_or_repeated_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNPIKE_CORS", "https://a.org, https://b.org")
    assert resolve({}).settings.cors == ("https://a.org", "https://b.org")
    assert resolve({"cors": ["https://c.org"]}).settings.cors == ("https://c.org",)
    monkeypatch.setenv("TURNPIKE_CORS", "https://a.org,,https://b.org")
    assert "one of them is empty" in error_of()


@pytest.mark.parametrize("secret", sorted(SECRETS))
def test_an_empty_secret_does_not_disable_the_check_of_keys(
    secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty key is an error. It does not mean that no key is needed."""
    monkeypatch.setenv(f"TURNPIKE_{secret.upper()}", "")
    assert error_of() == f"TURNPIKE_{secret.upper()}: got an empty value: give one, or leave it out"


def test_secrets_are_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not in --print-config, errors, or the repr, which may be logged."""
    monkeypatch.setenv("TURNPIKE_API_KEYS", "hush-1,hush-2")
    monkeypatch.setenv("TURNPIKE_ADMIN_KEY", "hush-3")
    resolved = resolve({})
    assert resolved.settings.api_keys == ("hush-1", "hush-2")
    assert "hush" not in settings_as_toml(resolved)
    assert "hush" not in repr(resolved)
    file = tmp_path / "serve.toml"
    file.write_text("api_keys = [{hush = 1}]\n")
    monkeypatch.delenv("TURNPIKE_API_KEYS")
    monkeypatch.delenv("TURNPIKE_ADMIN_KEY")
    assert error_of(config=file) == f"{file}: api_keys: expected a list of strings, got something else"
    with pytest.raises(
        SettingError, match="--api-keys: expected a list of strings, got something else"
    ) as raised:
        resolve({"api_keys": [4711], "admin_key": 4711})
    assert "4711" not in str(raised.value.__cause__)


@pytest.mark.parametrize("key", ["api_keys", "admin_key"])
def test_a_key_in_a_file_and_a_variable_is_refused(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys").write_text("x")
    monkeypatch.setenv(f"TURNPIKE_{key.upper()}", "y")
    name = f"{key}_file"
    assert error_of({name: str(tmp_path / "keys")}).startswith(
        f"--{name.replace('_', '-')}: expected one source"
    )


def test_the_printed_configuration_can_be_read_back(tmp_path: Path) -> None:
    """The printed TOML gives the same settings, whatever characters are in them."""
    folder = tmp_path / 'a "quoted" \\ földer \x7f'
    folder.mkdir()
    resolved = resolve(
        {"models": str(folder), "cors": ["*", "https://a.org"], "poll": "1e-7", "docs": False, "port": "0"}
    )
    text = settings_as_toml(resolved)
    (tmp_path / "back.toml").write_text(text)
    assert resolve({}, tmp_path / "back.toml").settings == resolved.settings
    lines = text.splitlines()
    assert "port = 0  # --port" in lines
    assert "docs = false  # --docs" in lines
    assert "workers = 1  # default" in lines
    assert "# tls_cert is not set" in lines
    assert set(tomllib.loads(text)) <= set(Settings.model_fields)


def test_every_setting_is_printed() -> None:
    text = settings_as_toml(ResolvedSettings(Settings(), {}))
    for name in Settings.model_fields:
        assert f"{name} " in text


def test_every_setting_has_a_description() -> None:
    """--help shows it."""
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name


@pytest.mark.parametrize(
    "address", ["s3://bucket", "gs://bucket/a/b", "hf://org/repo@main/models", "file:///models", "s3a://b/"]
)
def test_addresses_are_accepted(address: str) -> None:
    assert check_address(address) == address.rstrip("/")


@pytest.mark.parametrize(
    "address", ["s3://", "s3:///", "://bucket", "s3://a b", "zip://a::s3://b", "S 3://b"]
)
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match="expected an address such as s3://bucket/models, got"):
        check_address(address)
