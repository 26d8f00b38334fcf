"""The commands `list show create update delete` of a kind of object, from one row.

    plans = Commands(
        PLAN,
        "Plans: what accounts have in common.",
        columns=(Column("NAME", "name"), Column("QUOTA", quota_of, right=True), …),
        details=("name", "id", ("quota", quota_of), "created_at"),
        fields={"policy": text("--policy", "The policy that judges requests."), …},
        examples=("limits.bandwidth_out=1Mbit/s",),
    ).group()

A kind (`lookup.py`) says how the API lists, names and finds its objects; the row what people see and type: the columns
of `list`, the lines of `show`, and the options of `create` and `update` by the API's field, as `options.py` has them.
The words that differ are values of the row too, and so is what is printed once (`afterwards`: a secret). Sentences and
questions have the object's fields in braces. A command that no row can say is left out of `only` and written with
`command` for the same group, as are the others of the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import typer

from api.cli.client import quoted
from api.cli.commands import YES, Given, Session, command, confirm, either, new_group
from api.cli.documents import body_of, require_changes, whole_body
from api.cli.lookup import Kind, find, find_id, sent
from api.cli.options import Option, argument
from api.cli.output import Column, Detail, Pairs, Row, pairs_of

ALL = ("list", "show", "create", "update", "delete")


def key_argument(kind: Kind, about: str = "Its name or id.") -> Option:
    """The argument that names an object of the kind."""
    return argument(kind.title.rpartition(" ")[2].upper(), about, complete=kind)


@dataclass(frozen=True, slots=True)
class Commands:
    """A kind of object as a group of commands.

    `texts` are the help of commands whose help is not the usual one; `key` is that of the argument that names one, and
    `name` that of the argument of `create`. `delete` is the name of the command that deletes. `rows` makes rows for
    people of what the API lists, `afterwards` prints what only a person sees of what was created or changed.
    """

    kind: Kind
    about: str
    columns: Sequence[Column]
    details: Sequence[Detail] | Callable[[Row], Pairs] = ()
    fields: Mapping[str, Option] = field(default_factory=dict)
    new_name: Option | None = None
    examples: Sequence[str] = ()
    only: Sequence[str] = ALL
    texts: Mapping[str, str] = field(default_factory=dict)
    key: str = "Its name or id."
    name: str = "What others name it by; or in a file."
    question: str = "Delete the {title} {name}?"
    delete: str = "delete"
    deleted: str = "{name} is deleted."
    rows: Callable[[Session, list[dict[str, Any]]], Sequence[Row]] = lambda _session, found: found
    afterwards: Callable[[Session, Any], None] = lambda _session, _made: None

    def group(self) -> typer.Typer:
        """The group, with the commands of `only`."""
        made = new_group(self.kind.group, self.about)
        commands = (self._list, self._show, self._create, self._update, self._delete)
        for name, add in zip(ALL, commands, strict=True):
            if name in self.only:
                add(made)
        return made

    @property
    def _key(self) -> Mapping[str, Option]:
        return {"key": key_argument(self.kind, self.key)}

    def _about(self, name: str, usual: str) -> str:
        return self.texts.get(name, usual.format(title=self.kind.title, many=self.kind.group))

    def _list(self, group: typer.Typer) -> None:
        def list_objects(session: Session) -> None:
            data = self.kind.listed(session.api)
            found = data[self.kind.member]
            nothing = f"There is no {self.kind.title}."
            session.out.data(data, lambda: session.out.table(self.columns, self.rows(session, found), nothing))

        command(group, "list", about=self._about("list", "List {many}."))(list_objects)

    def _show(self, group: typer.Typer) -> None:
        def show_object(session: Session, key: str) -> None:
            data = self._sent(session, "GET", key)
            session.out.data(data, lambda: session.out.details(pairs_of(data[self.kind.title], self.details)))

        command(group, "show", self._key, about=self._about("show", "Show a {title}."))(show_object)

    def _create(self, group: typer.Typer) -> None:
        def create_object(session: Session, given_name: str | None, fields: Given) -> None:
            fields["name"] = either("--name", given_name, fields.get("name"))
            data = session.api.post(self.kind.path, body_of(fields))
            self._print(session, data, "{name} is created ({id}).")

        table = {"given_name": argument("NAME", self.name, default=None), **self.fields, **whole_body(*self.examples)}
        command(group, "create", table, about=self._about("create", "Create a {title}."))(create_object)

    def _update(self, group: typer.Typer) -> None:
        def update_object(session: Session, key: str, fields: Given) -> None:
            body = body_of(fields)
            require_changes(body, self.kind.group)
            self._print(session, self._sent(session, "PATCH", key, body), "{name} is changed.")

        more = {} if self.new_name is None else {"name": self.new_name}
        table = {**self._key, **self.fields, **more, **whole_body(*self.examples)}
        usual = "Change a {title}: only what is given changes."
        command(group, "update", table, about=self._about("update", usual))(update_object)

    def _delete(self, group: typer.Typer) -> None:
        def delete_object(session: Session, key: str, yes: bool) -> None:
            found = find(session.api, self.kind, key)
            words = {**found, "title": self.kind.title}
            confirm(self.question.format(**words), yes)
            data = session.api.delete(f"{self.kind.path}/{quoted(found['id'])}")
            session.out.done(data, self.deleted.format(**words))

        usual = "Delete a {title} that nothing names."
        command(group, self.delete, {**self._key, "yes": YES}, about=self._about("delete", usual))(delete_object)

    def _sent(self, session: Session, method: str, key: str, body: Any = None) -> Any:
        """The response to a request about one object."""
        name_or_id = key if self.kind.by_name else find_id(session.api, self.kind, key)
        path = f"{self.kind.path}/{quoted(name_or_id)}"
        return sent(session.api, self.kind, key, lambda: session.api.call(method, path, body=body))

    def _print(self, session: Session, data: Any, text: str) -> None:
        """Print warnings, and for people what was done."""
        warn(session, data, in_json=True)
        made = data[self.kind.title]

        def view() -> None:
            session.out.message(text.format(**made))
            self.afterwards(session, made)

        session.out.data(data, view)


def warn(session: Session, data: Mapping[str, Any], in_json: bool = False) -> None:
    """Print the warnings of a response. Programs have them in the data, and get notes only where `in_json`."""
    for each in data.get("warnings") or () if in_json or session.out.format != "json" else ():
        session.out.note(f"warning: {each['field']}: {each['warning']}")
