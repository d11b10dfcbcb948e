"""The templates of a service: rendering, and what each says about its delivery."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from jinja2 import Template

from outbox_mail.errors import ConfigurationError, TemplateError
from outbox_mail.mail.compose.content import RenderedContent
from outbox_mail.mail.templates.budget import Limits
from outbox_mail.mail.templates.explain import explain
from outbox_mail.mail.templates.files import Following, Timing, Watch
from outbox_mail.mail.templates.filters import install
from outbox_mail.mail.templates.folders import HTML, SUBJECT, TEXT, CodeCache, Folders, LocaleLoader
from outbox_mail.mail.templates.manifest import FILE_NAME, Manifest, parse_manifest
from outbox_mail.mail.templates.names import is_template_name, locale_chain
from outbox_mail.mail.templates.sandbox import BoundedEnvironment

logger = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

_MOST_KEPT: Final = 1000
_NAMES_SECONDS: Final = 5.0
# Every control character, and what Unicode takes for a line break; a no-break space stays.
_ONE_LINE: Final = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029]+")


@dataclass(frozen=True, slots=True)
class TemplatePolicy:
    """What a template's manifest says about its delivery."""

    at_most_once: bool
    """An unknown outcome ends FAILED for a person to judge, instead of being tried again."""
    max_attempts: int | None
    """None: the service's own."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    name: str
    loader: LocaleLoader
    manifest: Manifest
    subject: Template
    text: Template | None
    html: Template | None


class Templates:
    """Templates in folders, followed as their files change. One instance serves all threads of a process.

    A template is a folder with ``subject.txt``, and ``body.html`` or ``body.txt`` or both; ``template.toml`` beside
    them is optional. ``tr-TR/`` and ``tr/`` in it hold the same files for a locale. The subject is the first that the
    chain ``tr-TR``, ``tr``, default has; so are the bodies, both from one locale, so that a mail never speaks two
    languages. Files may extend, include and import others by their path below the folders
    (``{% extends "_layouts/base.html" %}``), which have locales in the same way.

    HTML files are autoescaped, others are not. A name that is missing is an error unless the template tests it or
    gives it a default. ``schema_version`` is there for templates that read parameters of several shapes.
    """

    def __init__(
        self, folders: Sequence[Path | str], *, limits: Limits | None = None, timing: Timing | None = None
    ) -> None:
        """``folders`` in their order: the first that has a template wins.

        Raises ``ConfigurationError`` when one is not there.
        """
        self._folders = Folders([Path(folder) for folder in folders])
        for root in self._folders.roots:
            if not root.is_dir():
                raise ConfigurationError(f"templates: the folder {str(root)!r} is not there. Make it, or name another")
        self._limits = limits or Limits()
        self._timing = timing or Timing()
        self._codes = CodeCache()
        self._environment = BoundedEnvironment(self._limits, autoescape=_is_html, auto_reload=False)
        install(self._environment)
        self._loaded: dict[tuple[str, tuple[str, ...]], Following[_Loaded]] = {}
        self._manifests: dict[str, Following[Manifest]] = {}
        self._lock = threading.Lock()
        self._at_most_once: tuple[float, tuple[str, ...]] = (0.0, ())
        self._last_known: dict[str, bool] = {}

    def render(
        self, name: str, parameters: Mapping[str, Any], *, locale: str | None = None, schema_version: int = 1
    ) -> RenderedContent:
        """One row's content. The same files, parameters, locale and version always give the same.

        Files are looked at once a second at most; see ``Timing``. A render takes no more than ``Limits`` allow.

        Raises ``TemplateError``, whose text names template, file, line and parameter, and never a value. Permanent:
        ``template_not_found``, ``parameter_missing``, ``template_error`` (broken, or a value does not fit),
        ``template_forbidden`` (beyond the sandbox), ``template_limit`` (too much work or output),
        ``schema_version_unknown`` (the parameters are newer than the template). Transient: ``template_unreadable``.
        """
        chain = locale_chain(locale)
        following = self._loaded.get((name, chain))
        if following is None:
            self._require_name(name)
            following = self._follow(self._loaded, (name, chain), lambda watch: self._load(name, chain, watch))
        loaded = following.get()
        newest = loaded.manifest.schema_version
        if newest is not None and schema_version > newest:
            raise TemplateError(
                "schema_version_unknown",
                f"template {name!r}: the parameters have version {schema_version}, the template reads up to {newest}. "
                "Bring the newer template here and requeue the message",
            )
        if not isinstance(parameters, Mapping):
            raise TemplateError("template_error", f"template {name!r}: the parameters are no object. Mend the row")
        values = {"schema_version": schema_version, **parameters}
        self._environment.meter.start()
        subject = _ONE_LINE.sub(" ", self._written(loaded, loaded.subject, values)).strip()
        if not subject:
            raise TemplateError("template_error", f"template {name!r}: its subject is empty. Write one in {SUBJECT}")
        return RenderedContent(
            subject=subject,
            text=None if loaded.text is None else self._written(loaded, loaded.text, values),
            html=None if loaded.html is None else self._written(loaded, loaded.html, values),
            sender=loaded.manifest.sender,
            reply_to=loaded.manifest.reply_to,
        )

    def policy(self, name: str) -> TemplatePolicy:
        """What the template's manifest says; raises ``TemplateError`` when there is none, or it is broken."""
        manifest = self._manifest(name)
        return TemplatePolicy(manifest.at_most_once, manifest.max_attempts)

    def at_most_once_names(self) -> tuple[str, ...]:
        """The templates whose unknown outcomes must not be tried again, sorted; looked for every five seconds.

        A template whose manifest is broken keeps what it said last. If this process has never read it whole it counts
        as one: a person can send a mail again, nobody can take a second one back.
        """
        looked_at, names = self._at_most_once
        if looked_at and time.monotonic() - looked_at < _NAMES_SECONDS:
            return names
        found = []
        for name in self._folders.names():
            try:
                self._last_known[name] = self._manifest(name).at_most_once
            except TemplateError as error:
                logger.warning("template_manifest_broken", extra={"template": name, "code": error.code})
            if self._last_known.get(name, True):
                found.append(name)
        names = tuple(sorted(found))
        self._at_most_once = (time.monotonic(), names)
        return names

    def names(self) -> tuple[str, ...]:
        """Every template's name, sorted. Walks the folders at each call."""
        return tuple(sorted(self._folders.names()))

    @staticmethod
    def _require_name(name: object) -> None:
        if not isinstance(name, str) or not is_template_name(name):
            raise TemplateError(
                "template_not_found",
                f"{str(name)[:80]!r} is not a template's name. Use letters, digits, '_', '-' and '.', "
                "with '/' between folders",
            )

    def _follow(self, kept: dict[K, Following[V]], key: K, make: Callable[[Watch], V]) -> Following[V]:
        if (found := kept.get(key)) is not None:
            return found
        following = Following(make, self._timing)
        # Kept only once it was made: rows may ask for any number of names that are not there.
        following.get()
        with self._lock:
            while len(kept) >= _MOST_KEPT:
                del kept[next(iter(kept))]
            return kept.setdefault(key, following)

    def _manifest(self, name: str) -> Manifest:
        self._require_name(name)
        return self._follow(self._manifests, name, lambda watch: self._read_manifest(name, watch)).get()

    def _read_manifest(self, name: str, watch: Watch) -> Manifest:
        path = self._folders.of_template(name, watch) / FILE_NAME
        try:
            text = watch.read(path, self._limits.source_bytes)
            return Manifest() if text is None else parse_manifest(text)
        except ValueError as problem:
            raise TemplateError("template_error", f"template {name!r}, {path}: {problem}. Mend the file") from None

    def _load(self, name: str, chain: tuple[str, ...], watch: Watch) -> _Loaded:
        manifest = self._read_manifest(name, watch)
        root = self._folders.of_template(name, watch)
        for _ in name.split("/"):
            root = root.parent
        loader = LocaleLoader(self._folders, chain, self._codes, self._limits.source_bytes)
        # What is included later, at the first render, is watched too.
        loader.watch = watch
        environment = self._environment.overlay(loader=loader)
        environment.meter.start()
        subject = text = html = None
        try:
            for locale in (*chain, ""):
                if subject is None:
                    subject = loader.load_from(environment, root, f"{name}/{SUBJECT}", locale, watch)
                if text is None and html is None:
                    text = loader.load_from(environment, root, f"{name}/{TEXT}", locale, watch)
                    html = loader.load_from(environment, root, f"{name}/{HTML}", locale, watch)
        except TemplateError:
            raise
        except Exception as error:  # noqa: BLE001 - the compiler raises whatever Python's does
            raise explain(error, name, loader.sources) from None
        if subject is None:
            raise TemplateError("template_error", f"template {name!r}: it has no {SUBJECT}. Write one")
        if text is None and html is None:
            raise TemplateError("template_error", f"template {name!r}: it has no {HTML} and no {TEXT}. Write one")
        return _Loaded(name, loader, manifest, subject, text, html)

    def _written(self, loaded: _Loaded, template: Template, values: dict[str, Any]) -> str:
        try:
            return self._environment.meter.joined(list(template.root_render_func(template.new_context(values))))
        except (TemplateError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - a template may raise anything
            raise explain(error, loaded.name, loaded.loader.sources) from None


def _is_html(name: str | None) -> bool:
    return name is not None and name.endswith((".html", ".htm", ".xml"))
