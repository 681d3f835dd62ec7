"""Sources in git: resolve a tag or branch to a commit while planning, fetch it for the build.

In: a repository's address and a ref. Out: a commit, one of its files, or an archive of it.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fleetbuild.audit.archive import is_bomb
from fleetbuild.errors import InstallError, ResolutionError
from fleetbuild.programs import MOST_FILE, run_program
from fleetbuild.store.address_secrets import without_login
from fleetbuild.store.pack import pack_tree
from fleetbuild.store.sources import MAX_BYTES, MAX_MEMBERS

_ANSWER_WITHIN, _FETCH_WITHIN = 60, 4 * 3600
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# What a git that started fleetbuild, as a hook or an alias, says about its own repository.
_OF_A_CALLER = {
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_CONFIG",
    "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE",
}  # fmt: skip
_SETTINGS = (
    "core.autocrlf=false", "core.hooksPath=/dev/null", "advice.detachedHead=false",
    "fetch.unpackLimit=1",  # all that is fetched is one file, which has a limit
)  # fmt: skip
_WHOLE = "2147483647"  # git's depth of a whole history; a server without git knows no depth
_BY_HAND = "Name another ref or repository; or pack it by hand, and name the archive."


class _Ended(InstallError):
    """Ctrl-C or a limit ended git, so no other way of fetching is tried."""


def find_commit(address: str, ref: str, mirrors: Mapping[str, str]) -> str:
    """Return the commit that a tag or branch points to now."""
    if _COMMIT.fullmatch(ref):
        return ref
    # HEAD is the repository's own branch.
    named = [f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}"]
    wanted = [ref] if ref == "HEAD" else named
    asked = _Git(address, mirrors).run("ls-remote", "--", address, *wanted, within=_ANSWER_WITHIN)
    answers = (line.partition("\t") for line in asked.splitlines())
    commits = {name: commit for commit, _, name in answers}
    for name in wanted:  # an annotated tag is an object of its own that points to the commit
        if name in commits and _COMMIT.fullmatch(commits[name]):
            return commits[name]
    raise ResolutionError(
        f"{without_login(address)} has no tag or branch {ref}.",
        "Ask for an existing version, or set the tag format in a recipe with source: ref:.",
    )


def read_file(address: str, commit: str, path: str, mirrors: Mapping[str, str]) -> str:
    """Return the text of one file of a commit; "" if the commit has no such file.

    If the server supports it, only that file is fetched: a repository may be a gigabyte.
    """
    with tempfile.TemporaryDirectory(prefix="fleetbuild-") as folder:
        git = _Git(address, mirrors, Path(folder))
        git.run("init", "--quiet", "--bare", "--template=")
        git.run("remote", "add", "--", "origin", address)
        git.run("fetch", "--quiet", "--depth", "1", "--filter=tree:0", "origin", commit,
                within=_ANSWER_WITHIN)  # fmt: skip
        listed = git.run("ls-tree", commit, "--", path, within=_ANSWER_WITHIN)
        return git.run("show", f"{commit}:{path}", within=_ANSWER_WITHIN) if listed else ""


def pack_commit(
    address: str,
    commit: str,
    dest: Path,
    root: str,
    *,
    submodules: bool,
    mirrors: Mapping[str, str],
) -> None:
    """Pack a commit into one file; the same commit gives the same bytes."""
    with tempfile.TemporaryDirectory(dir=dest.parent, prefix=".checkout-") as folder:
        waiting, files, size = [(_Git(address, mirrors, Path(folder)), address, commit)], 0, 0
        for git, url, wanted in waiting:  # which grows
            git.run("init", "--quiet", "--template=")
            # A submodule's address may be relative to this repository's.
            git.run("remote", "add", "--", "origin", url)
            _fetch(git, wanted)
            sizes = git.sizes(wanted)
            files, size = files + len(sizes) + 1, size + sum(sizes) + git.packed()
            if files > MAX_MEMBERS or size > MAX_BYTES or is_bomb(sum(sizes), git.packed()):
                raise InstallError(
                    f"The source in {without_login(address)} is not unpacked: it has {files} files"
                    f" of {size >> 20} MB, too much for so small a fetch, or for a source.",
                    _BY_HAND,
                )
            git.run("checkout", "--quiet", "--detach", wanted)
            waiting += git.submodules() if submodules else ()
        pack_tree(Path(folder), dest, root, whole=True)


def _fetch(git: _Git, commit: str) -> None:
    try:
        git.run("fetch", "--quiet", "--depth", "1", "origin", commit)
    except _Ended:
        raise
    except InstallError:
        # Some servers only serve tags and branches, not single commits.
        every = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        git.run("fetch", "--quiet", "--depth", _WHOLE, "origin", *every)


@dataclass(frozen=True)
class _Git:
    """git, for one repository and its submodules."""

    address: str
    mirrors: Mapping[str, str]
    folder: Path | None = None  # None: a question that needs no repository

    def run(self, *arguments: str, within: int = _FETCH_WITHIN) -> str:
        """Run git and return its output; raise if it fails."""
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        try:
            command = ["git", *settings, *arguments]
            done = run_program(command, within=within, cwd=self.folder, env=self._environment())
        except FileNotFoundError:
            raise InstallError(
                "A source is in git, but git is not installed on this machine.", "Install git."
            ) from None
        except subprocess.TimeoutExpired:
            raise _unreachable(self.address, f"no answer within {within} s") from None
        too_large = os.strerror(errno.EFBIG) in done.stderr
        if done.returncode < 0 or (done.returncode > 0 and too_large):
            why, fix = f"git was ended by signal {-done.returncode}", "Run this again."
            if too_large:
                why, fix = f"it takes more than {MOST_FILE >> 20} MB", _BY_HAND
            source = f"The source in {without_login(self.address)}"
            raise _Ended(f"{source} was not fetched: {why}.", fix)
        if done.returncode != 0:
            raise _unreachable(self.address, done.stderr)
        return done.stdout

    def sizes(self, commit: str) -> list[int]:
        """Return the sizes of the files of a commit, without unpacking any."""
        words = ("ls-tree", "-r", "-l", "-z", "--abbrev=4")
        listed = self.run(*words, commit, within=_ANSWER_WITHIN)
        found = (line.split("\t")[0].split()[-1] for line in listed.split("\0") if line)
        return [int(size) for size in found if size != "-"]

    def packed(self) -> int:
        """Return the bytes that the repository itself takes."""
        return sum(file.stat().st_size for file in Path(self.folder or "").glob(".git/objects/*/*"))

    def submodules(self) -> Iterator[tuple[_Git, str, str]]:
        """Yield each submodule of the checkout: git in its folder, its address, its commit.

        `git submodule update` would check them out, and theirs, without a bound.
        """
        listed = (line.partition("\t") for line in self.run("ls-files", "-s", "-z").split("\0"))
        commits = {path: row.split()[1] for row, _, path in listed if row.startswith("160000")}
        if not commits:
            return
        self.run("submodule", "--quiet", "init")
        here, urls, ways = Path(self.folder or ""), self._settings("url"), self._settings("update")
        for name, path in self._settings("path", "--file", ".gitmodules").items():
            folder = here / path
            wanted = path in commits and name in urls and ways.get(name) != "none"
            if wanted and folder.resolve() == here.resolve() / path:  # through no link
                yield replace(self, folder=folder), urls[name], commits[path]

    def _settings(self, key: str, *where: str) -> dict[str, str]:
        """Return a setting of each submodule by its name."""
        listed = self.run("config", *where, "-z", "--get-regexp", "^submodule[.]")
        lines = (line.partition("\n") for line in listed.split("\0"))
        ends = f".{key}"
        return {
            name.removeprefix("submodule.").removesuffix(ends): value
            for name, _, value in lines
            if name.endswith(ends)
        }

    def _environment(self) -> dict[str, str]:
        """Return the user's environment, with prompts turned off and mirrors set.

        The user's proxies and credential helpers keep working. Mirrors are set here because argv is
        public, and an address may contain a password.
        """
        values = {name: value for name, value in os.environ.items() if name not in _OF_A_CALLER}
        values |= {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8"}
        # A repository around this one, such as /tmp/.git, has settings that run programs.
        if self.folder is None:
            values["GIT_DIR"] = os.devnull
        else:
            values["GIT_CEILING_DIRECTORIES"] = str(self.folder.absolute().parent)
        values.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")
        # A foreign repository must not reach files of this machine.
        local = any(url.startswith("file://") for url in (self.address, *self.mirrors.values()))
        values["GIT_ALLOW_PROTOCOL"] = "https:http:ssh:git" + (":file" if local else "")
        first = int(values.get("GIT_CONFIG_COUNT") or 0)
        for number, (prefix, instead) in enumerate(self.mirrors.items(), first):
            values[f"GIT_CONFIG_KEY_{number}"] = f"url.{instead}.insteadOf"
            values[f"GIT_CONFIG_VALUE_{number}"] = prefix
        values["GIT_CONFIG_COUNT"] = str(first + len(self.mirrors))
        return values


def _unreachable(address: str, output: str) -> InstallError:
    lines = [line for line in without_login(output).splitlines() if line.strip()]
    # Lines after the first error are advice or follow-up errors.
    errors = [line for line in lines if line.startswith(("fatal: ", "error: ", "ERROR: "))]
    reason = (*errors, *reversed(lines), "no reason given")[0]
    reason = re.sub("^(fatal|error|ERROR): ", "", reason).rstrip(".")
    return InstallError(
        f"The source in {without_login(address)} cannot be fetched: {reason}.",
        "Check the network and the login, or add a mirror under mirrors: in "
        "fleetbuild.yml, then run this again.",
    )
