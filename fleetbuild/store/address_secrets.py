"""Secrets in addresses of package indexes: logins, tokens in paths and signed queries.

In: texts and the user's addresses. Out: the texts without secrets, for plans, journals and
messages, and for a download the address with its token again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import SplitResult, unquote, urlsplit

# Up to the last "@" before the path. A password with an unescaped "/" makes no valid URL, but error
# messages quote it: what follows "user:" is a password unless it is a port.
_LOGIN = re.compile(r"(?<=://)(?:[^/\s]*|[^/\s:@\[]+:(?!\d+(?:[/\s]|$))\S*)@")
_WORD = re.compile(r"\S+")
_SIGNED = re.compile(
    r"(?i)(?<=[?&])((?:X-Amz-|X-Goog-)[\w-]+|Signature|Sig|Token|Access_Token|Policy|Key-Pair-Id)"
    r"=[^&\s#\"']+"
)
# What may be a token: long, with letters, and with digits or both cases. Hiding another part of a
# path does no harm.
_TOKEN = re.compile(
    r"(?=[^/]*[A-Za-z])(?=[^/]*\d|[^/]*[a-z][^/]*[A-Z]|[^/]*[A-Z][^/]*[a-z])[\w.~%+=:-]{16,}"
)
HIDDEN = "***"


def without_login(text: str) -> str:
    """Remove user and password from every URL in a text, in a time that grows as its length."""
    return _WORD.sub(_word_without_login, text) if "@" in text else text


def _word_without_login(word: re.Match[str]) -> str:
    # Nothing after the last "@" is part of a login, and a search there would begin at every "://".
    before, at, rest = word[0].rpartition("@")
    return _LOGIN.sub("", before + at) + rest


def logins_of(values: Iterable[str]) -> dict[str, str]:
    """Return user:password by server."""
    logins: dict[str, str] = {}
    for url in _addresses(values):
        parts = _parsed(url)
        if parts.hostname and parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            logins.setdefault(server_of(url), login)
    return logins


def server_of(url: str) -> str:
    """Return what alone gets the secrets of an address: host, and HTTPS unless it says otherwise.

    Another user of the host may listen at another port, and anybody on the way reads plain HTTP.
    """
    parts = _parsed(url)
    host, secure = parts.hostname or "", parts.scheme == "https"
    place = parts.netloc.rpartition("@")[2].lower().removeprefix(host)
    return host if secure and place in ("", ":443") else f"{parts.scheme}:{host}{place}"


def tokens_of(values: Iterable[str]) -> dict[str, str]:
    """Return the parts of these addresses that may be secret, by the text that replaces them."""
    tokens: dict[str, str] = {}
    for url in _addresses(values):
        parts = _parsed(url)
        secrets = [part for part in parts.path.split("/") if _TOKEN.fullmatch(part)]
        for secret in filter(None, (*secrets, parts.query)):
            if parts.hostname and secret not in tokens.values():
                server = server_of(url)
                number = sum(name.startswith(f"{HIDDEN}{server}.") for name in tokens) + 1
                tokens[f"{HIDDEN}{server}.{number}{HIDDEN}"] = secret
    return tokens


def hide(text: str, tokens: Mapping[str, str]) -> str:
    """Return a text without logins, tokens and the values of signed queries."""
    text = without_login(text)
    for name, secret in tokens.items():
        text = text.replace(secret, name)
    return _SIGNED.sub(rf"\1={HIDDEN}", text)


def reveal(address: str, tokens: Mapping[str, str]) -> str:
    """Return an address with its own server's tokens again; everything else stays hidden."""
    # An index chooses the addresses of its files: no other server's token may go there.
    own = f"{HIDDEN}{server_of(address)}."
    for name, secret in tokens.items():
        if name.startswith(own):
            address = address.replace(name, secret)
    return address


def _parsed(url: str) -> SplitResult:
    """Return the parts of an address; all empty if it is invalid, such as http://[::1."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def _addresses(values: Iterable[str]) -> Iterable[str]:
    for value in values:
        for word in re.split(r"[\s,]+", value):
            url = word.split("=", 1)[-1] if re.match(r"[\w-]+=", word) else word
            if "://" in url:
                yield url
