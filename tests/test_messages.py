"""Errors, warnings and help texts keep one form and plain English, in the source and in the documentation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from flowinpaint.cli import VERBS

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "flowinpaint"
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(PACKAGE.rglob("*.md")), *sorted(ROOT.glob("*.md"))]

ERRORS = ("InputError", "FileFormatError", "MissingFileError")
WARNINGS = ("warn", "warn_user")
HELP = 120
"""Most characters of a help text, without its lists of names."""

FORM = re.compile(
    r"\bmust\b|\bneeds?\b|\{needs\(|\bcannot\b|\bthere is no\b|\bdoes not exist\b|: not an? |: not JSON|^not an? "
    r"|\btruncated\b|\bdamaged\b|\btoo long\b"
)
"""The rule in "mask must be bool, got uint8", or the fault of a file."""
FREE = {
    "{rule}, got {_kind(returned)}",
    "pictures: one of the {kind} {fault}",
    "flow: {method} produced a non-finite field from these {len(points)} known vectors",
    "{rule}, got {returned.dtype} {returned.shape}",
    "{path}: {rule}, got {flow[bad][0]}; {remedy}",
    "{path}: the configuration does not describe a model: {error}",
    "{path}: the metadata do not describe a run of this version: {error}",
}
"""Errors whose rule is in a variable, and errors about what another error says."""
BANNED = re.compile(
    r"\b(is taken|are taken|was given|were given|so many|for want of|beside|reckon\w*|foresee\w*|foreseen|foresaw"
    r"|foresight|what there is|what came|the like of|or the like|whence|thereof|wherein|lest|be it)\b",
    re.IGNORECASE,
)
UNCOMMON = re.compile(r"\be\.g\.|\bi\.e\.|given (vector|flow|field)|by default|—|\bfolder to write to\b")
"""Not in help texts: they say "such as", "known vectors", "default X" and "Output folder"."""


class Text(NamedTuple):
    """A message in the source; `text` has placeholders like {name}."""

    place: str
    text: str

    @property
    def words(self) -> str:
        return re.sub(r"\{[^{}]*\}|--[\w-]+", "", self.text)


DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
Source = dict[str, list[ast.AST]]
"""The calls, strings, functions, classes and modules by file."""


def nodes(code: str) -> list[ast.AST]:
    return [node for node in ast.walk(ast.parse(code)) if isinstance(node, (ast.Call, ast.Constant, *DOCUMENTED))]


@cache
def package() -> Source:
    paths = sorted(PACKAGE.rglob("*.py"))
    return {path.relative_to(PACKAGE).as_posix(): nodes(path.read_text(encoding="utf-8")) for path in paths}


def texts(node: ast.expr) -> list[str]:
    """The texts that an expression may have, with placeholders for its values."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=parts):
            constant = (part.value if isinstance(part, ast.Constant) else None for part in parts)
            return [
                "".join(
                    "{" + ast.unparse(p)[1:-1] + "}" if c is None else str(c)
                    for p, c in zip(parts, constant, strict=True)
                )
            ]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [a + b for a in texts(left) for b in texts(right)]
        case ast.IfExp(body=body, orelse=other):
            return texts(body) + texts(other)
        case ast.BoolOp(op=ast.And(), values=[_, value]):
            return texts(value)
    return ["{" + ast.unparse(node) + "}"]


def calls(source: Source) -> Iterator[tuple[str, str, ast.Call]]:
    for path, found in source.items():
        for node in found:
            match node:
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                    yield f"{path}:{node.lineno}", name, node


def errors(source: Source) -> list[Text]:
    found = [(at, n.args[0]) for at, name, n in calls(source) if name in ERRORS and n.args]
    found += [(at, n.args[1]) for at, name, n in calls(source) if name == "check_file"]
    return [Text(at, text) for at, node in found for text in texts(node)]


def warnings(source: Source) -> list[Text]:
    return [Text(at, text) for at, name, n in calls(source) if name in WARNINGS for text in texts(n.args[0])]


def lines(source: Source) -> list[Text]:
    """What commands print on stderr: `say(label, colour, text)`, and notes of a listener."""
    said = [(at, n.args[-1]) for at, name, n in calls(source) if name in ("say", "note", "note_once") and n.args]
    return [Text(at, text) for at, node in said for text in texts(node)]


def help_texts(source: Source) -> list[Text]:
    given = [(at, k.value) for at, _, n in calls(source) for k in n.keywords if k.arg == "help"]
    given += [(at, n.args[0]) for at, name, n in calls(source) if name == "list_option"]
    return [Text(at, text) for at, node in given for text in texts(node)]


