"""Whether a request may be made and which way it goes: one order of decisions for all who ask.

Client connections act on it, `explain` says what it says, and tunnels and datagrams are judged by it again. The first
stage that refuses decides.

================  ==========================================  ======================================================
stage             what it needs                               the reason when it refuses
================  ==========================================  ======================================================
``client``        the client's address, at accept and when    `client_denied`, `client_not_allowed`
                  the access rules have changed since
``user``          a `ClientIdentity`; how names are read        407, `accounts_unavailable`, `unknown_parameters`
``account``       the account of that user                    disabled, expired, outside its schedule, from another
                                                              network, its quota is used up
``credential``    the one that came in place of a password    the same of that
(limits)          the connection's meter                      connections and rates; only requests are counted
``name``          the target, before it is resolved           `destination_denied` and `…_not_allowed` of account,
                                                              credential and, of what goes directly, the proxy
``policy``        the target, or its addresses where rules    `policy_denied`; a rule that refuses nothing may choose
                  ask for them                                the way, and the proxy's access rules are passed over
(limits)          the rules that match                        those of rules; only requests are counted
(way)             what the policies say, else the proxy       an upstream, or directly; a pool may be missing
``resolve``       the name of what goes directly              that of the resolver
``egress_guard``  each address                                `destination_ip_prohibited`
``address``       each address                                as ``name``, of all that judge the request
``source``        the addresses that are left                 no address of ours has their family
``upstreams``     the parameters of the user name             `no_upstream_matches`
``tls_name``      the first flight of a tunnel's client       `tls_name_denied`
================  ==========================================  ======================================================

Two stages wait: a password is checked before there is a `ClientIdentity` (`access.authenticator`), and a name is
resolved by who asks. So `refused_before_target` is all up to the target; `decide_by_name`, and where that wants them
`decide_by_addresses`, are what follows, up to the way; `net.dialer.decide_addresses` has the stages of addresses.
Nothing here has an effect but what a meter counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from actors.bus.messages.specs import DENY, DIRECT, AccountSpec
from actors.forwarding.access.policy import AccessPolicy, Decision, decided, refused, refused_by_own
from actors.forwarding.access.rules import OwnRules
from actors.forwarding.access.tls_names import decide_name
from actors.forwarding.access.username_parameters import NO_PARAMETERS, Parameters, Understood, UsernameReader
from actors.forwarding.limits.meter import Meter, MeteredConnection
from actors.forwarding.net.egress import Requested
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.commands import NO_PARAMS, Report, is_secret
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority, parse_absolute
from actors.net.egress_guard import LOOPBACK, is_localhost

if TYPE_CHECKING:
    from actors.accounts.records import CredentialRecord
    from actors.forwarding.access.authenticator import Tester
    from actors.forwarding.access.directory import PeerCertificate
    from actors.forwarding.context import ForwardingContext
    from actors.forwarding.policies.judge import Judge, PolicySet, PolicyVerdict
    from actors.forwarding.upstreams.upstream_set import UpstreamSet


class ClientIdentity:
    """Who sends a request, and what has proved it. Never changed, so that `ANONYMOUS` serves all who are not known.

    `user` is the name of an account (of the fleet or of the proxy itself), of the user of `auth`, or of a guest whom
    a back end knows; empty where there is none, or not yet. What proved it is one of: `verified`, the hash that the
    password was checked against, or what stands for it (`ClientAuthenticator.stored`); `credential`, whose secret came
    in place of the password; `certificate`, the client's; `tester`, a test of the API. `by_name`: the name alone, in a
    protocol without passwords. `parameters` are those of the user name, and `named` is the account in one that has
    some, empty where that came as a credential's secret.
    """

    __slots__ = ("by_name", "certificate", "credential", "named", "parameters", "tester", "user", "verified")

    def __init__(
        self,
        user: str = "",
        verified: bytes | None = None,
        credential: CredentialRecord | None = None,
        certificate: PeerCertificate | None = None,
        tester: Tester | None = None,
        by_name: bool = False,
        named: str = "",
        parameters: Parameters = NO_PARAMETERS,
    ) -> None:
        self.user = user
        self.verified = verified
        self.credential = credential
        self.certificate = certificate
        self.tester = tester
        self.by_name = by_name
        self.named = named
        self.parameters = parameters

    @property
    def session_key(self) -> str | None:
        """The session of its user name, with the account; None without one."""
        session = self.parameters.session
        return None if session is None else f"{self.named or self.user}\0{session}"

    @property
    def credential_id(self) -> str:
        """Empty without a credential."""
        return "" if self.credential is None else self.credential.id

    def requested(self, client_ip: str) -> Requested:
        """By what its source address is chosen."""
        parameters = self.parameters
        return Requested(client_ip, self.user, parameters.session or "", parameters.rotate, parameters.ttl)

    def balanced_by(self, client_ip: str) -> str:
        """By what an upstream is chosen where one stays with its client: the session, the account, or the client."""
        key = self.session_key
        if key is not None:
            return key
        return f"{self.named or self.user}\0" if self.parameters.rotate else client_ip

    def holds(self, context: ForwardingContext) -> bool:
        """Whether it is still proved in the present configuration: the user may have been removed meanwhile, or have
        got another password."""
        if self.tester is not None:
            return True
        authenticator = context.authenticator
        if self.certificate is not None:
            return context.directory.certified_user(self.certificate, context.clock()) == self.user
        if self.credential is not None:
            return authenticator.knows(self.user) and authenticator.holds(self.credential)
        return authenticator.is_current(self.user, self.verified)

    def __repr__(self) -> str:
        return f"<ClientIdentity {self.user or 'unknown'}>"


ANONYMOUS: Final = ClientIdentity()


def understood(
    context: ForwardingContext, username: str, name_alone: bool = False, names: UsernameReader | None = None
) -> Understood:
    """How a user name is read; `name_alone`: there is no password, and a credential's secret may stand for the account.

    `names` is another reader than that of now.

    Users that a back end may know have their parameters behind the first known name, as names of no account have.
    """
    names = names or context.names
    if names is None:
        return Understood(username)
    if not context.policy.session.wants_credentials:
        return names.understood(username, None, True)
    known = context.directory.exists

    def exists(name: str) -> bool:
        return known(name) or (name_alone and is_secret(name.encode()))

    return names.understood(username, exists, context.authenticator.backend.configured)


def chosen_by(context: ForwardingContext, parameters: Parameters) -> Parameters:
    """Those by which an upstream is chosen."""
    return parameters if context.names is not None and context.names.binds else NO_PARAMETERS


# --- up to the target ---


class CountedConnection(MeteredConnection, Protocol):
    """A client connection whose requests count."""

    def metered(self) -> Meter:
        """Its meter, a new one where nothing was limited or counted until now."""


def refused_before_target(
    context: ForwardingContext,
    identity: ClientIdentity,
    client_ip: str,
    counted: CountedConnection | None = None,
    meter: Meter | None = None,
    known_client: bool = False,
    known_user: bool = False,
    at: float = 0.0,
) -> Decision | None:
    """The refusal of a request whatever its target is; None: there is none.

    `known_client` and `known_user`: these stages have let it through already. `counted` is the connection, with its
    meter if it has one, by which the request counts; None: it is only asked about, as of `at` (Unix seconds; 0 is now).
    Raises `UnreadableError` then.
    """
    if not known_client:
        client = context.policy.access.client(client_ip)
        if client.failure is not None:
            return client
    if not known_user:
        user = _refused_user(context, identity)
        if user is not None:
            return user
    if counted is None:
        return _refused_account(context, identity, client_ip, at)
    if meter is None:
        if not (context.limits.active or context.is_shared_account(identity.user)):
            return None
        meter = counted.metered()
    meter.certificate = None if identity.certificate is None else identity.certificate.entries
    meter.by_name = identity.by_name
    failure = meter.admit(identity.user, counted, identity.credential)
    return None if failure is None else refused(failure, "", "account")


def _refused_user(context: ForwardingContext, identity: ClientIdentity) -> Decision | None:
    if context.policy.session.wants_credentials and not identity.holds(context):
        unreadable = context.authenticator.is_unreadable(identity.user)
        return refused(failures.ACCOUNTS_UNAVAILABLE if unreadable else failures.CREDENTIALS_WANTED, "", "user")
    unknown = unknown_parameters(context, identity.parameters)
    return None if unknown is None else refused(unknown, f"username_params.reject_unknown: {unknown.recorded}", "user")


def unknown_parameters(context: ForwardingContext, parameters: Parameters) -> Failure | None:
    """Why a request with unknown parameters is refused; None where they have no effect."""
    names, unknown = context.names, parameters.unknown
    if not unknown or names is None or not names.reject_unknown:
        return None
    return failures.unknown_parameters(" ".join(unknown))


def _refused_account(
    context: ForwardingContext, identity: ClientIdentity, client_ip: str, at: float
) -> Decision | None:
    """As a meter's limits refuse it, but for what they count. Raises `UnreadableError`."""
    failure = context.limits.user_refusal(identity.user, client_ip, at)
    if failure is not None:
        return refused(failure, f"accounts: {failure.detail}", "account")
    if identity.credential is None:
        return None
    failure = context.limits.credential_refusal(identity.user, identity.credential, client_ip, at)
    return None if failure is None else refused(failure, f"credentials: {failure.detail}", "credential")


