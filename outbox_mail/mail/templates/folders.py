"""Where a template's files are: the first folder that has it, and in it the most special locale."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, Final

from jinja2 import BaseLoader, Environment, Template, TemplateNotFound
from jinja2.exceptions import TemplateRuntimeError

from outbox_mail.errors import ErrorClass, TemplateError
from outbox_mail.mail.templates.budget import LimitError
from outbox_mail.mail.templates.files import Signature, Watch
from outbox_mail.mail.templates.manifest import FILE_NAME
from outbox_mail.mail.templates.names import is_file_name, is_template_name

SUBJECT: Final = "subject.txt"
TEXT: Final = "body.txt"
HTML: Final = "body.html"
_MARKS: Final = (SUBJECT, TEXT, HTML, FILE_NAME)
_MOST_WATCHED: Final = 500
TOO_DEEP: Final = (RecursionError, MemoryError, SyntaxError)
"""What Python answers when what it compiles is nested deeply."""


class Folders:
    """The folders of templates; of two templates with one name the one in the earlier folder counts."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = tuple(Path(root) for root in roots)

    def of_template(self, name: str, watch: Watch) -> Path:
        """The folder of a template.

        Raises ``TemplateError``: permanent with ``template_not_found``, transient when a whole root is not there (a
        volume that is not mounted).
        """
        for root in self.roots:
            if any(watch.look(root / name / mark) for mark in _MARKS):
                if any((root / above / mark).is_file() for above in _above(name) for mark in _MARKS):
                    break
                return root / name
        for root in self.roots:
            if not root.is_dir():
                raise TemplateError(
                    "template_unreadable",
                    f"the folder of templates {str(root)!r} is not there. Check that it is mounted",
                    error_class=ErrorClass.TRANSIENT,
                )
        raise TemplateError(
            "template_not_found",
            f"there is no template {name!r}. Make a folder of that name with {SUBJECT} and {HTML} or {TEXT} in it "
            f"below {' or '.join(str(root) for root in self.roots)}, and requeue the message",
        )

    def names(self) -> Iterator[str]:
        """Every template's name, in no order, each once."""
        seen: set[str] = set()
        for root in self.roots:
            for name in _names_below(root, ""):
                if name not in seen:
                    seen.add(name)
                    yield name


def _above(name: str) -> Iterator[str]:
    parts = name.split("/")
    for depth in range(1, len(parts)):
        yield "/".join(parts[:depth])


def _names_below(folder: Path, prefix: str) -> Iterator[str]:
    try:
        entries = sorted(entry for entry in folder.iterdir() if entry.is_dir())
    except OSError:
        return
    for entry in entries:
        name = prefix + entry.name
        if not is_template_name(name):
            continue
        if any((entry / mark).is_file() for mark in _MARKS):
            yield name
        else:
            yield from _names_below(entry, f"{name}/")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A file's code, for as long as the file is as it was."""

    signature: Signature | None
    code: CodeType
    source: str


class CodeCache:
    """Compiled files, shared by all templates that include them. At most one entry for each file on the disk."""

    def __init__(self) -> None:
        self._entries: dict[Path, Compiled] = {}
        self._lock = threading.Lock()

    def get(self, path: Path, signature: Signature | None) -> Compiled | None:
        """The code of the file as it is now, if it was compiled."""
        found = self._entries.get(path)
        return found if found is not None and found.signature == signature else None

    def put(self, path: Path, compiled: Compiled) -> None:
        """Keep it."""
        with self._lock:
            self._entries[path] = compiled


class LocaleLoader(BaseLoader):
    """Loads the files of one template in one locale, and remembers them in its watch.

    A name ``folder/file.html`` means, for the locale ``tr-TR``, the first of ``folder/tr-TR/file.html``,
    ``folder/tr/file.html`` and ``folder/file.html``, in the first root that has any of them. So layouts and includes
    have locales like templates.
    """

    def __init__(self, folders: Folders, locales: tuple[str, ...], codes: CodeCache, max_bytes: int) -> None:
        self._folders = folders
        self._locales = locales
        self._codes = codes
        self._max_bytes = max_bytes
        self.watch = Watch()
        self.sources: dict[str, str] = {}
        """By the name that errors show."""

    def load(self, environment: Environment, name: object, globals: Any = None) -> Any:  # noqa: A002 - as in Jinja2
        """What a template includes, imports or extends, compiled.

        Raises ``TemplateNotFound``, ``UnreadableFileError``, or what the compiler raises.
        """
        if not isinstance(name, str) or not is_file_name(name):
            raise TemplateNotFound(str(name)[:200], message="it is no plain path below the template folders")
        missed = Watch()
        for root in self._folders.roots:
            for locale in (*self._locales, ""):
                found = self.load_from(environment, root, name, locale, missed, globals)
                if found is not None:
                    # Those before it would be taken if they appeared. Of a name that is nowhere nothing is remembered:
                    # names made from parameters could be any number, and the next render looks again anyway.
                    self.watch.seen.update(missed.seen)
                    if len(self.watch.seen) > _MOST_WATCHED:
                        raise TemplateRuntimeError(f"it includes more than {_MOST_WATCHED} files")
                    return found
        raise TemplateNotFound(name)

    def load_from(
        self,
        environment: Environment,
        root: Path,
        name: str,
        locale: str,
        watch: Watch,
        globals: Any = None,  # noqa: A002 - as in Jinja2
    ) -> Template | None:
        """The compiled file of one root and locale; None when it is not there. Remembered in ``watch``."""
        folder, _, file = name.rpartition("/")
        shown = "/".join(part for part in (folder, locale, file) if part)
        path = root / shown
        if not watch.look(path):
            return None
        found = self._codes.get(path, watch.seen[path])
        if found is None:
            try:
                source = watch.read(path, self._max_bytes)
            except ValueError as problem:
                raise UnreadableFileError(shown, str(problem)) from None
            if source is None:
                return None
            self.sources[shown] = source
            try:
                code = environment.compile(source, name, shown)
            except TOO_DEEP:
                raise TooComplexError(shown, "it is nested too deeply") from None
            except LimitError as error:
                raise TooComplexError(shown, str(error)) from None
            found = Compiled(watch.seen[path], code, source)
            self._codes.put(path, found)
        self.sources[shown] = found.source
        if globals is None:
            # A plain dict, as it is copied for each render.
            globals = dict(environment.globals)  # noqa: A001 - as in Jinja2
        return environment.template_class.from_code(environment, found.code, globals, None)


class TooComplexError(LimitError):
    """A file of a template can't be compiled within bounds."""

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(problem)
        self.file = file


class UnreadableFileError(TemplateRuntimeError):
    """A file of a template is too large or not UTF-8."""

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(problem)
        self.file = file
