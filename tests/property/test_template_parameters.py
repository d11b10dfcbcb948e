"""Whatever the parameters are, a render gives content or an error of the template."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_mail.errors import ErrorClass, TemplateError
from outbox_mail.mail.templates import Limits, Templates

_BODY = """
{{ a }} {{ a.b }} {{ a.items }} {% for k, v in a.items() %}{{ k }}={{ v|upper }}{% endfor %}
{% for i in b %}{{ loop.index }}{{ i.name|default('-') }}{{ i ~ a }}{% endfor %}
{{ "%s %.2f"|format(c, d) }} {{ "{} {:>5}".format(c, d) }} {{ (b + b)|join(c) }} {{ c * d }} {{ c % d }} {{ c[d] }}
{{ b|sort|first }} {{ b|map(attribute='x')|list }} {{ c|replace('a', c) }} {{ c|wordwrap(d) }} {{ c|int + d }}
{% if a == b and c in b or d > 1 %}{{ a|tojson }}{% endif %}
"""

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=5) | st.sampled_from(["b", "x", "name", "items", "__class__"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    """A template for each line and each expression."""
    folder = tmp_path_factory.mktemp("templates")
    lines = _BODY.strip().splitlines()
    expressions = [f"{{{{{part.partition('}}')[0]}}}}}" for line in lines for part in line.split("{{")[1:]]
    for number, body in enumerate([*lines, *expressions]):
        made = folder / f"T{number}"
        made.mkdir()
        (made / "subject.txt").write_text("{{ c|default('s') }}")
        (made / "body.txt").write_text(body)
        (made / "body.html").write_text(body)
    return Templates([folder], limits=Limits(output_chars=20_000, work=200_000, cpu_seconds=1))


@given(
    data=st.data(),
    parameters=st.fixed_dictionaries({}, optional={"a": _json, "b": _json, "c": _json, "d": _json}),
    locale=st.none() | st.text(max_size=8),
)
def test_any_parameters_give_content_or_a_permanent_error(
    templates: Templates, data: Any, parameters: dict[str, Any], locale: str | None
) -> None:
    name = data.draw(st.sampled_from(templates.names()))
    failure = None
    try:
        content = templates.render(name, parameters, locale=locale)
    except TemplateError as error:
        failure = error
    if failure is not None:
        assert failure.error_class is ErrorClass.PERMANENT
        assert failure.code.startswith(("template_", "parameter_"))
        return
    assert content.subject == content.subject.strip()
    assert not set("\r\n\0\x85\u2028\u2029") & set(content.subject)
    assert content == templates.render(name, parameters, locale=locale)