def faults_of_error(error: Text) -> list[str]:
    # Without words of its own it passes on another message.
    formed = FORM.search(error.text) or error.text in FREE or not re.search("[a-z]", error.words)
    return [
        *(["ends with a full stop"] if error.text.endswith((".", "!")) else []),
        *([] if formed else ['has no "must", "needs" or "cannot"']),
        *(["starts with a capital"] if re.match(r"[A-Z][a-z]+ [a-z]", error.text) else []),
    ]


def faults_of_warning(warning: Text) -> list[str]:
    ends = warning.text.endswith((".", "…", "}"))
    return [] if ends else ["does not end with a full stop"]


def faults_of_help(text: Text) -> list[str]:
    return [
        *([] if text.text.endswith((".", "}")) else ["does not end with a full stop"]),
        *([] if re.match(r"[A-Z{]", text.text) else ["does not start with a capital"]),
        *([f"has {len(text.words)} characters"] if len(text.words) > HELP else []),
        *(f"has {found.group()!r}" for found in UNCOMMON.finditer(text.words)),
    ]


def banned(text: str) -> list[str]:
    return [f"has {found.group()!r}" for found in BANNED.finditer(text)]


def strings(source: Source) -> list[Text]:
    """All messages and docstrings of public objects."""
    docstrings = [
        Text(path, (ast.get_docstring(node) or "").partition("\n")[0])
        for path, found in source.items()
        for node in found
        if isinstance(node, DOCUMENTED) and not getattr(node, "name", "module").startswith("_")
    ]
    literals = [
        Text(f"{path}:{node.lineno}", node.value)
        for path, found in source.items()
        for node in found
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
    ]
    return docstrings + literals


def test_errors_name_the_rule() -> None:
    """As parts of other sentences, such as "Error: mask must be …", they have no final full stop."""
    found = errors(package())
    assert len(found) > 400
    assert {f"{e.place} {e.text}": f for e in found if (f := faults_of_error(e))} == {}


def test_no_exception_for_an_error_is_left_over() -> None:
    assert FREE - {error.text for error in errors(package())} == set()


def test_warnings_are_sentences() -> None:
    found = warnings(package()) + lines(package())
    assert len(found) > 50
    assert {f"{w.place} {w.text}": f for w in found if (f := faults_of_warning(w))} == {}


def test_help_texts_are_short_sentences() -> None:
    found = help_texts(package()) + [Text(f"VERBS[{verb}]", text) for verb, text in VERBS.items()]
    assert len(found) > 120
    assert {f"{t.place} {t.text}": f for t in found if (f := faults_of_help(t))} == {}


def test_no_mannered_turns() -> None:
    in_source = {f"{t.place} {t.text[:80]}": f for t in strings(package()) if (f := banned(t.text))}
    in_pages = {page.name: f for page in PAGES if (f := banned(page.read_text(encoding="utf-8")))}
    assert (in_source, in_pages) == ({}, {})


SPOILT = {
    'raise InputError("mask must be bool.")': "ends with a full stop",
    'raise InputError(f"{mask} is of another type")': 'has no "must", "needs" or "cannot"',
    'raise InputError("One of them must be set")': "starts with a capital",
    'check_file(path, bad and "strange content")': 'has no "must", "needs" or "cannot"',
    'warn_user("mask looks inverted")': "does not end with a full stop",
    'say("Note:", "yellow", "all frames are used")': "does not end with a full stop",
    'typer.Option(help="Number of frames")': "does not end with a full stop",
    'typer.Option(help="number of frames.")': "does not start with a capital",
    'list_option("Names, e.g. eed.")': "has 'e.g.'",
    f'typer.Option(help="{"Long " * 30}.")': "has 151 characters",
    'x = "5 vectors were given"': "has 'were given'",
    '"""What there is in a file."""': "has 'What there is'",
}


@pytest.mark.parametrize(("code", "fault"), SPOILT.items())
def test_a_spoilt_message_is_found(code: str, fault: str) -> None:
    source = {"spoilt.py": nodes(code)}
    found = [f for e in errors(source) for f in faults_of_error(e)]
    found += [f for w in warnings(source) + lines(source) for f in faults_of_warning(w)]
    found += [f for t in help_texts(source) for f in faults_of_help(t)]
    found += [f for t in strings(source) for f in banned(t.text)]
    assert fault in found
