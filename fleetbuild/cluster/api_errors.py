"""What can go wrong at an API server, and how it is told."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from fleetbuild.cluster.kubeconfig import Access
from fleetbuild.errors import ClusterError, FleetbuildError, ForbiddenError


class Refusal(Exception):
    """The API server said no."""

    def __init__(self, code: int, status: Mapping[str, Any]) -> None:
        super().__init__(str(status.get("message") or f"HTTP {code}"))
        self.code = code
        self.message = str(status.get("message") or f"it answered with HTTP {code}")
        details = status.get("details")
        causes = details.get("causes") if isinstance(details, dict) else None
        self.causes = [cause for cause in causes or () if isinstance(cause, dict)]


class NoResponse(Exception):
    """Nobody answered, however often we asked; `reason` is a short sentence without its end."""

    def __init__(self, reason: str, times: int) -> None:
        super().__init__(reason)
        self.reason, self.times = reason, times


def as_error(
    problem: Refusal | NoResponse, access: Access, verb: str, what: str
) -> FleetbuildError:
    """A problem that ends everything, as something that a user can act on."""
    if isinstance(problem, NoResponse):
        return ClusterError(
            f"{access.where} did not answer: {problem.reason} ({problem.times} times asked).",
            "Try `kubectl get nodes`; once it answers, run the same command again.",
        )
    if problem.code == 401:
        return ClusterError(*expired(access))
    if problem.code == 403:
        return ForbiddenError(*forbidden(access, verb, what, problem.message))
    return ClusterError(
        f"{access.where} refused to {verb} {what}: {problem.message}",
        "Look at the API server's log, and run the same command again.",
    )


def no_api(access: Access, code: int) -> ClusterError:
    """Somebody answered, but no API server: the login page of a proxy, or another program."""
    what = f"a redirection (HTTP {code})" if code >= 300 else f"HTTP {code} and no JSON object"
    return ClusterError(
        f"{access.where} answered with {what}, which no API server does.",
        "Something else answers there, such as a login page: check the server's address and the "
        "proxy with `kubectl get --raw /version`, and run the same command again.",
    )


def expired(access: Access) -> tuple[str, str]:
    """401, and what to do about it."""
    return (
        f"{access.where} no longer takes the credentials of {access.user.name or 'nobody'} (401).",
        "Log in again, try it with `kubectl get nodes`, and run the same command again.",
    )


def forbidden(access: Access, verb: str, what: str, message: str) -> tuple[str, str]:
    """403, and the rule that is missing."""
    group, _, resource = what.rpartition("/")
    rule = f'{{apiGroups: ["{group}"], resources: [{resource}], verbs: [{verb}]}}'
    return (
        f"{access.user.name or 'This login'} may not {verb} {resource}: {message}",
        f"Have this rule added to its ClusterRole: {rule}; docs/kubernetes.md has the whole of it.",
    )


def untrusted(access: Access, problem: ssl.SSLCertVerificationError) -> ClusterError:
    """The server is not who it should be, or nobody told us whom to trust."""
    return ClusterError(
        f"The certificate of {access.where} is not trusted: {problem.verify_message}.",
        "The kubeconfig must name the cluster's certificate-authority; get a new one.",
    )
