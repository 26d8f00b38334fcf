"""The key of access tokens: rotation signs no user out, and an old key is worth nothing when its tokens have ended."""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import jwt
import pytest

from api.audit.trail import Selection
from api.engine.commit import Engine
from api.operator.offline import rotate_signing_key
from api.security.signing import COLLECTION, SigningKeys
from api.security.tokens import BadToken, Lifetimes, Tokens
from api.store import StoreError, StoreWriteError
from config.files.paths import open_data_dir
from config.files.secret_box import secret_box_of
from tests.kit.api_stage import PASSWORD, Api
from tests.kit.folders import FOLDERS


def header(token: dict[str, str]) -> dict[str, Any]:
    return jwt.get_unverified_header(token["Authorization"].removeprefix("Bearer "))


def test_tokens_of_the_older_key_stay_good_and_new_ones_name_the_new_key(api: Api) -> None:
    older = api.token()
    response = api.post("/auth/signing-key/rotate", None, older).json["data"]
    newer = api.token()
    assert header(older)["kid"] != header(newer)["kid"] == response["key_id"]
    api.start()  # and so after a restart
    for token in (older, newer):
        assert api.get("/auth/test", token).status_code == 200
    assert api.get("/audit", newer).json["data"]["audit"][0]["action"] == "signing_key.rotated"
    (row,), _ = api.engine.trail.find(Selection({"action": "signing_key.rotated"}), 10, 0)
    (commit,) = [each for each in api.engine.changes(0) if any(seq == row.seq for seq, _, _ in each.audit)]
    assert {each.collection for each in commit.documents} == {COLLECTION}, "the entry is of the same commit"
    secret = api.services.tokens._keys.current.secret
    assert not any(secret.hex().encode() in file.read_bytes() for file in api.data.path.glob("fleet.sqlite*"))


def test_with_revoke_previous_all_older_tokens_end_at_once_and_refresh_tokens_get_new_ones(api: Api) -> None:
    oldest = api.token()
    api.services.tokens.rotate_key()
    pair = api.post("/auth/login", {"username": "admin", "password": PASSWORD}).json["data"]
    older = {"Authorization": f"Bearer {pair['access_token']}"}
    response = api.post("/auth/signing-key/rotate", {"revoke_previous": True}, older)
    assert response.status_code == 200
    for _ in range(2):
        assert [api.get("/auth/test", each).status_code for each in (oldest, older)] == [401, 401]
        api.start()
    fresh = api.post("/auth/refresh", {"refresh_token": pair["refresh_token"]}).json["data"]["access_token"]
    assert api.get("/auth/test", {"Authorization": f"Bearer {fresh}"}).status_code == 200


def test_the_older_key_is_believed_until_its_last_token_has_ended(api: Api) -> None:
    now = time.time()
    clock = [now]
    keys = SigningKeys(api.store, secret_box_of(api.data), lambda: clock[0])
    lifetimes = [Lifetimes(100, 1000)]
    tokens = Tokens(api.store, keys, lambda: lifetimes[0], lambda: clock[0])
    pair = tokens.issue(api.admin)
    lifetimes[0] = Lifetimes(1, 1000)  # shorter ones since
    tokens.refresh(pair.refresh_token)
    _, until = tokens.rotate_key()
    assert until == pytest.approx(now + 101)
    retired = keys.believed()[1]
    assert tokens.check(pair.access_token).user_id == api.admin.id
    clock[0] = until + 1
    forged = jwt.encode({"sub": api.admin.id}, retired.secret, "HS256", headers={"kid": retired.id})
    with pytest.raises(BadToken):
        tokens.check(forged)
    assert retired not in keys.believed()