# --- the target, up to the way ---


class Subject:
    """Who asks and from where, as far as policies want to know it.

    `params` are what rules may ask for of a user name's parameters; `policies` judge in place of those of now.
    `at` is when, in Unix seconds; 0 is now.
    """

    __slots__ = ("account", "at", "client_ip", "listen_port", "params", "policies", "user")

    def __init__(
        self,
        client_ip: str,
        listen_port: int,
        user: str,
        account: AccountSpec | None,
        params: Mapping[str, str] = NO_PARAMS,
        policies: PolicySet | None = None,
        at: float = 0.0,
    ) -> None:
        self.client_ip = client_ip
        self.listen_port = listen_port
        self.user = user
        self.account = account
        self.params = params
        self.policies = policies
        self.at = at

    def judge(self, context: ForwardingContext, target: Authority, method: str = "", path: str = "") -> Judge | None:
        """What judges a request for this target by the policies of now, and by those of the account and its plan; None:
        there are none. `method` and `path` are empty for what is not plain HTTP."""
        account = self.account
        if self.policies is None and not context.judges(account):
            return None
        from actors.forwarding.policies.judge import NO_POLICIES, new_facts  # only with policies

        tags, of_account = ((), ()) if account is None else (account.tags, account.policies)
        client = self.client_ip, self.listen_port
        facts = new_facts(target, *client, self.user, tags, method, path, self.params, self.at)
        default = DIRECT if context.upstreams is None else ""
        return (self.policies or context.policies or NO_POLICIES).judge(facts, of_account, default)

    def judge_directly(self, context: ForwardingContext, target: Authority) -> Judge | None:
        """As `judge`, of what no upstream can serve: whatever is to go through a pool is refused."""
        judge = self.judge(context, target)
        if judge is not None:
            judge.settle_directly()
        return judge


