"""A changed file is used soon, without a restart, by every thread, and never half of it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from outbox_mail.errors import ErrorClass, TemplateError
from outbox_mail.mail.templates import Templates
from outbox_mail.mail.templates.files import Timing

QUICK = Timing(check_seconds=0.02, settle_seconds=0, grace_seconds=0.3)


def put(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.new")
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)


def until(condition: Callable[[], Any], seconds: float = 10) -> None:
    give_up_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up_at, "it did not come about"
        time.sleep(0.01)


def outcome(templates: Templates, name: str = "T", **options: Any) -> str:
    try:
        content = templates.render(name, {}, **options)
    except TemplateError as error:
        return error.code
    return f"{content.subject}|{content.html or content.text}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    put(
        tmp_path,
        {
            "_layouts/base.html": "<1>{% block b %}{% endblock %}{% include '_layouts/foot.html' %}",
            "_layouts/foot.html": "<f1>",
            "T/subject.txt": "s1",
            "T/body.html": "{% extends '_layouts/base.html' %}{% block b %}b1{% endblock %}",
        },
    )
    return tmp_path


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("T/subject.txt", "s2", "s2|<1>b1<f1>"),
        ("T/body.html", "plain", "s1|plain"),
        ("_layouts/base.html", "<2>{% block b %}{% endblock %}", "s1|<2>b1"),
        ("_layouts/foot.html", "<f2>", "s1|<1>b1<f2>"),
    ],
)
def test_a_change_of_any_file_that_a_template_uses_is_seen(folder: Path, file: str, text: str, expected: str) -> None:
    templates = Templates([folder], timing=QUICK)
    assert outcome(templates) == "s1|<1>b1<f1>"
    put(folder, {file: text})
    until(lambda: outcome(templates) == expected)


def test_new_locales_bodies_layouts_and_manifests_are_seen(folder: Path) -> None:
    templates = Templates([folder], timing=QUICK)
    assert outcome(templates, locale="tr-TR") == "s1|<1>b1<f1>"
    put(folder, {"_layouts/tr/base.html": "<tr>{% block b %}{% endblock %}"})
    until(lambda: outcome(templates, locale="tr-TR") == "s1|<tr>b1")
    put(folder, {"T/tr/subject.txt": "konu", "T/tr-TR/body.html": "gövde"})
    until(lambda: outcome(templates, locale="tr-TR") == "konu|gövde")
    assert outcome(templates) == "s1|<1>b1<f1>"
    put(folder, {"T/body.txt": "text"})
    until(lambda: templates.render("T", {}).text == "text")
    put(folder, {"T/template.toml": 'delivery = "at_most_once"\nsender = "a@b.example"'})
    until(lambda: templates.policy("T").at_most_once)
    until(lambda: templates.render("T", {}).sender == "a@b.example")


def test_a_template_that_is_added_or_removed_is_seen(folder: Path) -> None:
    templates = Templates([folder], timing=QUICK)
    assert outcome(templates, "NEW") == "template_not_found"
    put(folder, {"NEW/subject.txt": "s", "NEW/body.txt": "t"})
    until(lambda: outcome(templates, "NEW") == "s|t")
    for file in ("NEW/subject.txt", "NEW/body.txt"):
        (folder / file).unlink()
    until(lambda: outcome(templates, "NEW") == "template_not_found")


def test_a_change_of_the_same_size_and_time_is_seen_by_its_inode(folder: Path) -> None:
    templates = Templates([folder], timing=QUICK)
    assert outcome(templates).startswith("s1")
    before = (folder / "T/subject.txt").stat()
    draft = folder / "draft"
    draft.write_text("s2")
    os.utime(draft, ns=(before.st_atime_ns, before.st_mtime_ns))
    draft.replace(folder / "T/subject.txt")
    until(lambda: outcome(templates).startswith("s2"))


def test_a_linked_folder_that_is_switched_at_once_is_seen(tmp_path: Path) -> None:
    for version in ("1", "2"):
        put(tmp_path / f"v{version}", {"T/subject.txt": f"s{version}", "T/body.txt": f"t{version}"})
    (tmp_path / "current").symlink_to("v1")
    templates = Templates([tmp_path / "current"], timing=QUICK)
    assert outcome(templates) == "s1|t1"
    (tmp_path / "next").symlink_to("v2")
    (tmp_path / "next").replace(tmp_path / "current")
    until(lambda: outcome(templates) == "s2|t2")


def test_a_broken_change_leaves_the_one_before_in_use_for_a_while_then_fails_and_heals(folder: Path) -> None:
    templates = Templates([folder], timing=QUICK)
    assert outcome(templates).startswith("s1")
    put(folder, {"T/subject.txt": "{% if %}"})
    time.sleep(2 * QUICK.check_seconds)
    assert outcome(templates).startswith("s1")
    until(lambda: outcome(templates) == "template_error")
    with pytest.raises(TemplateError) as caught:
        templates.render("T", {})
    assert caught.value.error_class is ErrorClass.PERMANENT
    assert "T/subject.txt line 1" in str(caught.value)
    put(folder, {"T/subject.txt": "s3"})
    until(lambda: outcome(templates).startswith("s3"))


def test_a_file_that_is_being_written_is_not_taken_until_it_rests(folder: Path) -> None:
    templates = Templates([folder], timing=Timing(check_seconds=0, settle_seconds=0.5, grace_seconds=5))
    assert outcome(templates).startswith("s1")
    seen = set()
    with (folder / "T/subject.txt").open("w") as file:
        for piece in ("half ", "a ", "subject"):
            file.write(piece)
            file.flush()
            seen.add(outcome(templates).partition("|")[0])
    seen.add(outcome(templates).partition("|")[0])
    assert seen == {"s1"}
    until(lambda: outcome(templates).startswith("half a subject"))


def test_a_file_that_was_broken_at_the_start_heals(folder: Path) -> None:
    put(folder, {"T/subject.txt": "{{ half"})
    templates = Templates([folder], timing=QUICK)
    assert outcome(templates) == "template_error"
    put(folder, {"T/subject.txt": "whole"})
    until(lambda: outcome(templates).startswith("whole"))


def test_a_file_dated_in_the_future_is_taken(folder: Path) -> None:
    templates = Templates([folder], timing=Timing(check_seconds=0, settle_seconds=30))
    assert outcome(templates).startswith("s1")
    put(folder, {"T/subject.txt": "s2"})
    ahead = time.time() + 3600
    os.utime(folder / "T/subject.txt", (ahead, ahead))
    assert outcome(templates).startswith("s2")


def test_files_are_looked_at_only_so_often(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    templates = Templates([folder], timing=Timing(check_seconds=60))
    assert outcome(templates).startswith("s1")
    looks = 0
    stat = os.stat

    def counted(*args: Any, **kwargs: Any) -> os.stat_result:
        nonlocal looks
        looks += 1
        return stat(*args, **kwargs)

    monkeypatch.setattr(os, "stat", counted)
    for _ in range(100):
        assert outcome(templates).startswith("s1")
    assert looks == 0


def test_one_check_takes_a_handful_of_looks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    templates = Templates([folder], timing=Timing(check_seconds=0))
    assert outcome(templates, locale="tr-TR").startswith("s1")
    looks = 0
    stat = os.stat

    def counted(*args: Any, **kwargs: Any) -> os.stat_result:
        nonlocal looks
        looks += 1
        return stat(*args, **kwargs)

    monkeypatch.setattr(os, "stat", counted)
    assert outcome(templates, locale="tr-TR").startswith("s1")
    # Four files and their two locales, the other body, the manifest.
    assert 0 < looks <= 20


def test_threads_that_render_while_files_change_see_whole_versions_only(folder: Path) -> None:
    def version(number: int) -> dict[str, str]:
        return {"T/body.html": f"{number}:" + "{% for i in range(20) %}" + f"{number}," + "{% endfor %}"}

    put(folder, version(0))
    templates = Templates([folder], timing=Timing(check_seconds=0, settle_seconds=0))
    problems: list[str] = []
    latest: set[int] = set()
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            try:
                html = templates.render("T", {}).html or ""
            except Exception as error:  # noqa: BLE001 - any is the finding
                problems.append(repr(error))
                return
            number, _, rest = html.partition(":")
            if rest != f"{number}," * 20:
                problems.append(html)
            latest.add(int(number))
            # Else six threads keep the one that writes from running.
            time.sleep(0.001)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for number in range(1, 60):
        put(folder, version(number))
        time.sleep(0.005)
    until(lambda: 59 in latest or problems)
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(latest) > 5
