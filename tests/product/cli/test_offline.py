"""Commands for a stopped product, whose password is lost."""

from __future__ import annotations

from contextlib import closing

from api.security import users
from api.security.signing import SigningKeys
from api.store import open_store
from config.files.secret_box import secret_box_of
from config.passwords import check_password
from tests.product.cli.sites import Site


def admin(site: Site) -> users.User:
    store = open_store(site.data)
    try:
        user = users.by_name(store, "admin")
        assert user is not None
        return user
    finally:
        store.close()


def test_a_name_in_other_letters_is_the_same_user_and_their_first_password_is_forgotten(site: Site) -> None:
    site.data.initial_password.write_text("the first one\n")
    info = site.shell.good("reset-password", "ADMIN", "-o", "json").data
    assert check_password(info["password"], admin(site).password_hash)
    assert not site.data.initial_password.exists()


def test_a_user_who_is_not_there_is_status_5_and_those_who_are_there_are_named(site: Site) -> None:
    refused = site.shell("reset-password", "amdin")
    assert (refused.status, "users: admin" in refused.err) == (5, True)


def test_a_password_that_is_too_short_is_refused(site: Site) -> None:
    refused = site.shell("reset-password", "admin", PROXYFLEET_NEW_PASSWORD="short")
    assert (refused.status, "8 to 128 characters" in refused.err) == (1, True)


def test_who_is_disabled_gets_a_password_and_a_warning_that_it_is_not_enough(site: Site) -> None:
    disabled = admin(site).model_copy(update={"status": "disabled"})
    store = open_store(site.data)
    store.put(users.COLLECTION, disabled.model_dump(mode="json"))
    store.close()
    done = site.shell.good("reset-password", "admin")
    assert "admin is disabled, and can't sign in" in done.err


def test_the_signing_key_of_a_stopped_product_is_rotated_in_its_data(site: Site) -> None:
    done = [site.shell.good("rotate-signing-key", *more, "-o", "json").data for more in ((), ("--revoke-previous",))]
    keys = [each["key_id"] for each in done]
    with closing(open_store(site.data)) as store:
        assert [each.id for each in SigningKeys(store, secret_box_of(site.data)).believed()] == keys[1:]
    assert keys[0] != keys[1]