def test_a_token_that_names_no_key_is_tried_with_all(api: Api) -> None:
    keys = api.services.tokens._keys
    good = api.token()["Authorization"].removeprefix("Bearer ")
    claims = jwt.decode(good, options={"verify_signature": False})
    unnamed = jwt.encode(claims, keys.current.secret, "HS256")
    api.services.tokens.rotate_key()
    assert api.get("/auth/test", {"Authorization": f"Bearer {unnamed}"}).status_code == 200
    wrong = jwt.encode(claims, keys.current.secret, "HS256", headers={"kid": "another"})
    assert api.get("/auth/test", {"Authorization": f"Bearer {wrong}"}).status_code == 401


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
@pytest.mark.parametrize("algorithm", ["none", "HS512"])
def test_another_algorithm_is_rejected_for_every_signer(api: Api, algorithm: str) -> None:
    good = api.token()["Authorization"].removeprefix("Bearer ")
    claims = jwt.decode(good, options={"verify_signature": False})
    key = api.services.tokens._keys.current
    token = jwt.encode(claims, None if algorithm == "none" else key.secret, algorithm, headers={"kid": key.id})
    assert api.get("/auth/test", {"Authorization": f"Bearer {token}"}).status_code == 401


def test_only_an_administrator_rotates(api: Api) -> None:
    api.add_user("eva", role="operator")
    assert api.post("/auth/signing-key/rotate", None, api.token("eva")).status_code == 403


def test_without_the_api_it_is_rotated_from_the_command_line(api: Api) -> None:
    pair = api.post("/auth/login", {"username": "admin", "password": PASSWORD}).json["data"]
    before = api.services.tokens._keys.current
    api.end()
    key_id, _ = rotate_signing_key(api.data)
    assert key_id != before.id
    api.open()
    api.start()
    assert api.get("/auth/test", {"Authorization": f"Bearer {pair['access_token']}"}).status_code == 200


def test_a_rotation_that_the_disk_refuses_is_recorded_as_failed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = api.token()

    def refuse(self: SigningKeys, until: float | None) -> None:
        raise StoreWriteError("the disk is full")

    monkeypatch.setattr(SigningKeys, "rotate", refuse)
    assert api.post("/auth/signing-key/rotate", None, admin).status_code == 500
    api.end()
    with pytest.raises(StoreWriteError):
        rotate_signing_key(api.data, revoke_previous=True)
    api.open()
    found, _ = api.engine.trail.find(Selection({"action": "signing_key.rotated"}), 10, 0)
    assert [(each.content["actor"]["type"], each.content["outcome"], each.content["details"]) for each in found] == [
        ("command_line", "failed", {"revoke_previous": True, "error": "StoreWriteError"}),
        ("user", "failed", {"revoke_previous": False, "error": "StoreWriteError"}),
    ]
    api.start()


def test_keys_that_cannot_be_opened_any_more_give_way_to_a_new_one(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    older = api.token()
    (api.data.keys / "secrets.key").write_text("00" * 32)
    api.end()
    api.open()
    api.start()
    assert api.get("/auth/test", older).status_code == 401
    assert api.get("/auth/test", api.token()).status_code == 200
    assert "the keys of access tokens can't be opened" in caplog.text


def test_without_the_key_that_seals_them_none_is_rotated_from_the_command_line(api: Api) -> None:
    api.token()
    api.end()
    (api.data.keys / "secrets.key").unlink()
    with pytest.raises(StoreError, match="rotate while the product runs"):
        rotate_signing_key(api.data)
    assert not (api.data.keys / "secrets.key").exists()
    api.open()
    api.start()


def test_an_engine_that_takes_the_commit_of_a_rotation_has_the_new_key_and_believes_the_older_one(api: Api) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as folder,
        closing(Engine(open_data_dir(Path(folder)), None)) as follower,
    ):
        keys = SigningKeys(follower, secret_box_of(api.data))
        api.token()
        for _ in range(2):
            for commit in api.engine.changes(follower.file.last_number):
                follower.adopt(commit)
            ours = api.services.tokens._keys
            assert keys.believed() == ours.believed() != ()
            with api.engine.exclusive():
                api.services.tokens.rotate_key()
