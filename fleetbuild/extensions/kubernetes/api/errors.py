"""Errors of an API server, and their messages with a fix.

In: refusals and connection failures. Out: `ClusterError`s.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from fleetbuild.errors import ClusterError, FleetbuildError, ForbiddenError
from fleetbuild.extensions.kubernetes.api.kubeconfig import Access
from fleetbuild.models.problem import Problem


class Refusal(Exception):
    """The API server refused a request."""

    def __init__(self, code: int, status: Mapping[str, Any]) -> None:
        super().__init__(str(status.get("message") or f"HTTP {code}"))
        self.code = code
        self.message = str(status.get("message") or f"it answered with HTTP {code}")
        details = status.get("details")
        causes = details.get("causes") if isinstance(details, dict) else None
        self.causes = [cause for cause in causes or () if isinstance(cause, dict)]


class NoResponse(Exception):
    """The server did not answer any attempt; `reason` is a short sentence without a full stop."""

    def __init__(self, reason: str, times: int) -> None:
        super().__init__(reason)
        self.reason, self.times = reason, times


def as_error(
    problem: Refusal | NoResponse, access: Access, verb: str, what: str
) -> FleetbuildError:
    """Return the error to raise for a problem that stops the whole command."""
    if isinstance(problem, NoResponse):
        return ClusterError(
            f"{access.where} did not answer: {problem.reason} ({problem.times} attempts).",
            "Try `kubectl get nodes`; once it answers, run the same command again.",
        )
    if problem.code == 401:
        return ClusterError(*expired(access))
    if problem.code == 403:
        return ForbiddenError(*forbidden(access, verb, what, problem.message))
    return ClusterError(
        f"{access.where} refused to {verb} {what}: {problem.message}",
        "Check the API server's log, then run the same command again.",
    )


def no_api(access: Access, code: int) -> ClusterError:
    """Return the error for an answer that is not an API server's, such as a proxy's login page."""
    what = f"a redirection (HTTP {code})" if code >= 300 else f"HTTP {code} and no JSON object"
    return ClusterError(
        f"{access.where} answered with {what}, so it is not an API server.",
        "Something else answers there, such as a login page: check the server's address and the "
        "proxy with `kubectl get --raw /version`, then run the same command again.",
    )


def no_list(access: Access) -> ClusterError:
    """Return the error for a list whose items are not all objects."""
    return ClusterError(
        f"{access.where} answered with a list in which something is not an object.",
        "Find out what answers there: kubectl get nodes -o json",
    )


def endless_list(access: Access, path: str, items: int) -> ClusterError:
    """Return the error for a list that has ever more pages."""
    return ClusterError(
        f"{access.where} sends {path} without an end: {items} items so far.",
        "Find out what answers there: kubectl get --raw '/api/v1/nodes?limit=500'",
    )


def endless_answer(access: Access, size: int, seconds: float) -> ClusterError:
    """Return the error for one answer that is too long or takes too long."""
    return ClusterError(
        f"{access.where} sends one answer without an end: {size / 1e6:.0f} MB in {seconds:.0f} s.",
        "Find out what answers there: kubectl get --raw '/api/v1/nodes?limit=500'",
    )


def expired(access: Access) -> Problem:
    """Return the problem of a 401 answer."""
    return Problem(
        f"{access.where} rejected the credentials of {access.user.name or 'nobody'} (401).",
        "Log in again, test it with `kubectl get nodes`, then run the same command again.",
    )


def forbidden(access: Access, verb: str, what: str, message: str) -> Problem:
    """Return the problem of a 403 answer; the fix names the missing rule."""
    group, _, resource = what.rpartition("/")
    if "ValidatingAdmissionPolicy" in message:
        return Problem(
            f"An admission policy of the cluster forbids the change: {message}",
            "If kubernetes.label_domain or fleetbuild's version has changed, run fleetbuild emit"
            " rbac, and apply its files.",
        )
    rule = f'{{apiGroups: ["{group}"], resources: [{resource}], verbs: [{verb}]}}'
    return Problem(
        f"{access.user.name or 'This login'} may not {verb} {resource}: {message}",
        f"Add this rule to its ClusterRole: {rule}; all of them: fleetbuild emit rbac",
    )


def untrusted(access: Access, problem: ssl.SSLCertVerificationError) -> ClusterError:
    """Return the error for a server certificate that is not trusted."""
    return ClusterError(
        f"The certificate of {access.where} is not trusted: {problem.verify_message}.",
        "Get a kubeconfig with the cluster's certificate-authority.",
    )
