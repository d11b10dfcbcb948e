"""docker-compose.yml and Dockerfile against what the code really offers. No Docker engine is needed."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from psycopg import Connection
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from outbox_mail.embedded import ports
from outbox_mail.embedded.binaries import find_redis
from outbox_mail.outbox.processes import report_progress
from outbox_mail.settings import ENV_PREFIX, Settings

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = sorted(name for name, service in SERVICES.items() if "build" in service)
DOCKERFILE = (ROOT / "Dockerfile").read_text()
EXAMPLE = dict(
    line.split("=", 1) for line in (ROOT / ".env.example").read_text().splitlines() if line and line[0] != "#"
)
_VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(?::[?-][^}]*)?\}")


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def filled(value: str, filling: str = "filled1n") -> str:
    """As compose fills it in from an environment in which everything is set."""
    return _VARIABLE.sub(filling, value).replace("$$", "$")


def environment(service: str) -> dict[str, str]:
    given = SERVICES[service].get("environment", {})
    values = {name: filled(str(value)) for name, value in given.items()}
    # The folder that is mounted there.
    values["OUTBOX_MAIL_TEMPLATES"] = str(ROOT / EXAMPLE["TEMPLATES_FOLDER"])
    values["OUTBOX_MAIL_PROVIDER_URL"] = EXAMPLE["OUTBOX_MAIL_PROVIDER_URL"]
    values["OUTBOX_MAIL_DEFAULT_SENDER"] = EXAMPLE["OUTBOX_MAIL_DEFAULT_SENDER"]
    values["OUTBOX_MAIL_MESSAGE_ID_DOMAIN"] = EXAMPLE["OUTBOX_MAIL_MESSAGE_ID_DOMAIN"]
    return values


def run(arguments: list[str], values: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """As the container would, except that commands come from the environment of this Python."""
    program = {
        "python": [sys.executable],
        "celery": [sys.executable, "-m", "celery"],
        "outbox-mail": [str(Path(sys.executable).with_name("outbox-mail"))],
    }[arguments[0]]
    return subprocess.run(
        [*program, *arguments[1:]],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": "/tmp", **values},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def help_arguments(command: list[str]) -> list[str]:
    """The command with its options kept and ``--help`` at the end: an option that is not there is then refused."""
    return [*command, "--help"]


def test_there_is_every_part_of_the_system() -> None:
    assert set(OURS) == {"migrate", "relay", "worker", "beat", "flower"}
    assert {"postgres", "redis", "mail"} <= set(SERVICES)
    assert SERVICES["relay"]["deploy"]["replicas"] == 2
    assert SERVICES["mail"]["profiles"] == ["mail"]


@pytest.mark.parametrize("service", OURS)
def test_each_command_exists_with_its_options(service: str) -> None:
    command = SERVICES[service]["command"]
    answer = run(help_arguments(command), environment(service))
    assert answer.returncode == 0, answer.stderr
    for option in (part.partition("=")[0] for part in command if part.startswith("--")):
        assert option in answer.stdout, f"{option} is not offered by {' '.join(command)}"


@pytest.mark.parametrize("service", OURS)
def test_each_environment_is_one_that_the_settings_know_and_accept(service: str) -> None:
    values = environment(service)
    ours = {name for name in values if name.startswith(ENV_PREFIX)}
    known = {ENV_PREFIX + field.upper() for field in Settings.model_fields}
    assert ours <= known, f"unknown settings: {sorted(ours - known)}"
    code = "from outbox_mail.settings import load_settings; load_settings()"
    answer = run(["python", "-c", code], values)
    assert answer.returncode == 0, answer.stderr


def test_the_stop_of_a_worker_leaves_time_for_what_it_is_sending() -> None:
    grace = int(SERVICES["worker"]["stop_grace_period"].removesuffix("s"))
    assert grace > Settings.model_fields["send_deadline_seconds"].default


def test_every_variable_stands_in_the_example_and_secrets_have_no_default() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    named = set(_VARIABLE.findall(text))
    assert named == set(EXAMPLE)
    for secret in (name for name in EXAMPLE if name.endswith("PASSWORD")):
        assert EXAMPLE[secret] == ""
        assert f"${{{secret}:?" in text
        assert f"${{{secret}:-" not in text


def test_nothing_is_published_beyond_this_machine() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_broker_wants_its_password_keeps_what_it_has_and_refuses_when_it_is_full(tmp_path: Path) -> None:
    program, shell, script = SERVICES["redis"]["command"]
    (tmp_path / "redis-server").symlink_to(find_redis())
    port = ports.pick()
    # Only the port differs: the one that it has in its container may be taken here.
    script = filled(script).replace("\nEND", f"\nbind 127.0.0.1\nport {port}\nEND")
    server = subprocess.Popen(
        [program, shell, script],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "REDIS_PASSWORD": "secret"},
        stdout=subprocess.DEVNULL,
    )
    try:
        with redis.Redis(port=port, password="secret", retry=Retry(ConstantBackoff(0.1), 100)) as client:
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
            assert client.config_get("appendonly") == {"appendonly": "yes"}
            assert int(client.config_get("maxmemory")["maxmemory"]) > 0
        with redis.Redis(port=port) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
        assert "secret" not in Path(f"/proc/{server.pid}/cmdline").read_text()
    finally:
        # It took the shell's place, so the signal that stops a container reaches it.
        server.terminate()
        assert server.wait(10) == 0


def test_every_service_is_checked_and_restarted() -> None:
    for name, service in SERVICES.items():
        assert service.get("restart") == ("no" if name == "migrate" else "unless-stopped"), name
    assert SERVICES["migrate"]["healthcheck"] == {"disable": True}
    for name in ("postgres", "redis", "relay", "worker", "beat", "flower"):
        assert "test" in health(name), name


def health(service: str) -> dict[str, Any]:
    return SERVICES[service].get("healthcheck") or {"test": ["CMD", *image_healthcheck()]}


def image_healthcheck() -> list[str]:
    found = re.search(r"^HEALTHCHECK .* CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert found
    return list(yaml.safe_load(found[1]))


@pytest.mark.parametrize("service", ["relay", "worker", "beat"])
def test_each_process_is_healthy_by_its_own_progress(
    service: str, connection: Connection[Any], database_url: str
) -> None:
    test = health(service)["test"]
    assert test[0] == "CMD"
    values = {**environment(service), "OUTBOX_MAIL_DATABASE_URL": database_url}
    assert run(test[1:], values).returncode == 1
    report_progress(connection, service, "testing", started=True)
    assert run(test[1:], values).returncode == 0
    connection.execute("UPDATE outbox_processes SET host = 'another-container'")
    assert run(test[1:], values).returncode == 1


def test_the_image_checks_its_default_role() -> None:
    assert image_healthcheck() == health("relay")["test"][1:]


def test_the_service_waits_for_the_migration_and_the_broker() -> None:
    assert SERVICES["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    for name in ("relay", "worker", "beat", "flower"):
        assert SERVICES[name]["depends_on"] == {
            "migrate": {"condition": "service_completed_successfully"},
            "redis": {"condition": "service_healthy"},
        }


def test_our_containers_can_write_nothing_and_have_no_powers() -> None:
    for name in OURS:
        service = SERVICES[name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    assert "\nUSER outbox\n" in DOCKERFILE


def test_what_the_dockerfile_copies_is_there_and_passes_dockerignore() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    sources = [
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
        for source in shlex.split(line)[:-1]
    ]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert source in allowed, f"{source} is kept out by .dockerignore"


def test_the_image_holds_every_module_that_its_commands_import() -> None:
    copied = set(re.findall(r"^COPY (\w+) \w+$", DOCKERFILE, re.MULTILINE))
    assert {"relay", "tasks", "outbox_mail", "migrations"} <= copied
    for module in ("relay", "tasks", "celeryconfig"):
        assert importlib.util.find_spec(module) is not None


def test_the_image_installs_what_its_roles_need() -> None:
    assert "'.[service,flower]'" in DOCKERFILE
    assert re.search(r'^CMD \["python", "-m", "relay"\]$', DOCKERFILE, re.MULTILINE)
