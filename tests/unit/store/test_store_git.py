"""Sources in git, from real repositories on this machine: tags, submodules, mirrors."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile

import pytest

from fleetbuild.errors import InstallError, RecipeError, ResolutionError
from fleetbuild.files import sha256_of
from fleetbuild.models import LockedFile
from fleetbuild.plan.resolve.sources import source_of_recipe
from fleetbuild.programs import run_program
from fleetbuild.recipes import parse_recipe
from fleetbuild.store.git import _Git, find_commit, pack_commit, read_file
from fleetbuild.store.index_config import IndexSettings, mirrored
from fleetbuild.store.wheels import Store
from tests.factories.files import git, make_repository

PYPROJECT = '[project]\nname = "pkg"\nversion = "1.0"\n'


@pytest.fixture
def forge(tmp_path, monkeypatch):
    """Two repositories, one a submodule of the other by a relative address."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    lib = make_repository(tmp_path / "forge" / "lib", {"lib.c": "int x;\n"})
    pkg = make_repository(
        tmp_path / "forge" / "pkg", {"pyproject.toml": PYPROJECT, "build/kept.c": "int y;\n"}
    )
    git(pkg, "submodule", "--quiet", "add", "../lib", "third_party/lib")
    git(pkg, "commit", "-q", "-m", "two")
    git(pkg, "tag", "-a", "v1.0", "-m", "one")
    git(pkg, "tag", "light")
    (lib / "lib.c").write_text("int later;\n")
    git(lib, "commit", "-q", "-a", "-m", "later")
    return tmp_path / "forge"


def names(path):
    with tarfile.open(path) as tar:
        return tar.getnames()


def test_a_tag_resolves_to_its_commit(forge):
    address = (forge / "pkg").as_uri()
    commit = git(forge / "pkg", "rev-parse", "HEAD")
    for ref in ("v1.0", "light", "main"):
        assert find_commit(address, ref, {}) == commit
    assert find_commit("https://nobody.invalid/", commit, {}) == commit  # nobody is asked
    with pytest.raises(ResolutionError, match=r"pkg has no tag or branch v9") as caught:
        find_commit(address, "v9", {})
    assert "ref:" in caught.value.fix


def test_one_file_of_a_commit_is_read(forge):
    address, commit = (forge / "pkg").as_uri(), git(forge / "pkg", "rev-parse", "HEAD")
    assert read_file(address, commit, "pyproject.toml", {}) == PYPROJECT
    assert read_file(address, commit, "build/kept.c", {}) == "int y;\n"
    assert read_file(address, commit, "setup.py", {}) == ""
    with pytest.raises(InstallError, match="cannot be fetched"):
        read_file((forge / "gone").as_uri(), commit, "pyproject.toml", {})


def test_a_server_with_partial_clone_sends_only_that_file(forge, monkeypatch):
    git(forge / "pkg", "config", "uploadpack.allowFilter", "true")
    git(forge / "pkg", "config", "uploadpack.allowAnySHA1InWant", "true")
    commit, sent = git(forge / "pkg", "rev-parse", "HEAD"), []
    run = _Git.run

    def counted(self, *arguments, **more):
        said = run(self, *arguments, **more)
        if arguments[0] == "show":
            objects = subprocess.run(
                ["git", "cat-file", "--batch-check", "--batch-all-objects"],
                cwd=self.folder, capture_output=True, text=True, check=True,
            )  # fmt: skip
            sent.extend(line.split()[1] for line in objects.stdout.splitlines())
        return said

    monkeypatch.setattr(_Git, "run", counted)
    assert read_file((forge / "pkg").as_uri(), commit, "pyproject.toml", {}) == PYPROJECT
    assert sent.count("blob") == 1


def test_a_commit_is_packed_with_submodules_reproducibly(forge, tmp_path, monkeypatch):
    # A hook of the user's, who may have it run what a repository brings: it leaves files.
    (forge / "post-checkout").symlink_to("/usr/bin/touch")
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", f"'core.hooksPath={forge}'")
    address, commit = (forge / "pkg").as_uri(), git(forge / "pkg", "rev-parse", "HEAD")
    one, two, flat = (tmp_path / name for name in ("one", "two", "flat"))
    pack_commit(address, commit, one, "pkg-1.0", submodules=True, mirrors={})
    assert names(one) == [
        "pkg-1.0/.gitmodules",
        "pkg-1.0/build/kept.c",
        "pkg-1.0/pyproject.toml",
        "pkg-1.0/third_party/lib/lib.c",
    ]
    with tarfile.open(one) as tar:  # as the commit says, not as it is by now
        assert tar.extractfile("pkg-1.0/third_party/lib/lib.c").read() == b"int x;\n"
    old = os.umask(0o077)
    try:
        pack_commit(address, commit, two, "pkg-1.0", submodules=True, mirrors={})
    finally:
        os.umask(old)
    assert one.read_bytes() == two.read_bytes()
    pack_commit(address, commit, flat, "pkg-1.0", submodules=False, mirrors={})
    assert "pkg-1.0/third_party/lib/lib.c" not in names(flat)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["flat", "forge", "one", "two"]


