"""The documentation as a site that needs neither a server nor the internet: build_docs.py FOLDER

Its pages are those of docs/ and the changelog, and a reference that is in no file: operations and events from the API's
description, commands from the command line. Its navigation is docs/index.md: each section with the pages that it links.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from wheels.man_page import commands, description, option_names, value_text

from api.app import OPERATIONS
from api.cli.application import application
from api.openapi.description import build

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
WORKER = "https://unpkg.com/iframe-worker/shim"
"""What the generator has pages load for their search."""
DEPTH = 3
"""Of a body's fields: `tls.cert_file` has two names."""
SETTINGS = """\
site_name = "Proxyfleet"
docs_dir = "pages"
site_dir = "site"
use_directory_urls = false
copyright = "Apache-2.0"

[project.theme]
language = "en"
font = false
features = ["content.code.copy", "navigation.footer", "navigation.top", "search.highlight", "toc.follow"]

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle = { icon = "lucide/sun", name = "Dark" }

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle = { icon = "lucide/moon", name = "Light" }

[project.plugins.search]

[project.plugins.offline]

[project.markdown_extensions.tables]

[project.markdown_extensions.attr_list]

[project.markdown_extensions.toc]
permalink = true
toc_depth = 3

[project.markdown_extensions.pymdownx.superfences]

[project.markdown_extensions.pymdownx.highlight]
"""


class BrokenSite(Exception):
    """The site can't be made; the text is what the generator said."""


def build_site(target: Path) -> None:
    """Put the site into the folder, in place of what it has. Raises `BrokenSite`."""
    with TemporaryDirectory() as folder:
        place = Path(folder)
        write_pages(place / "pages")
        (place / "zensical.toml").write_text(configuration(), encoding="utf-8")
        command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(place / "zensical.toml")]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True)
        if done.returncode or not (place / "site" / "index.html").is_file():
            raise BrokenSite(done.stdout + done.stderr)
        take_in_worker(place / "site")
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(place / "site", target)


def take_in_worker(site: Path) -> None:
    """Have its pages load what the generator's would from elsewhere, with a script of our own in its place."""
    own = Path(shutil.copy(ROOT / "scripts" / "frame_worker.js", site / "assets"))
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8").replace(WORKER, os.path.relpath(own, page.parent))
        page.write_text(text, encoding="utf-8")


def write_pages(folder: Path) -> None:
    """All pages as Markdown, with what they show."""
    shutil.copytree(DOCS, folder)
    for page in DOCS.rglob("*.md"):
        (folder / page.relative_to(DOCS)).write_text(with_links(page), encoding="utf-8")
    (folder / "changelog.md").write_text(with_links(ROOT / "CHANGELOG.md"), encoding="utf-8")
    (folder / "reference").mkdir()
    for name, made in REFERENCE.items():
        (folder / "reference" / name).write_text("\n".join(made()) + "\n", encoding="utf-8")


def with_links(page: Path) -> str:
    """The text of a page, whose links lead to pages of the site; what that doesn't have is named, and not linked."""

    def placed(link: re.Match[str]) -> str:
        words, target, anchor = link.groups(default="")
        path = Path(os.path.normpath(page.parent / target))
        if path == ROOT / "CHANGELOG.md":
            return f"[{words}]({os.path.relpath(DOCS / 'changelog.md', page.parent)})"
        if not path.is_relative_to(DOCS):
            return words
        return f"[{words}]({os.path.relpath(path, page.parent if page.is_relative_to(DOCS) else DOCS)}{anchor})"

    return re.sub(r"(?<!!)\[([^\]]*)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)", placed, page.read_text(encoding="utf-8"))


def configuration() -> str:
    """The generator's."""
    sections = ",\n".join(f'  {{ "{title}" = {json.dumps(pages)} }}' for title, pages in navigation())
    return f'[project]\nnav = [\n  "index.md",\n{sections}\n]\n{SETTINGS}'


