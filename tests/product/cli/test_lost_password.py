"""`proxyfleet reset-password` while the product runs: it asks that over the bus of the run directory."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
import requests
import zmq

from actors.bus.loop import Loop
from actors.bus.mailbox import Mailbox, address_of, refuse
from actors.bus.messages.common import API, Failed, ResetPassword
from api.cli.errors import Status
from api.operator import running
from config.files.paths import RunDir, lock
from tests.kit.product import PASSWORD, Product
from tests.kit.wait import wait_until
from tests.product.cli.shell import Shell

FRESH = "quite another good one"


@pytest.fixture
def operator(product: Product, tmp_path: Path) -> Shell:
    """A command line on the product's machine, as its user, without a sign-in."""
    where = {"PROXYFLEET_DATA_DIR": str(product.data_dir), "PROXYFLEET_RUN_DIR": str(product.run_dir)}
    return Shell(tmp_path / "operator", None, **where)


@pytest.fixture
def ada(product: Product) -> Iterator[str]:
    user = product.data("POST", "/users", {"username": "ada", "password": PASSWORD, "role": "operator"})["user"]
    yield user["id"]
    product.api("DELETE", f"/users/{user['id']}")


def login(product: Product, password: str) -> requests.Response:
    credentials = {"username": "ada", "password": password}
    return product.session.post(f"{product.base_url}/api/v1/auth/login", json=credentials, timeout=30)


def test_a_running_product_gives_the_new_password_and_no_one_is_signed_in_by_the_old_one(
    product: Product, operator: Shell, ada: str
) -> None:
    tokens = login(product, PASSWORD).json()["data"]
    while login(product, "wrong").status_code != 429:
        continue
    given = operator.good("reset-password", "ada", "-o", "json").data
    assert product.processes()
    response = product.session.get(
        f"{product.base_url}/api/v1/auth/test",
        headers={"Authorization": f"Bearer {tokens['access_token']}"},
        timeout=180,
    )
    assert response.status_code == 401
    assert login(product, PASSWORD).status_code == 401
    assert login(product, given["password"]).status_code == 200
    row = product.data("GET", f"/audit?action=user.updated&resource_id={ada}")["audit"][0]
    assert (row["actor"]["type"], row["operation"]) == ("command_line", "reset-password")
    assert given["password"] not in product.log


def test_a_running_product_rotates_its_signing_key_and_takes_it_at_once(
    product: Product, stranger: Shell, shell: Shell
) -> None:
    where = "--data-dir", str(product.data_dir), "-o", "json"
    assert stranger("rotate-signing-key", *where).status == Status.NOT_AUTHORISED
    done = shell.good("rotate-signing-key", *where).data
    token = product.session.post(
        f"{product.base_url}/api/v1/auth/login", json={"username": "admin", "password": PASSWORD}, timeout=60
    ).json()["data"]["access_token"]
    assert jwt.get_unverified_header(token)["kid"] == done["key_id"]
    assert product.data("GET", "/audit?action=signing_key.rotated")["audit"][0]["actor"]["username"] == "admin"


def test_a_chosen_password_is_taken_and_a_weak_one_and_an_unknown_user_are_refused_as_ever(
    product: Product, operator: Shell, ada: str
) -> None:
    weak = operator("reset-password", "ada", PROXYFLEET_NEW_PASSWORD="short")
    assert (weak.status, "8 to 128 characters" in weak.err) == (1, True)
    unknown = operator("reset-password", "adda", PROXYFLEET_NEW_PASSWORD=FRESH)
    assert (unknown.status, "users: ada, admin" in unknown.err) == (5, True)
    assert login(product, PASSWORD).status_code == 200
    done = operator.good("reset-password", "ada", PROXYFLEET_NEW_PASSWORD=FRESH)
    assert done.out == "The password of ada is changed.\n"
    assert login(product, FRESH).status_code == 200


def test_a_product_whose_run_directory_is_elsewhere_is_not_guessed(product: Product, folder: Path) -> None:
    shell = Shell(folder / "home", None)
    missed = shell("reset-password", "admin", "--data-dir", str(product.data_dir), "--run-dir", str(folder / "no"))
    assert missed.status == 1
    assert f"in use by process {product.pid}" in missed.err
    assert "--run-dir" in missed.err


@pytest.fixture
def starting(folder: Path) -> Iterator[Shell]:
    """The locks of a product are taken, and its bus is not there yet."""
    (folder / "data").mkdir(mode=0o700)
    (folder / "run").mkdir(mode=0o700)
    locks = [lock(folder / each / "lock", "directory") for each in ("data", "run")]
    yield Shell(folder / "home", None, PROXYFLEET_DATA_DIR=f"{folder}/data", PROXYFLEET_RUN_DIR=f"{folder}/run")
    for each in locks:
        os.close(each)


def test_a_product_that_is_starting_is_named_so(starting: Shell) -> None:
    refused = starting("reset-password", "admin")
    assert (refused.status, "the product is starting or ending" in refused.err) == (1, True)


def test_a_supervisor_that_is_silent_is_not_waited_for_for_ever(
    starting: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "SUPERVISOR_TIMEOUT", 0.2)
    with socket.socket(socket.AF_UNIX) as mute:  # what a killed supervisor leaves behind, or one that is stopped
        mute.bind(str(folder / "run" / "mailbox"))
        refused = starting("reset-password", "admin")
    assert (refused.status, "not changed: the product is starting, or hangs" in refused.err) == (1, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what belongs to others")
def test_a_directory_of_another_user_is_refused_with_the_command_to_give_as_that_user(folder: Path) -> None:
    (folder / "data").mkdir(mode=0o700)
    shutil.chown(folder / "data", 1)
    refused = Shell(folder / "home", None)("reset-password", "admin", "--data-dir", f"{folder}/data")
    assert (refused.status, "belongs to user" in refused.err, "runuser -u" in refused.err) == (1, True, True)


def test_no_other_actor_may_ask_for_a_password(product: Product) -> None:
    loop = Loop()
    context: zmq.Context[Any] = zmq.Context()
    posing = Mailbox(loop, context, RunDir(product.run_dir).mailbox, address_of("logs", 1), refuse)
    replies: list[object] = []
    posing.ask(API, ResetPassword("admin", FRESH), replies.append)
    wait_until(lambda: loop.turn(0.1) or replies, "the exchange refuses it")
    posing.close()
    context.term()
    loop.close()
    assert replies == [Failed("logs/1 may not send ResetPassword")]