@pytest.mark.parametrize("nested", [False, True])
def test_a_repository_that_unpacks_to_much_more_is_not_checked_out(tmp_path, nested):
    bomb = make_repository(tmp_path / "bomb", {"zeros": ""})
    os.truncate(bomb / "zeros", 80 << 20)
    git(bomb, "commit", "-q", "-a", "-m", "zeros")
    repository = bomb
    if nested:
        repository = make_repository(tmp_path / "outer", {"a": ""})
        git(repository, "submodule", "-q", "add", "../bomb", "sub")
        git(repository, "commit", "-q", "-m", "sub")
    commit = git(repository, "rev-parse", "HEAD")
    with pytest.raises(InstallError, match="of 80 MB, too much for so small a fetch"):
        pack_commit(repository.as_uri(), commit, tmp_path / "x", "p", submodules=True, mirrors={})
    assert not (tmp_path / "x").exists()


def test_a_submodule_that_its_repository_leaves_out_is_left_out(forge, tmp_path):
    pkg = forge / "pkg"
    git(pkg, "config", "-f", ".gitmodules", "submodule.third_party/lib.update", "none")
    git(pkg, "commit", "-q", "-a", "-m", "without")
    commit = git(pkg, "rev-parse", "HEAD")
    pack_commit(pkg.as_uri(), commit, tmp_path / "x", "p", submodules=True, mirrors={})
    assert "p/third_party/lib/lib.c" not in names(tmp_path / "x")


def test_a_mirror_serves_the_repository_and_submodules_of_other_places(forge, tmp_path):
    pkg = forge / "pkg"
    git(
        pkg, "config", "-f", ".gitmodules", "submodule.third_party/lib.url", "https://o.invalid/lib"
    )
    git(pkg, "commit", "-q", "-a", "-m", "elsewhere")
    mirrors = {f"https://{host}.invalid/": f"{forge.as_uri()}/" for host in ("forge", "o")}
    address = "https://forge.invalid/pkg"
    commit = find_commit(address, git(pkg, "rev-parse", "HEAD"), mirrors)
    pack_commit(address, commit, tmp_path / "x", "p", submodules=True, mirrors=mirrors)
    assert "p/third_party/lib/lib.c" in names(tmp_path / "x")


def test_a_server_that_serves_only_tags_and_branches_works(forge, tmp_path, monkeypatch):
    first = git(forge / "pkg", "rev-parse", "HEAD~1")
    ran = []
    real = run_program

    def picky(command, **more):
        ran.append(command)
        refused = "fetch" in command and command[-1] == first
        return real(["false"] if refused else command, **more)

    monkeypatch.setattr("fleetbuild.store.git.run_program", picky)
    address = (forge / "pkg").as_uri()
    pack_commit(address, first, tmp_path / "x", "p", submodules=False, mirrors={})
    assert names(tmp_path / "x") == ["p/build/kept.c", "p/pyproject.toml"]
    (every,) = (command for command in ran if "+refs/tags/*:refs/tags/*" in command)
    assert "--depth" in every  # which git refuses for a server without git: it has no limit


def test_all_that_git_fetches_of_a_repository_has_one_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("fleetbuild.programs.MOST_FILE", 50_000)
    files = {name: os.urandom(30_000).hex() for name in "ab"}  # of each, half is left when packed
    repository = make_repository(tmp_path / "large", files)
    place, commit = repository.as_uri(), git(repository, "rev-parse", "HEAD")
    with pytest.raises(InstallError, match="was not fetched: it takes more than 8192 MB"):
        pack_commit(place, commit, tmp_path / "x", "p", submodules=True, mirrors={})


def test_an_interrupted_git_is_not_retried(forge, tmp_path, monkeypatch):
    commit = git(forge / "pkg", "rev-parse", "HEAD")
    ran = []
    real = run_program

    def interrupted(command, **more):
        ran.append(command)
        return real(["sh", "-c", "kill -INT $$"] if "fetch" in command else command, **more)

    monkeypatch.setattr("fleetbuild.store.git.run_program", interrupted)
    address = (forge / "pkg").as_uri()
    with pytest.raises(InstallError, match="git was ended by signal 2"):
        pack_commit(address, commit, tmp_path / "x", "p", submodules=False, mirrors={})
    assert sum("fetch" in command for command in ran) == 1


def test_an_unreachable_repository_is_an_error(tmp_path, monkeypatch):
    gone = f"file://me:secret@{tmp_path}/gone"
    with pytest.raises(InstallError, match="cannot be fetched") as caught:
        find_commit(gone, "v1", {})
    assert "secret" not in caught.value.message
    assert "mirrors:" in caught.value.fix
    # git ends with advice; the cause comes first.
    assert "does not appear to be a git repository" in caught.value.message
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InstallError, match="git is not installed on this machine"):
        find_commit("https://x.invalid/y", "v1", {})


