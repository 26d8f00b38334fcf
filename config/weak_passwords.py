"""Passwords that are guessed first: the tops of lists of leaked ones, as far as they have eight characters."""

from __future__ import annotations

_WORDS = """
00000000 0987654321 11111111 11223344 1122334455 12121212 123123123 12341234 12344321 1234512345 12345678
123456789 1234567890 12345678910 123456789a 1234qwer 123654789 123qwe123 123qweasd 147258369 159753456 1q2w3e4r
1q2w3e4r5t 1q2w3e4r5t6y 1qaz2wsx 1qaz2wsx3edc 1qazxsw2 22222222 31415926 55555555 66666666 77777777 789456123
87654321 88888888 987654321 99999999 a1234567 a12345678 a123456789 a1b2c3d4 aa123456 aa12345678 aaaaaaaa
abc12345 abcd1234 abcdefgh access14 admin123 admin1234 admin12345 admin123456 adminadmin administrator alexander
asdf1234 asdfasdf asdfghjk asdfghjkl asdfghjkl123 azertyuiop baseball basketball butterfly changeit changeme
changeme1 changeme123 charlie1 chocolate computer corvette cowboys1 default1 dragon123 einstein elizabeth
football football1 freedom1 google123 hello123 hellohello iloveyou iloveyou1 internet jennifer jonathan jordan23
letmein1 letmein123 liverpool login123 lovelove loveyou1 master123 maverick mercedes metallica michael1 michelle
midnight monkey123 mustang1 mypassword p@ssw0rd p@ssword passw0rd password password! password1 password1!
password12 password123 password1234 passwort passwort1 pokemon1 princess princess1 q1w2e3r4 q1w2e3r4t5 qazwsxedc
qqww1122 qwe123qwe qweasdzxc qwer1234 qwerasdf qwerty12 qwerty123 qwerty1234 qwerty12345 qwertyui qwertyuiop
root1234 rootroot samsung1 secret123 shadow123 slipknot starwars sunshine sunshine1 superman superstar test1234
testtest toor1234 trustno1 victoria welcome1 welcome12 welcome123 whatever zaq12wsx zaq1zaq1 zxcvbnm1 zxcvbnm123
"""
COMMON = frozenset(_WORDS.split())
"""In lower case."""

SHORTEST, LONGEST = 8, 128
"""Characters of the passwords of users, and the fewest of those of accounts."""


def weakness_of_account(password: str | None, username: str, before: str | None, after: str | None) -> str | None:
    """Why an account may not get this password, as a predicate; None when nothing speaks against it.

    `before` and `after` are its hashes: the password that it has already is not judged anew.
    """
    if password is None or before == after:
        return None
    why = f"must have {SHORTEST} characters at least" if len(password) < SHORTEST else weakness(password, username)
    return None if why is None else f"{why} (accounts.weak_passwords permits any)"


def weakness(password: str, username: str | None = None) -> str | None:
    """Why this is no password for this user, as a predicate; None when nothing speaks against it."""
    folded = password.casefold()
    if folded in COMMON or len(set(folded)) == 1:
        return "is one of the passwords that are tried first; choose another"
    if username is not None and folded == username.casefold():
        return "must not be the user name"
    return None