def decide_by_name(
    context: ForwardingContext, target: Authority, own: OwnRules, judge: Judge | None
) -> Decision | None:
    """The decision as far as the target's name tells it; `judge`: None without policies.

    None: its addresses are wanted, to choose the way (`decide_by_addresses`) or, where `judge` has settled that or is
    None, because it goes directly and each of them is to be judged.
    """
    access = context.policy.access.for_request(own, judge)
    if judge is None:
        return access.name(target) if context.upstreams is None else access.unresolved(target)
    verdict = judge.by_name()
    return access.own_by_name(target) if verdict is None else _settled(access, target, judge, verdict, ())


def decide_by_addresses(
    context: ForwardingContext, target: Authority, own: OwnRules, judge: Judge, addresses: tuple[str, ...]
) -> Decision | None:
    """The way by what the policies say about these addresses. None: it goes directly, to those that it goes to alone.

    The verdict is that at the first address that may be connected to. An upstream resolves the name itself: no address
    may be one that is refused then.
    """
    access = context.policy.access
    free = [each for each in addresses if access.guarded(target, each) is None] or list(addresses)
    verdicts = {each: judge.by_address(each) for each in free}
    allowed = [each for each in free if verdicts[each].use != DENY]
    first = verdicts[allowed[0] if allowed else free[0]]
    if allowed and judge.way(first) != DIRECT and len(allowed) < len(free):
        first = next(verdicts[each] for each in free if verdicts[each].use == DENY)
    way = judge.way(first), first.egress
    same = tuple(each for each in allowed if (judge.way(verdicts[each]), verdicts[each].egress) == way)
    return _settled(access.for_request(own, judge), target, judge, first, same)