def test_a_hanging_repository_is_ended(monkeypatch):
    def hang(command, **_):
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr("fleetbuild.store.git.run_program", hang)
    with pytest.raises(InstallError, match="no answer within 60 s"):
        find_commit("https://x.invalid/y", "v1", {})


def test_a_foreign_repository_cannot_reach_local_files(forge):
    mirrors = {"https://f.invalid/": "https://g.invalid/"}
    with pytest.raises(InstallError, match="not allowed"):
        find_commit(f"{forge}/pkg", "main", mirrors)


def test_a_packed_commit_is_stored(forge, tmp_path):
    address, commit = (forge / "pkg").as_uri(), git(forge / "pkg", "rev-parse", "HEAD")
    store = Store(tmp_path / "store")
    file = LockedFile(
        name="pkg", version="1.0", file="pkg-1.0.tar.gz", sha256="", url=f"git+{address}@{commit}"
    )
    path = store.fetch(file)
    assert path == tmp_path / "store" / "files" / f"git-{commit}" / "pkg-1.0.tar.gz"
    assert "pkg-1.0/third_party/lib/lib.c" in names(path)
    whole = path.read_bytes()
    path.write_bytes(whole + b"more")
    assert store.fetch(file).read_bytes() == whole  # hashed again, and packed again
    (forge / "pkg").rename(tmp_path / "away")
    assert store.fetch(file) == path
    hashed = path.with_name(f"{path.name}.sha256")
    assert hashed.read_text().strip() == sha256_of(path)
    flat = file.model_copy(update={"url": file.url + "#flat"})
    assert flat.identity == f"git-{commit}-flat"
    with pytest.raises(InstallError):
        store.fetch(flat)
    assert [each.name for each in (tmp_path / "store" / "files").iterdir()] == [f"git-{commit}"]


RECIPE = "name: r\npackages: [pkg]\nrungs: [avx]\n"


def origin(text, settings=None, version="1.0"):
    recipe = parse_recipe(RECIPE + text, "r")
    return source_of_recipe(recipe, "my-pkg", version, settings or IndexSettings())


def test_a_tag_in_a_recipe_gives_a_locked_commit(forge):
    commit = git(forge / "pkg", "rev-parse", "HEAD")
    text = f"source: {{git: '{forge.as_uri()}/{{{{ \"pkg\" if package }}}}'}}"
    file = origin(text)
    assert (file.file, file.sha256) == ("my_pkg-1.0.tar.gz", "")
    assert file.commit == ((forge / "pkg").as_uri(), commit, True)
    assert file.identity == f"git-{commit}"
    assert not origin(text.replace("'}", "', submodules: false}")).commit.submodules
    assert origin("") is None


def test_an_archive_is_locked_by_its_hash(tmp_path):
    content = tmp_path / "mirror" / "pkg-v1.0.tar.gz"
    content.parent.mkdir()
    content.write_bytes(b"source")
    sha = hashlib.sha256(b"source").hexdigest()
    address = "https://f.invalid/pkg-v{{ version }}.tar.gz"
    file = origin(f"source: {{archive: '{address}', sha256: {{'1.0': '{sha}'}}}}")
    assert (file.file, file.sha256) == ("pkg-v1.0.tar.gz", sha)
    assert file.url == "https://f.invalid/pkg-v1.0.tar.gz"
    assert file.commit is None
    assert origin(f"source: {{archive: '{address}#sha256={sha}'}}").sha256 == sha
    with pytest.raises(RecipeError, match=r"sha256 for the archive of my-pkg 2\.0") as caught:
        origin(f"source: {{archive: '{address}', sha256: {{'1.0': '{sha}'}}}}", version="2.0")
    assert "extends: r" in caught.value.fix
    settings = IndexSettings(mirrors={"https://f.invalid": content.parent.as_uri()})
    assert Store(tmp_path / "store", settings).fetch(file).read_bytes() == b"source"


def test_a_login_in_a_recipe_is_refused():
    with pytest.raises(RecipeError, match="user or password"):
        origin("source: {git: 'https://me:secret@f.invalid/pkg'}")
    with pytest.raises(RecipeError, match=r"cannot be rendered: source\.ref"):
        origin("source: {git: 'https://f.invalid/pkg', ref: '{{ isa }}'}")


def test_the_longest_mirror_prefix_wins():
    mirrors = {"https://a/": "https://m/", "https://a/b/": "https://n/"}
    assert mirrored("https://a/b/c", mirrors) == "https://n/c"
    assert mirrored("https://a/c", mirrors) == "https://m/c"
    assert mirrored("https://c/", mirrors) == "https://c/"
