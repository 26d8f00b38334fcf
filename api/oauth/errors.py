"""What may go wrong with a sign-in at a provider. All of them are `OAuthFailure`.

==================  ================================================================================================
`ProviderLost`      the provider does not answer, answers what can't be used, or does not accept this client; ours to
                    mend, so the text is for the log
`StateRefused`      the state is unknown, used, too old or another browser's
`CodeRefused`       the provider does not take the code
`IdentityRefused`   who it is was not proven, or may not come in; the text may be told to them
`Busy`              as many sign-ins as may be are under way
==================  ================================================================================================
"""

from __future__ import annotations


class OAuthFailure(Exception):
    """The sign-in did not happen; the text says why."""


class ProviderLost(OAuthFailure):
    """The provider is of no use at this moment."""


class StateRefused(OAuthFailure):
    """This is no state that this client may use now."""


class CodeRefused(OAuthFailure):
    """The provider refused the code: wrong, used or too old."""


class IdentityRefused(OAuthFailure):
    """The person is not let in."""


class Busy(OAuthFailure):
    """Try again in a second."""