def _settled(
    access: AccessPolicy, target: Authority, judge: Judge, verdict: PolicyVerdict, addresses: tuple[str, ...]
) -> Decision | None:
    judge.settle(verdict, addresses)
    own = access.own_by_name(target)
    if own is not None:
        return own  # it comes first, since it names the rule in the record
    if verdict.failure is not None:
        return decided(verdict)
    return access.name(target) if judge.way(verdict) == DIRECT else access.unresolved(target)


def way_out(context: ForwardingContext, judge: Judge | None) -> UpstreamSet | None:
    """The upstreams that a request goes through; None: it goes directly, or a policy names a pool that is not there."""
    if judge is None:
        return context.upstreams
    verdict = judge.verdict
    return None if judge.way(verdict) == DIRECT else context.upstreams_of(verdict.pool)


def missing_pool(context: ForwardingContext, judge: Judge) -> Failure | None:
    """Why a request can't go the way of its policies: they name a pool that is not there; None: they don't."""
    verdict = judge.verdict
    if not verdict.pool or way_out(context, judge) is not None:
        return None
    return failures.no_such_pool(verdict.pool, verdict.applied[-1].entry)


# --- what is open already ---


def refused_by_own_now(own: OwnRules, target: Authority, address: str | None) -> Failure | None:
    """Why a tunnel to `target` is no longer allowed by an account and its credential; None when it is.

    `address` is the origin's; None: an upstream has resolved the name.
    """
    if address is None and target.literal:
        address = target.host
    elif address is None and is_localhost(target.host):
        address = LOOPBACK
    decision = refused_by_own(own, target, address)
    return None if decision is None else decision.failure


def refused_by_policies_now(
    context: ForwardingContext, subject: Subject, target: Authority, report: Report, address: str | None
) -> Failure | None:
    """Why the policies of now refuse what is open; None when they don't. `address` as above: a policy that would need
    it can't refuse."""
    url = report.url
    if url.lower().startswith("http://"):  # a request that has become a tunnel by 101
        path = parse_absolute(url.encode("latin-1"))[1].decode("latin-1")
        judge = subject.judge(context, target, report.method.decode("ascii"), path)
    else:
        judge = subject.judge(context, target)
    if judge is None:
        return None
    verdict = judge.by_name() if address is None else judge.by_address(address)
    return None if verdict is None else verdict.failure


def decide_other_name(
    context: ForwardingContext,
    subject: Subject,
    named: Authority,
    address: str | None,
    own: OwnRules,
    judge: Judge | None,
) -> Decision:
    """What all that judged the request of a tunnel says about another name in its handshake (`decide_name`).

    `address` is the origin's; None: the tunnel goes through an upstream. `own` rules hold, and `judge` has judged the
    request; None: there are no policies.
    """
    through_upstream, verdict = address is None, None
    if judge is not None:
        verdict = judge.verdict
        if through_upstream and judge.addresses:
            address = judge.addresses[0]
    return decide_name(
        context.policy.access, own, subject.judge(context, named), named, address, through_upstream, verdict
    )
