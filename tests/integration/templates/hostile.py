"""Templates that try to use up the worker or to reach out of the data, and a program that renders them all.

Run by ``test_bounds.py`` as a process of its own, with a limit on its memory: what gets through must not take the test
run with it. Each is rendered in a thread, as workers do.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from outbox_mail.errors import TemplateError
from outbox_mail.mail.templates import Limits, Templates

LIMITS = Limits(output_chars=100_000, work=500_000, cpu_seconds=0.2, source_bytes=200_000)
MEMORY_BYTES = 1_500_000_000
PARAMETERS: dict[str, Any] = {"a": {"b": {"c": 1}}, "x": 1, "y": 0, "d": {}}

_BIG = "{% set big = 'a'*90000 %}"
_TWICE = "{% for i in range(10000) %}{% for j in range(10000) %}"
_ENDS = "{% endfor %}{% endfor %}"
_NEST = "{% set n = namespace(x=[1], y=[1], t=(1,)) %}{% for i in range(11) %}{% set n.x = [n.x, n.x] %}"
_NESTED = _NEST + "{% set n.y = [n.y, n.y] %}{% set n.t = (n.t, n.t) %}{% endfor %}"

_ROWS = "{% set r = range(10000) %}"
_EACH = "{% for i in r %}{% for j in r %}{% for k in r %}"
_DONE = "{% endfor %}{% endfor %}{% endfor %}"

ENDLESS = {
    "nested loops without a call": _ROWS + _EACH + _DONE,
    "nested loops without a call, in a macro": "{% macro m(r) %}"
    + _EACH
    + "x"
    + _DONE
    + "{% endmacro %}{{ m(range(10000)) }}",
    "a condition without a call": _ROWS
    + _BIG
    + "{% for i in r %}{% for j in big if y or y or y or y or y or y or y or y %}{% endfor %}{% endfor %}",
    "nested loops": _TWICE + "{% for k in range(10000) %}{% endfor %}" + _ENDS,
    "a loop whose condition never holds": "{% for i in range(10000) %}{% for j in range(10000) if j > 99999 %}" + _ENDS,
    "a loop whose condition is false": "{% for i in range(10000) %}{% for j in range(10000) if false %}" + _ENDS,
    "a loop over a huge range": "{% for i in range(10**9) %}{% endfor %}",
    "a list of a huge range": "{{ range(10**18)|list }}",
    "much fixed text": _TWICE + "x" * 100_000 + _ENDS,
    "much fixed text in a macro": "{% macro m() %}" + _TWICE + "x" * 100_000 + _ENDS + "{% endmacro %}{{ m() }}",
    "many pieces in a macro": "{% macro m() %}" + _TWICE + "{% set q=1 %}x" * 5000 + _ENDS + "{% endmacro %}{{ m() }}",
    "copies in a macro": _BIG + "{% macro m() %}" + _TWICE + "{{ big }}" + _ENDS + "{% endmacro %}{{ m() }}",
    "a caller that is called often": "{% macro m() %}"
    + _TWICE
    + "{{ caller() }}"
    + _ENDS
    + "{% endmacro %}{% call m() %}"
    + "x" * 50_000
    + "{% endcall %}",
    "a filtered block": "{% filter upper %}" + _TWICE + "x" * 50_000 + _ENDS + "{% endfilter %}",
    "a set block": "{% set s %}" + _TWICE + "x" * 50_000 + _ENDS + "{% endset %}",
    "with": _TWICE + "{% with q=1 %}{% endwith %}" + _ENDS,
    "or": _TWICE + "{{ y or d or '' }}" + _ENDS,
    "branches": _TWICE + "{% if x and y and d %}{% endif %}" + _ENDS,
    "calls": _TWICE + "{% set q = loop.cycle(1, 2) %}" + _ENDS,
    "look-ups": _TWICE + "{% set q = d['x'] is defined %}" + _ENDS,
    "includes that are not there": _TWICE + "{% include 'x' ~ i ~ '-' ~ j ignore missing %}" + _ENDS,
    "a recursion that branches": "{% macro m(n) %}"
    "{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(100) }}",
    "a recursion without end": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "including itself": "{% include 'H/body.html' %}",
    "including itself often": "{% for i in range(10) %}{% include 'H/body.html' ignore missing %}{% endfor %}",
    "extending itself": "{% extends 'H/body.html' %}",
    "importing itself": "{% import 'H/body.html' as h %}",
    "a block within itself": "{% block b %}{{ self.b() }}{% endblock %}",
    "a recursive loop": "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "comparing large lists": _NESTED + _TWICE + "{% if n.x == n.y %}{% endif %}" + _ENDS,
    "testing large lists": _NESTED + _TWICE + "{% set q = n.x is eq n.y %}" + _ENDS,
    "hashing large tuples": _NESTED + _TWICE + "{% set q = d.get(n.t) %}" + _ENDS,
    "looking up by large tuples": _NESTED + _TWICE + "{% set q = d[n.t] is defined %}" + _ENDS,
    "sorting large lists": _NESTED + _TWICE + "{% set q = [n.x, n.y]|sort %}" + _ENDS,
    "chains of maps": "{{ range(10000)" + "|map('string')|map('list')|map('join')" * 50 + "|list|length }}",
    "chains of selects": "{% for a in range(10000) %}{{ range(10000)" + "|select" * 100 + "|list|length }}{% endfor %}",
    "lists that are written out": _TWICE + "{{ range(10000)|list }}" + _ENDS,
}

HUGE = {
    "fixed text, gathered by a macro": "{% macro m() %}{% for i in range(10000) %}"
    + "x" * 150_000
    + "{% endfor %}{% endmacro %}{{ m()|length }}",
    "fixed text, gathered by a set": "{% set s %}{% for i in range(10000) %}"
    + "x" * 150_000
    + "{% endfor %}{% endset %}",
    "fixed text, gathered by a filter": "{% filter length %}{% for i in range(10000) %}"
    + "x" * 150_000
    + "{% endfor %}{% endfilter %}",
    "fixed text, gathered by a block": "{% block b %}{% if not x %}{% for i in range(10000) %}"
    + "x" * 150_000
    + "{% endfor %}{% endif %}{% endblock %}{% set x = 0 %}{{ self.b()|length }}",
    "fixed text at the top": "{% for i in range(10000) %}" + "x" * 150_000 + "{% endfor %}",
    "text times a number": "{{ 'a'*10**12 }}",
    "a list times a number": "{{ [1]*10**9 }}",
    "a power": "{{ 9**(9**9) }}",
    "a power of two": "{{ 2**1000000000 }}",
    "squares": "{% set n = namespace(x=3) %}{% for i in range(100) %}{% set n.x = n.x*n.x %}{% endfor %}",
    "text added to itself": "{% set n = namespace(x='a') %}"
    "{% for i in range(100) %}{% set n.x = n.x+n.x %}{% endfor %}",
    "text joined to itself": "{% set n = namespace(x='a') %}"
    "{% for i in range(100) %}{% set n.x = n.x~n.x %}{% endfor %}",
    "text shown twice": "{% set n = namespace(x='a') %}{% for i in range(100) %}"
    "{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}{% endfor %}",
    "lists in lists": "{% set n = namespace(x=[1]) %}"
    "{% for i in range(100) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
    "tuples in tuples": "{% set n = namespace(x=(1,)) %}{% for i in range(100) %}{% set n.x = (n.x, n.x) %}{% endfor %}"
    "{{ {n.x: 1} }}",
    "dicts in dicts": "{% set n = namespace(x=1) %}"
    "{% for i in range(100) %}{% set n.x = dict(a=n.x, b=n.x) %}{% endfor %}"
    "{{ n.x }}",
    "lists added": "{% set n = namespace(x=[1]) %}{% for i in range(100) %}{% set n.x = n.x+n.x %}{% endfor %}",
    "surplus arguments": "{% macro m(n) %}{% if n %}{{ m(n-1, varargs, varargs) }}{% else %}{{ varargs }}{% endif %}"
    "{% endmacro %}{{ m(60, 1) }}",
    "surplus keywords": "{% macro m(n) %}{% if n %}{{ m(n-1, a=kwargs, b=kwargs) }}{% else %}{{ kwargs }}{% endif %}"
    "{% endmacro %}{{ m(60, a=1) }}",
    "surplus arguments as text": "{% macro m(n) %}{% if n %}{{ m(n-1, varargs, varargs) }}{% else %}"
    "{{ varargs|string|length }}{% endif %}{% endmacro %}{{ m(60, 1) }}",
    "surplus keywords as text": "{% macro m(n) %}{% if n %}{{ m(n-1, a=kwargs, b=kwargs) }}{% else %}"
    "{{ kwargs|string|length }}{% endif %}{% endmacro %}{{ m(60, a=1) }}",
    "copies that are kept": _BIG + "{% set n = namespace(l=[]) %}{% for i in range(10000) %}"
    "{% set n.l = n.l + [big.upper()] %}{% endfor %}",
    "slices that are kept": _BIG + "".join(f"{{% set a{i} = big[1:] %}}" for i in range(3000)),
    "parts that are kept": "{% set big = 'ab '*30000 %}"
    + "".join(f"{{% set a{i} = big.split() %}}" for i in range(3000)),
    "ljust": "{{ 'a'.ljust(10**12) }}",
    "center": "{{ 'a'|center(10**10) }}",
    "zfill": "{{ 'a'.zfill(10**10) }}",
    "format with a width": "{{ '{:1000000000}'.format('a') }}",
    "format with a width from a parameter": "{{ '{:{}}'.format('a', 1000000000) }}",
    "format with many fields": _BIG + "{{ ('{0}'*30000).format(big) }}",
    "format of safe text": _BIG + "{{ ('{0}'*30000)|safe|attr('format') }}{{ (('{0}'*30000)|safe).format(big) }}",
    "percent with a width": "{{ '%1000000000d' % 1 }}",
    "percent with a width from a parameter": "{{ '%*d' % (1000000000, 1) }}",
    "percent with a precision": "{{ '%.1000000000f' % 1 }}",
    "percent with many fields": "{% set b = 'a'*40000 %}{{ ('%(a)s'*10000) % {'a': b} }}",
    "the filter format with a width": "{{ '%1000000000d'|format(1) }}",
    "the filter format with many fields": "{% set b = 'a'*40000 %}{{ ('%(a)s'*10000)|format(a=b) }}",
    "replace": "{{ ('a'*90000).replace('a', 'b'*90000) }}",
    "the filter replace": "{{ ('a'*90000)|replace('a', 'b'*90000) }}",
    "the filter replace of nothing": "{{ ('a'*90000)|replace('', 'b'*90000) }}",
    "join": "{{ ('b'*90000).join('a'*90000) }}",
    "the filter join": "{{ ('a'*90000)|join('b'*90000) }}",
    "indent": "{{ ('a\\n'*40000)|indent(1000) }}",
    "indent by text": "{{ ('a\\n'*40000)|indent('x'*900) }}",
    "batch": "{{ [1]|batch(10**12, 'x')|list }}",
    "batch by name": "{{ [1]|batch(linecount=10**12, fill_with='x')|list }}",
    "slice": "{{ [1]|slice(10**12)|list }}",
    "tojson": "{{ [1]|tojson(indent=10**10) }}",
    "round": "{{ 1.5|round(10**9, 'ceil') }}",
    "sum of lists": "{{ ([[1]*10]*500)|sum(start=[]) }}",
    "int": "{{ ('1'*90000)|int(base=36) }}",
    "defaults": _BIG + "{{ (['']*10000)|map('default', big, true)|list|length }}",
    "wordwrap": "{{ ('a'*90000)|wordwrap(1) }}",
    "urlize": "{{ ('http://a.b '*8000)|urlize }}",
    "urlize with a long attribute": "{{ ('http://a.b '*800)|urlize(rel='x'*90000) }}",
    "urlencode": "{{ ('😀'*90000)|urlencode }}",
    "a file that is too large": "x" * 300_000,
    "deep parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "many nots": "{{ " + "not " * 5000 + "1 }}",
    "many filters": "{{ 1" + "|abs" * 5000 + " }}",
    "a long sum": "{{ 1" + "+1" * 30_000 + " }}",
    "many branches": "{% if 0 %}" + "{% elif x %}" * 8000 + "{% endif %}",
    "deep loops": "{% for a in [1] %}" * 40 + "{% endfor %}" * 40,
    "deep branches": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "many tags": "{% if a.b == 2 %}{{ x }}{% endif %}" * 5000,
    "many comparisons": "{{ " + "1 == " * 5000 + "1 }}",
    "open brackets": "{" * 150_000,
    "open comments": "{# " * 50_000,
    "open raw": "{% raw %}" * 15_000,
    "an open string": "{{ '" + "\\\\" * 50_000 + " }}",
    "an open format": "{{ '%('*40000 % 1 }}",
    "the output of an import": "{% import '_big.html' as m %}{{ m }}",
    "the output of an import, filtered": "{% import '_big.html' as m %}{{ m|upper }}",
    "the output of an import, formatted": "{% import '_big.html' as m %}{{ '%s' % m }}",
    "the output of an import, replacing": "{% import '_big.html' as m %}{{ 'a'|replace('a', m) }}",
    "the output of an include": "{% for i in range(100) %}{% include '_big.html' without context %}{% endfor %}",
}

COSTLY = {
    "namespaces in namespaces": "{% set p = namespace(v=1) %}{% for i in range(100) %}"
    "{% set p.v = namespace(a=p.v, b=p.v) %}{% endfor %}{{ [p.v]|string }}{{ '%s' % [p.v] }}",
    "many macros": "".join(f"{{% macro b{i}(x=1, y=2) %}}{{% endmacro %}}" for i in range(4000)),
    "many blocks": "".join(f"{{% block b{i} %}}{{% endblock %}}" for i in range(4000)),
    "words with many hyphens": "{{ (('a-'*900 ~ ' ')*40)|wordwrap(1) }}",
    "closing brackets": "{{ (')'*9900 ~ 'x')|urlize }}",
    "brackets around a word": "{{ ('('*4900 ~ 'a' ~ ')'*4900)|urlize }}",
    "addresses that are none": "{{ ('a@'*4900)|urlize }}",
    "comments": "{{ ('<!---->'*14000)|striptags }}",
    "open tags": "{{ ('<'*90000)|striptags|length }}",
    "searching": _BIG + "{{ big.find(big[:40000] ~ 'b') }}{{ (big[:40000] ~ 'b') in big }}{{ big.count('aa') }}",
    "many names": "{% include (['x']*10000) ignore missing %}",
    "keys of many attributes": "{{ ([[1]]*1000)|sort(attribute='0,'*40 ~ '0')|length }}",
}
"""These may well be rendered, only not for long."""

FORBIDDEN = {
    "class of a value": "{{ ''.__class__.__mro__ }}",
    "class by item": "{{ ''['__class__'] }}",
    "class by attr": "{{ ''|attr('__class__') }}",
    "class by map": "{{ ['']|map('attr', '__class__')|list }}",
    "class by map of an attribute": "{{ ['']|map(attribute='__class__')|list }}",
    "class by format": "{{ '{0.__class__}'.format(1) }}",
    "class by format, index": "{{ '{0[__class__]}'.format('') }}",
    "format_map": "{{ '{a.__class__}'.format_map({'a': 1}) }}",
    "class of a missing value": "{{ nothing.__class__ }}",
    "globals of a function": "{{ range.__globals__ }}",
    "globals of a class": "{{ cycler.__init__.__globals__ }}",
    "globals of a joiner": "{{ joiner().__init__ }}",
    "function of a macro": "{% macro m() %}{% endmacro %}{{ m._func }}",
    "environment of a macro": "{% macro m() %}{% endmacro %}{{ m._environment }}",
    "inside of a loop": "{% for i in [1] %}{{ loop._iterable }}{% endfor %}",
    "inside of a namespace": "{% set n = namespace() %}{{ n.__init__ }}",
    "inside of self": "{{ self.__init__ }}",
    "context of self": "{{ self._TemplateReference__context }}",
    "context of a block": "{% block b %}{% endblock %}{{ self.b._context }}",
    "stream of an import": "{% import '_big.html' as m %}{{ m._body_stream }}",
    "mro of a class": "{{ dict.mro() }}",
    "frame of a generator": "{{ ([1]|map('string')).gi_frame }}",
    "append": "{{ [].append(1) }}",
    "update": "{{ d.update(x=1) }}",
    "setdefault": "{{ d.setdefault('x', 1) }}",
    "encode": "{{ 'a'.encode() }}",
    "translate": "{{ 'a'.translate({97: 'b'*90000}) }}",
    "expandtabs": "{{ 'a\\t'.expandtabs(10**9) }}",
    "rfind": "{{ 'a'.rfind('a') }}",
    "to_bytes": "{{ (1).to_bytes(10**10, 'big') }}",
    "a method as text": "{{ 'a'.upper }}",
    "a method in a list": "{{ ['a'.upper] }}",
    "a method joined": "{{ 'a' ~ 'a'.upper }}",
    "a function as text": "{{ range }}",
    "calling text": "{{ 'a'() }}",
    "calling what is missing": "{{ nothing() }}",
    "random": "{{ [1, 2]|random }}",
    "lipsum": "{{ lipsum(n=10**9) }}",
    "pprint": "{{ d|pprint }}",
    "environment": "{{ environment }}",
    "context": "{{ context.parent }}",
    "assigning to data": "{% set d.x = 1 %}",
    "a file outside": "{% include '../../../etc/passwd' %}",
    "a file by absolute path": "{% include '/etc/passwd' %}",
    "a hidden file": "{% include '.secret' %}",
}


def outcomes(folder: Path) -> Iterator[dict[str, Any]]:
    """Render each; what came of it, and what it cost."""
    (folder / "H").mkdir()
    (folder / "H/subject.txt").write_text("s")
    (folder / "_big.html").write_text("{% for i in range(9) %}" + "x" * 10_000 + "{% endfor %}")
    (folder / ".secret").write_text("secret")
    for name, source in (ENDLESS | HUGE | COSTLY | FORBIDDEN).items():
        (folder / "H/body.html").write_text(source)
        outcome: dict[str, Any] = {"name": name}
        started = time.process_time()
        thread = threading.Thread(target=_render, args=(folder, outcome))
        thread.start()
        thread.join()
        outcome["cpu_seconds"] = time.process_time() - started
        outcome["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        yield outcome


def _render(folder: Path, outcome: dict[str, Any]) -> None:
    try:
        content = Templates([folder], limits=LIMITS).render("H", PARAMETERS)
    except TemplateError as error:
        outcome |= {"code": error.code, "class": str(error.error_class), "text": str(error)}
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the finding
        outcome |= {"code": None, "class": type(error).__name__, "text": ""}
    else:
        outcome |= {"code": "rendered", "class": "", "text": (content.html or "")[:500]}


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for each in outcomes(Path(sys.argv[1])):
        print(json.dumps(each), flush=True)
