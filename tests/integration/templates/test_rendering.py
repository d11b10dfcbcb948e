"""From files and parameters to content; and for everything that goes wrong, an error that says where."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from outbox_mail.errors import ConfigurationError, ErrorClass, TemplateError
from outbox_mail.mail.templates import Templates

Write = Callable[[Mapping[str, str]], Templates]

SECRET = "4929-secret-value"


def failure(templates: Templates, name: str, parameters: Any = None, **options: Any) -> TemplateError:
    with pytest.raises(TemplateError) as caught:
        templates.render(name, {} if parameters is None else parameters, **options)
    assert SECRET not in str(caught.value)
    return caught.value


def test_subject_text_and_html_are_rendered_and_only_html_is_escaped(write: Write) -> None:
    templates = write(
        {
            "ORDER/subject.txt": "Order {{ id }} for {{ name }}\n",
            "ORDER/body.txt": "Hello {{ name }}",
            "ORDER/body.html": "<p>Hello {{ name }}</p>",
        }
    )
    content = templates.render("ORDER", {"id": 7, "name": "Ayşe & <Co>"})
    assert content.subject == "Order 7 for Ayşe & <Co>"
    assert content.text == "Hello Ayşe & <Co>"
    assert content.html == "<p>Hello Ayşe &amp; &lt;Co&gt;</p>"
    assert content.sender is None
    assert content.reply_to == ()


def test_either_body_may_be_absent_but_not_both(write: Write) -> None:
    templates = write(
        {
            "T/subject.txt": "s",
            "T/body.txt": "t",
            "H/subject.txt": "s",
            "H/body.html": "h",
            "NONE/subject.txt": "s",
            "NOSUBJECT/body.txt": "t",
        }
    )
    assert (templates.render("T", {}).text, templates.render("T", {}).html) == ("t", None)
    assert (templates.render("H", {}).text, templates.render("H", {}).html) == (None, "h")
    assert "body.html" in str(failure(templates, "NONE"))
    assert "subject.txt" in str(failure(templates, "NOSUBJECT"))


@pytest.mark.parametrize(
    "value", ["one\r\ntwo", "one\ntwo", "one\u2028two", "one\x85two", "one\x0btwo", "one \t\n two", "one\0two"]
)
def test_the_subject_is_one_line_whatever_the_parameters_hold(write: Write, value: str) -> None:
    templates = write({"T/subject.txt": "\n {{ value }}\n\n", "T/body.txt": "x"})
    assert templates.render("T", {"value": value}).subject == "one two"


def test_a_no_break_space_in_the_subject_stays(write: Write) -> None:
    templates = write({"T/subject.txt": "Bonjour\u00a0!", "T/body.txt": "x"})
    assert templates.render("T", {}).subject == "Bonjour\u00a0!"


def test_an_empty_subject_is_an_error(write: Write) -> None:
    assert "subject" in str(failure(write({"T/subject.txt": "{{ x }}", "T/body.txt": "x"}), "T", {"x": " \n"}))


def test_layouts_includes_and_macros_are_shared_by_templates(write: Write) -> None:
    templates = write(
        {
            "_layouts/base.html": "<html>{% block body %}{% endblock %}{% include '_parts/footer.html' %}</html>",
            "_parts/footer.html": "<i>{{ shop }}</i>",
            "_parts/macros.html": "{% macro price(value) %}<b>{{ '%.2f' % value }}</b>{% endmacro %}",
            "ORDER/subject.txt": "s",
            "ORDER/body.html": "{% extends '_layouts/base.html' %}{% from '_parts/macros.html' import price %}"
            "{% block body %}{% for line in lines %}{{ loop.index }}:{{ price(line.price) }}{% endfor %}{% endblock %}",
        }
    )
    html = templates.render("ORDER", {"shop": "A&B", "lines": [{"price": 1}, {"price": 2.5}]}).html
    assert html == "<html>1:<b>1.00</b>2:<b>2.50</b><i>A&amp;B</i></html>"


def test_a_key_of_an_object_is_found_whatever_it_is_called(write: Write) -> None:
    templates = write(
        {
            "T/subject.txt": "s",
            "T/body.txt": "{% for i in order.items %}{{ i }},{% endfor %}"
            "{% for k, v in order.items() %}{{ k }}{% endfor %}"
            " {{ order.pop }} {{ order['copy'] }} {{ order.get('no', 'none') }}",
        }
    )
    text = templates.render("T", {"order": {"items": [1, 2], "pop": "p", "copy": "c"}}).text
    assert text == "1,2,itemspopcopy p c none"


def test_parameters_with_the_names_of_template_functions_are_just_values(write: Write) -> None:
    templates = write({"T/subject.txt": "s", "T/body.txt": "{{ range }} {{ dict }} {{ context }} {{ environment }}"})
    parameters = {"range": 1, "dict": 2, "context": 3, "environment": 4, "self": 5, "loop": 6, "caller": 7}
    assert templates.render("T", parameters).text == "1 2 3 4"


def test_the_most_special_locale_that_is_there_is_taken(write: Write) -> None:
    templates = write(
        {
            "T/subject.txt": "default",
            "T/body.txt": "default text",
            "T/body.html": "default html",
            "T/tr/subject.txt": "tr",
            "T/tr/body.txt": "tr text",
            "T/tr-TR/subject.txt": "tr-TR",
        }
    )
    assert templates.render("T", {}, locale="tr-TR").subject == "tr-TR"
    assert templates.render("T", {}, locale="tr-CY").subject == "tr"
    assert templates.render("T", {}, locale="de").subject == "default"
    assert templates.render("T", {}, locale="../..").subject == "default"


def test_a_mail_never_has_bodies_in_two_languages(write: Write) -> None:
    templates = write(
        {"T/subject.txt": "s", "T/body.txt": "english", "T/body.html": "english", "T/tr/body.html": "türkçe"}
    )
    content = templates.render("T", {}, locale="tr")
    assert (content.text, content.html) == (None, "türkçe")


def test_layouts_have_locales_too(write: Write) -> None:
    templates = write(
        {
            "_layouts/base.html": "<en>{% block b %}{% endblock %}",
            "_layouts/tr/base.html": "<tr>{% block b %}{% endblock %}",
            "T/subject.txt": "s",
            "T/body.html": "{% extends '_layouts/base.html' %}{% block b %}x{% endblock %}",
        }
    )
    assert templates.render("T", {}, locale="tr-TR").html == "<tr>x"
    assert templates.render("T", {}).html == "<en>x"


def test_the_first_folder_that_has_a_template_wins_as_a_whole(tmp_path: Path) -> None:
    for root, files in {"own": {"A": "own"}, "base": {"A": "base", "B": "base"}}.items():
        for name, text in files.items():
            (tmp_path / root / name).mkdir(parents=True)
            (tmp_path / root / name / "subject.txt").write_text(text)
            (tmp_path / root / name / ("body.txt" if root == "own" else "body.html")).write_text(text)
    templates = Templates([tmp_path / "own", tmp_path / "base"])
    content = templates.render("A", {})
    assert (content.subject, content.text, content.html) == ("own", "own", None)
    assert templates.render("B", {}).html == "base"
    assert templates.names() == ("A", "B")


def test_the_manifest_gives_sender_reply_to_and_policy(write: Write) -> None:
    templates = write(
        {
            "ONCE/subject.txt": "s",
            "ONCE/body.txt": "t",
            "ONCE/template.toml": 'delivery = "at_most_once"\nmax_attempts = 2\n'
            'sender = "Shop <shop@example.com>"\nreply_to = ["help@example.com"]',
            "PLAIN/subject.txt": "s",
            "PLAIN/body.txt": "t",
            "deep/er/TOO/subject.txt": "s",
            "deep/er/TOO/body.txt": "t",
            "_layouts/base.html": "",
            ".git/subject.txt": "no",
        }
    )
    content = templates.render("ONCE", {})
    assert (content.sender, content.reply_to) == ("Shop <shop@example.com>", ("help@example.com",))
    policy = templates.policy("ONCE")
    assert (policy.at_most_once, policy.max_attempts) == (True, 2)
    plain = templates.policy("PLAIN")
    assert (plain.at_most_once, plain.max_attempts) == (False, None)
    assert templates.at_most_once_names() == ("ONCE",)
    assert templates.names() == ("ONCE", "PLAIN", "deep/er/TOO")
    assert templates.render("deep/er/TOO", {}).subject == "s"


def test_a_broken_manifest_names_file_and_key_and_counts_as_at_most_once(write: Write) -> None:
    templates = write({"T/subject.txt": "s", "T/body.txt": "t", "T/template.toml": "max_atempts = 3"})
    error = failure(templates, "T")
    assert error.code == "template_error"
    assert "template.toml" in str(error)
    assert "max_atempts" in str(error)
    with pytest.raises(TemplateError, match="max_atempts"):
        templates.policy("T")
    assert templates.at_most_once_names() == ("T",)


def test_the_schema_version_can_be_read_and_a_newer_one_is_refused(write: Write) -> None:
    templates = write(
        {
            "T/subject.txt": "{{ name if schema_version >= 2 else old_name }}",
            "T/body.txt": "t",
            "T/template.toml": "schema_version = 2",
        }
    )
    assert templates.render("T", {"old_name": "old"}, schema_version=1).subject == "old"
    assert templates.render("T", {"name": "new"}, schema_version=2).subject == "new"
    error = failure(templates, "T", {"name": "x"}, schema_version=3)
    assert (error.code, error.error_class) == ("schema_version_unknown", ErrorClass.PERMANENT)


@pytest.mark.parametrize("name", ["NOPE", "../T", "/T", "T/../T", "_layouts", ".T", "T\0", "T\\x", "x" * 300, "T/tr"])
def test_an_unknown_or_crooked_name_is_a_permanent_error(write: Write, name: str) -> None:
    templates = write({"T/subject.txt": "s", "T/body.txt": "t", "T/tr/subject.txt": "s", "T/tr/body.txt": "t"})
    error = failure(templates, name)
    assert (error.code, error.error_class) == ("template_not_found", ErrorClass.PERMANENT)
    with pytest.raises(TemplateError):
        templates.policy(name)


@pytest.mark.parametrize(
    ("body", "parameters", "shown"),
    [
        ("\n\n{{ who }}", {}, "line 3: 'who'"),
        ("{{ order.customer.name }}", {"order": {"customer": {}}}, "'order.customer.name'"),
        ("{{ order.customer.name }}", {"order": {}}, "'order.customer"),
        ("{{ order['total'] }}", {"order": {}}, "'total'"),
        ("{% for line in lines %}{{ line.price }}{% endfor %}", {"lines": [{}]}, "'line.price'"),
        ("{% if who == 'x' %}{% endif %}", {}, "'who'"),
        ("{% for x in lines %}{% endfor %}", {}, "'lines'"),
        ("{{ lines|join(',') }}", {}, "'lines'"),
        ("{{ lines|length }}", {}, "'lines'"),
        ("{{ lines|map(attribute='price')|join }}", {"lines": [{"x": 1}]}, "'price'"),
        ("{{ [who] }}", {}, "missing"),
        ("{{ '{}'.format(who) }}", {}, "'who'"),
        ("{{ 'a' ~ who }}", {}, "'who'"),
        ("{{ who|default(other) }}", {}, "'other'"),
        ("{{ table[key] }}", {"table": {}, "key": SECRET}, "line 1: a value that is looked up is missing"),
        ("{{ table[0] }}", {"table": []}, "missing"),
    ],
)
def test_a_missing_parameter_is_named_with_file_and_line(
    write: Write, body: str, parameters: dict[str, Any], shown: str
) -> None:
    error = failure(write({"T/subject.txt": "s", "T/body.html": body}), "T", parameters)
    assert (error.code, error.error_class) == ("parameter_missing", ErrorClass.PERMANENT)
    assert "template 'T', T/body.html" in str(error)
    assert shown in str(error)


def test_a_name_that_may_be_missing_can_be_tested_or_defaulted(write: Write) -> None:
    templates = write(
        {
            "T/subject.txt": "s",
            "T/body.txt": "{{ x|default('-') }}{% if y is defined %}y{% endif %}{{ z is undefined }}",
        }
    )
    assert templates.render("T", {}).text == "-True"


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("ok\n{% if %}", "line 2"),
        ("{% for x in y %}", "line 1"),
        ("{{ x|nofilter }}", "nofilter"),
        ("{% if x is notest %}{% endif %}", "notest"),
        ("{% unknown %}", "unknown"),
        ("{% include '_no/such.html' %}", "_no/such.html"),
        ("{% extends '../T/subject.txt' %}", "../T/subject.txt"),
        ("{% include '/etc/passwd' %}", "/etc/passwd"),
        ("{% include x %}", "not there"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ x + 1 }}", "TypeError"),
        ("{{ x.upper }}", "parentheses"),
        ("{{ x() }}", "not open"),
        ("{{ 'a'.encode() }}", "encode"),
    ],
)
def test_a_broken_template_is_a_permanent_error_that_says_where(write: Write, body: str, shown: str) -> None:
    error = failure(write({"T/subject.txt": "s", "T/body.html": body}), "T", {"x": SECRET})
    assert error.code in {"template_error", "template_forbidden"}
    assert error.error_class is ErrorClass.PERMANENT
    assert "template 'T', T/body.html" in str(error)
    assert shown in str(error)


def test_an_error_in_a_layout_names_the_layout_and_the_template(write: Write) -> None:
    templates = write(
        {
            "_layouts/base.html": "\n{{ shop.name }}{% block b %}{% endblock %}",
            "T/subject.txt": "s",
            "T/body.html": "{% extends '_layouts/base.html' %}",
        }
    )
    assert "template 'T', _layouts/base.html line 2: 'shop' is missing" in str(failure(templates, "T"))


@pytest.mark.parametrize(
    "body",
    [
        "{{ x|float + x }}",
        "{{ {}[x] }}",
        "{{ x.split(1) }}",
        "{{ ''|attr(x) }}",
        "{{ [1]|map(x)|list }}",
        "{{ [1]|select(x)|list }}",
        "{% include x %}",
        "{% from x import y %}",
        "{{ x|format(x) + 1 }}",
        "{{ '{:d}'.format(x) }}",
        "{{ [x]|sum }}",
        "{{ x|round }}",
        "{{ x.index('zzz') }}",
        "{{ {x: 1}|xmlattr + 1 }}",
        "{{ ''[x] }}",
    ],
)
def test_a_parameters_value_is_never_in_an_error(write: Write, body: str) -> None:
    failure(write({"T/subject.txt": "s", "T/body.txt": body}), "T", {"x": SECRET})


def test_no_cause_with_a_value_hangs_on_the_error(write: Write) -> None:
    error = failure(write({"T/subject.txt": "s", "T/body.txt": "{{ x.index('zzz') }}"}), "T", {"x": SECRET})
    assert error.__cause__ is None
    assert error.__suppress_context__


def test_files_that_are_not_utf8_or_too_large_are_named(write: Write, folder: Path) -> None:
    templates = write({"T/subject.txt": "s", "L/subject.txt": "s", "L/body.txt": "x" * 300_000})
    (folder / "T/body.txt").write_bytes(b"caf\xe9")
    assert "T/body.txt: it is not UTF-8" in str(failure(templates, "T"))
    assert "L/body.txt: it is larger than 256000 bytes" in str(failure(templates, "L"))


def test_a_byte_order_mark_is_not_part_of_the_text(write: Write, folder: Path) -> None:
    templates = write({"T/body.txt": "t"})
    (folder / "T/subject.txt").write_bytes(b"\xef\xbb\xbfSubject")
    assert templates.render("T", {}).subject == "Subject"


@pytest.mark.parametrize("parameters", [None, [], "x", 7])
def test_parameters_that_are_no_object_are_a_permanent_error(write: Write, parameters: Any) -> None:
    templates = write({"T/subject.txt": "s", "T/body.txt": "t"})
    with pytest.raises(TemplateError, match="no object"):
        templates.render("T", parameters)


def test_a_folder_that_is_not_there_stops_the_start_and_one_that_vanishes_is_transient(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nowhere"):
        Templates([tmp_path / "nowhere"])
    root = tmp_path / "root"
    root.mkdir()
    templates = Templates([root])
    root.rmdir()
    error = failure(templates, "T")
    assert (error.code, error.error_class) == ("template_unreadable", ErrorClass.TRANSIENT)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_not_the_messages_fault(write: Write, folder: Path) -> None:
    templates = write({"T/subject.txt": "s", "T/body.txt": "t"})
    (folder / "T/body.txt").chmod(0)
    error = failure(templates, "T")
    assert (error.code, error.error_class) == ("template_unreadable", ErrorClass.TRANSIENT)
    (folder / "T/body.txt").chmod(0o644)
    assert templates.render("T", {}).text == "t"


def test_any_number_of_names_and_locales_from_rows_leaves_memory_bounded(write: Write) -> None:
    templates = write({"T/subject.txt": "s", "T/body.txt": "t"})
    for number in range(3000):
        with pytest.raises(TemplateError):
            templates.render(f"NO_{number}", {})
    letters = "abcdefghijklmnopqrstuvwxyz"
    locales = [a + b + c for a in letters for b in letters for c in letters][:2500]
    for locale in locales:
        assert templates.render("T", {}, locale=locale).subject == "s"
    assert len(templates._loaded) <= 1000


def test_a_row_and_a_template_always_give_the_same_content_in_every_thread(write: Write) -> None:
    templates = write(
        {"T/subject.txt": "{{ n }}", "T/body.html": "{% for i in range(50) %}{{ i }}-{{ n }};{% endfor %}"}
    )
    wrong: list[int] = []

    def run(number: int) -> None:
        for _ in range(100):
            content = templates.render("T", {"n": number})
            if content.subject != str(number) or content.html != "".join(f"{i}-{number};" for i in range(50)):
                wrong.append(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