def navigation() -> Iterator[tuple[str, list[str]]]:
    """The sections of docs/index.md with their pages, and the printed reference."""
    for section in (DOCS / "index.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        links = [target.replace("../CHANGELOG", "changelog") for target in re.findall(r"\]\(([^)#]+\.md)\)", text)]
        yield title, list(dict.fromkeys(links))
        if title == "Reference":
            yield "API and commands", [f"reference/{name}" for name in REFERENCE]


def operations() -> Iterator[str]:
    """The reference of the API: each operation with its permission, parameters, body and what it returns."""
    document = build(OPERATIONS)
    yield "# Operations\n\n[What all operations share](../api.md).\n"
    for tag in document["tags"]:
        yield f"\n## {tag['name']}\n"
        for path, methods in document["paths"].items():
            for method, each in methods.items():
                if each["tags"] == [tag["name"]]:
                    yield f"### {method.upper()} `{path}`\n\n**{each['summary']}.** {each['description']}\n"
                    yield f"*Access*: `{access(each)}`\n"
                    yield from _operation(each, document["components"]["schemas"])


def access(operation: dict[str, Any]) -> str:
    """The permission that an operation of the description needs, or the kind of credential."""
    schemes = {name for each in operation["security"] for name in each}
    if operation.get("x-permission"):
        return str(operation["x-permission"])
    if not schemes:
        return "none"
    if "account" in schemes:
        return "holder"
    return "any" if "apiKey" in schemes else "person" if "basic" in schemes else "bearer"


def _operation(operation: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    query = [each for each in operation["parameters"] if each["in"] == "query"]
    rows = [f"| `{each['name']}` | {_kind(each['schema'], {})} | {_cell(each['description'])} |" for each in query]
    yield from _table("parameter | values | ", rows)
    if "requestBody" in operation:
        fields = _fields(operation["requestBody"]["content"]["application/json"]["schema"], schemas)
        yield from _table("body | values | default", [f"| `{name}` | {kind} | {most} |" for name, kind, most in fields])
    (status, *_) = operation["responses"]
    content = operation["responses"][status].get("content", {}).get("application/json", {}).get("schema", {})
    data = _resolved(content.get("properties", {}).get("data", {}), schemas)
    if data.get("properties"):
        yield "Returns " + ", ".join(f"`{name}`" for name in data["properties"]) + ".\n"


def _table(head: str, rows: list[str]) -> Iterator[str]:
    if rows:
        yield "\n".join([f"| {head} |", "|---|---|---|", *rows]) + "\n"


def _fields(schema: dict[str, Any], schemas: dict[str, Any], prefix: str = "", depth: int = DEPTH) -> Iterator[Any]:
    """Name, values and default of each field, those of nested objects with a dot."""
    schema = _resolved(schema, schemas)
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        inner = _resolved(field, schemas)
        nested = inner.get("items", inner) if inner.get("type") == "array" else inner
        nested = _resolved(nested, schemas)
        default = "required" if name in required else f"`{field['default']!r}`" if "default" in field else ""
        yield f"{prefix}{name}", _kind(inner, schemas), _cell(default)
        if depth > 1 and nested.get("properties"):
            mark = "[]." if inner.get("type") == "array" else "."
            yield from _fields(nested, schemas, f"{prefix}{name}{mark}", depth - 1)


def _resolved(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    choices = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    return _resolved(choices[0], schemas) if len(choices) == 1 else schema


def _kind(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    schema = _resolved(schema, schemas)
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{each}`" for each in schema.get("enum", [schema.get("const")]))
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(each, schemas) for each in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}), schemas)}"
    kind = schema.get("format") or schema.get("type", "any")
    low, high = (schema.get(name, "") for name in ("minimum", "maximum"))
    return f"{kind}, {low} to {high}" if low != "" or high != "" else str(kind)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def events() -> Iterator[str]:
    """Each event with its data."""
    document = build(OPERATIONS)
    yield "# Events\n\nWhat [webhooks](../api.md#events-and-webhooks) are sent, in `data`.\n"
    for name, each in document["webhooks"].items():
        content = each["post"]["requestBody"]["content"]["application/json"]["schema"]
        data = _resolved(content["properties"]["data"], document["components"]["schemas"])
        fields = ", ".join(f"`{field}`" for field in data["properties"])
        yield f"## `{name}`\n\n{data.get('description', '')}\n\nData: {fields}.\n"


def command_line() -> Iterator[str]:
    """Each command with its options, as `--help` and the manual page have them."""
    yield "# Commands\n\n[Output, exit statuses, addresses](../command-line.md).\n"
    for each in commands(application()):
        text = " ".join((each.function.__doc__ or "").split())
        offline = " *Offline.*" if each.offline else ""
        yield f"## {each.name}\n\n{text}{offline}\n"
        options = [
            (option_names(parameter, info), parameter, kind, info) for parameter, kind, info in each.parameters()
        ]
        rows = [
            f"| `{name}` | {_cell(value_text(kind, info, name))} | {_cell(description(parameter, info))} |"
            for name, parameter, kind, info in options
        ]
        yield from _table("option | value | ", rows)


REFERENCE = {"operations.md": operations, "events.md": events, "commands.md": command_line}
"""Printed pages, in the order of the navigation."""


if __name__ == "__main__":
    try:
        build_site(Path(sys.argv[1]))
    except BrokenSite as error:
        sys.exit(f"{error}\nThe documentation could not be built; see above")
    print(Path(sys.argv[1]) / "index.html")
