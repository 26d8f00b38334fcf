"""A kind of object that only a test has: its declaration, and its row before anything is made of the table.

Run as a program, it uses such objects as a client does.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any

from pydantic import BaseModel

from api.engine.kind import ObjectKind, Resource, Texts
from api.engine.responses import OF_INSTALLATION, ResponseModel, all_of, one_of, shows
from api.engine.transfer import Transfer
from api.objects import kinds
from config.files.secret_box import SecretBox
from config.model.declaration import Given, Instant, gives, update
from config.model.fields import Body, Name, example
from config.model.object_fields import Description


class Note(BaseModel):
    """A document of the collection `notes`."""

    id: str
    name: Annotated[str, Given(Name)]
    text: Annotated[str, Given(Description)] = ""
    created_at: Instant
    updated_at: Instant


@gives(Note)
class NoteUpdate(Body):
    """A change of a note."""

    model_config = example({"text": "once a year"})


class NoteCreate(NoteUpdate):
    """A new note."""

    model_config = example({"name": "renewal", "text": "in March"})

    name: Name


class NoteEntry(NoteUpdate):
    """A note in a document."""

    name: Name


@shows(Note)
class NoteView(ResponseModel):
    """A note."""


@shows(Note, but=OF_INSTALLATION)
class ExportedNote(ResponseModel):
    """A note in an export."""


def _new(body: Any, now: float, seal: SecretBox) -> Note:
    blank = Note(id="note_" + secrets.token_hex(8), name=body.name, created_at=now, updated_at=now)
    return _change(blank, body, now, seal)


def _change(before: Note, body: Any, now: float, _seal: SecretBox) -> Note:
    return before.model_copy(update={**update(before, body), "updated_at": now})


NOTES = ObjectKind(
    name="note",
    collection="notes",
    most=3,
    model=Note,
    create=NoteCreate,
    update=NoteUpdate,
    read_only=frozenset(OF_INSTALLATION),
    new=_new,
    change=_change,
    transfer=Transfer(model=NoteEntry, exported=ExportedNote, blank={"text": ""}),
    resource=Resource(
        texts=Texts("Returns all.", "Stores one.", "Returns one.", "Changes one.", "Deletes it."),
        one=one_of("note", NoteView),
        page=all_of("Notes", "notes", NoteView),
        read="settings.read",
        write="settings.write",
    ),
)


def use() -> None:
    """Everything that a kind has, from its declaration alone."""
    from tests.kit.api_stage import Api

    api = Api()
    token = api.token()
    made = api.post("/notes", {"name": "renewal", "text": "in March"}, token)
    note = made.json["data"]["note"]
    assert made.status_code == 201, made.json
    assert made.headers["location"] == f"/api/v1/notes/{note['id']}"
    assert api.get("/notes", token).json["data"] == {"notes": [note], "total": 1}
    assert api.post("/notes", {"name": "renewal"}, token).json["error"]["details"]["field"] == "name"
    assert api.post("/notes", {"name": "other", "id": "x"}, token).status_code == 400
    path, etag = f"/notes/{note['id']}", made.headers["etag"]
    assert api.patch(path, {"text": "in May"}, {**token, "If-Match": etag}).json["data"]["note"]["text"] == "in May"
    assert api.patch(path, {"text": "never"}, {**token, "If-Match": etag}).status_code == 412
    document = api.get("/config/export", token).json
    document = document.get("data", document)
    assert document["notes"] == [{"name": "renewal", "text": "in May"}]
    wanted = {"kind": "proxyfleet.config", "version": 1, "minimal": True, "notes": [{"name": "renewal"}]}
    (change,) = api.post("/config/import", wanted, token).json["data"]["changes"]
    assert (change["kind"], change["action"], change["fields"]) == (
        "note",
        "update",
        [{"field": "text", "before": "in May", "after": ""}],
    )
    entry = api.get("/audit?limit=1", token).json["data"]["audit"][0]
    assert (entry["action"], entry["resource"]) == (
        "note.updated",
        {"type": "note", "id": note["id"], "name": "renewal"},
    )
    revisions = api.get("/revisions?kind=note", token).json["data"]["revisions"]
    assert [each["summary"]["update"] for each in revisions] == [1, 1, 0]
    restored = api.post(f"/revisions/{revisions[-1]['revision']}/restore", {}, token)
    assert restored.status_code == 200, restored.json
    assert api.get(path, token).json["data"]["note"]["text"] == "in March"
    assert api.request("DELETE", path, token).json["data"] == {"id": note["id"], "deleted": True}
    api.close()


if __name__ == "__main__":
    table = vars(kinds)  # as if it had the row
    table["KINDS"][NOTES.collection] = table["OBJECT_KINDS"][NOTES.collection] = NOTES
    table["REVISED"] += (NOTES.name,)
    use()
