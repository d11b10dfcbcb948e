"""Provider URLs: each mistake stops the start-up with words that help and hold no secret."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from outbox_mail.errors import ConfigurationError
from outbox_mail.mail.providers import registry
from outbox_mail.mail.providers.memory import MemoryProvider
from outbox_mail.mail.providers.registry import provider_from_url, redact_url
from outbox_mail.mail.providers.smtp.options import Auth, SmtpOptions, Tls, options_from_url
from outbox_mail.mail.providers.url import split

SECRET = "s3cr3t"


def options(url: str) -> SmtpOptions:
    return options_from_url(split(url))


def test_an_smtp_url_is_read_with_safe_defaults() -> None:
    read = options("smtp://mail.example.com")
    assert (read.host, read.port, read.tls, read.verify) == ("mail.example.com", 587, Tls.REQUIRED, True)
    assert (read.username, read.password, read.pipelining) == (None, None, True)
    assert options("smtps://mail.example.com").port == 465
    assert options("smtps://mail.example.com").tls is Tls.IMPLICIT


def test_an_smtp_url_is_read_in_full() -> None:
    read = options(
        "smtp://us%40er:p%3A%2F%40%23%3F%25@[::1]:2525/?tls=none&verify=no&ca_file=%2Fetc%2Fca.pem&auth=LOGIN"
        "&ehlo=shop.example.com&pipelining=0&connect_seconds=2.5&keep_seconds=0&max_mails=7&max_age_seconds=9"
    )
    assert read == SmtpOptions(
        host="::1",
        port=2525,
        tls=Tls.NONE,
        username="us@er",
        password="p:/@#?%",
        verify=False,
        ca_file="/etc/ca.pem",
        auth=Auth.LOGIN,
        ehlo="shop.example.com",
        pipelining=False,
        connect_seconds=2.5,
        keep_seconds=0,
        max_mails=7,
        max_age_seconds=9,
    )


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "begin with a scheme"),
        ("mail.example.com", "begin with a scheme"),
        (f"smpt://user:{SECRET}@host", "Did you mean smtp:"),
        (f"carrier-pigeon://user:{SECRET}@host", "There are: console, folder, memory, smtp, smtps"),
        (f"smtp://user:{SECRET}@", "host is missing"),
        (f"smtp://user:{SECRET}@host:99999", "port must be"),
        (f"smtp://user:{SECRET}@host:0", "port must be"),
        (f"smtp://user:{SECRET}@host:smtp", "port must be"),
        (f"smtp://user:{SECRET}/x@host", "port must be|takes no path"),
        (f"smtp://user:{SECRET}#x@host", "# has no meaning"),
        (f"smtp://user:{SECRET}?x@host", "port must be|options are written"),
        (f"smtp://user:1?{SECRET}=x@host", "an option is unknown"),
        (f"smtp://user:{SECRET}@[::1", "can't be read"),
        (f"smtp://user:{SECRET} @host", "space or control"),
        (f"smtp://user:{SECRET}\n@host", "space or control"),
        (f"smtp://user:{SECRET}%00@host", "NUL"),
        (f"smtp://{SECRET}@host", "both a user name and a password"),
        (f"smtp://:{SECRET}@host", "both a user name and a password"),
        (f"smtp://user:{SECRET}@host/inbox", "takes no path"),
        (f"smtp://user:{SECRET}@host?tsl=none", "Did you mean tls"),
        (f"smtp://user:{SECRET}@host?color=red", "Options are: tls, verify"),
        (f"smtp://user:{SECRET}@host?tls=maybe", "required, optional, none"),
        (f"smtp://user:{SECRET}@host?TLS=none", "tls"),
        (f"smtps://user:{SECRET}@host?tls=none", "tls must be one of implicit"),
        (f"smtp://user:{SECRET}@host?verify=perhaps", "true or false"),
        (f"smtp://user:{SECRET}@host?verify=", "empty"),
        (f"smtp://user:{SECRET}@host?verify", "name=value"),
        (f"smtp://user:{SECRET}@host?tls=none&tls=required", "twice"),
        (f"smtp://user:{SECRET}@host?max_mails=0", "from 1 to"),
        (f"smtp://user:{SECRET}@host?keep_seconds=soon", "must be a number"),
        (f"smtp://user:{SECRET}@host?keep_seconds=nan", "must be a number"),
        (f"smtp://user:{SECRET}@host?ehlo=a%0D%0AQUIT", "ehlo"),
        (f"smtp://user:{SECRET}@host?auth=cram-md5", "plain, login"),
        (f"smtp://user:{SECRET}@host?ca_file=/no/such/file", "ca_file"),
        ("smtp://host?auth=plain", "without a user name"),
        ("console://host", "Write console:"),
        ("console:?colour=yes", "takes no options"),
        ("memory:/path", "takes no path"),
        ("folder:", "needs a path"),
        ("folder://var/mail", "folder:///absolute/path"),
        (f"folder://user:{SECRET}@/var/mail", "no user name"),
        ("folder:/tmp/x?sync=no", "takes no options"),
    ],
)
def test_a_mistake_is_named_and_nothing_secret_is_shown(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        provider_from_url(url)
    shown = f"{caught.value!r} {caught.value.__cause__!r}"
    assert SECRET not in shown
    assert "provider URL" in str(caught.value)


def test_options_do_not_show_the_password() -> None:
    assert SECRET not in repr(options(f"smtp://user:{SECRET}@host"))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"smtp://user:{SECRET}@host:25?tls=none", "smtp://***@host:25?tls=none"),
        (f"smtp://user:{SECRET}@{SECRET}@host", "smtp://***@host"),
        (f"smtp://user:a?{SECRET}@host", "smtp:***"),
        (f"postmark://{SECRET}@", "postmark://***@"),
        (f"other://host?api_key={SECRET}&region=eu", "other://host?api_key=***&region=eu"),
        (f"postmark:{SECRET}@host", "postmark:***@host"),
        ("console:", "console:"),
        ("folder:///var/mail", "folder:///var/mail"),
        (SECRET, "***"),
        ("", "***"),
    ],
)
def test_a_url_is_redacted_for_logs(url: str, shown: str) -> None:
    assert redact_url(url) == shown


@pytest.mark.parametrize(("form", "relative"), [("folder:{}", False), ("folder://{}", False), ("folder:m/x", True)])
def test_a_folder_may_be_absolute_or_relative(
    form: str, relative: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    provider_from_url(form.format(tmp_path / "m" / "x"))
    assert sorted(part.name for part in (tmp_path / "m" / "x").iterdir()) == ["cur", "new", "tmp"]


def test_a_folder_that_may_not_be_made_stops_the_start_up(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="Maildir"):
        provider_from_url(f"folder:{tmp_path}/file/maildir")


def made_by_another_package(url: str) -> MemoryProvider:
    provider = MemoryProvider()
    provider.name = url.partition(":")[0]
    return provider


def broken(url: str) -> None:
    raise RuntimeError(url)


def no_provider(url: str) -> object:
    return object()


def test_other_packages_add_providers_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    def offer(function: str) -> None:
        point = EntryPoint("pigeon", f"{__name__}:{function}", registry.ENTRY_POINTS)
        monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == registry.ENTRY_POINTS else [])

    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or _this_module())
    offer("made_by_another_package")
    assert provider_from_url("pigeon://coop").name == "pigeon"
    assert "pigeon" in registry.schemes()
    with pytest.raises(ConfigurationError, match="pigeon"):
        provider_from_url("pidgeon://coop")
    offer("broken")
    with pytest.raises(ConfigurationError, match="RuntimeError") as caught:
        provider_from_url(f"pigeon://{SECRET}@coop")
    assert SECRET not in str(caught.value)
    offer("no_provider")
    with pytest.raises(ConfigurationError, match="no provider: it has no 'name'"):
        provider_from_url("pigeon://coop")


def _this_module() -> object:
    import types

    module = types.ModuleType(__name__)
    module.__dict__.update(globals())
    return module


def test_the_registry_loads_no_provider_before_it_is_asked() -> None:
    code = (
        "import sys, outbox_mail.mail.providers.registry\n"
        "loaded = [name for name in sys.modules if name.startswith('outbox_mail.mail.providers.')]\n"
        "assert sorted(loaded) == ['outbox_mail.mail.providers.base', 'outbox_mail.mail.providers.registry',"
        " 'outbox_mail.mail.providers.url'], loaded\n"
        "assert not {'smtplib', 'celery', 'jinja2', 'psycopg'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
