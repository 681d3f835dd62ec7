"""Index settings: fleetbuild.yml's entries, uv's own, and pip's in its places."""

from __future__ import annotations

import os

import pytest

from fleetbuild.errors import ConfigError
from fleetbuild.store.address_secrets import hide, reveal
from fleetbuild.store.index_config import index_settings
from tests.factories.files import make_wheel


@pytest.fixture(autouse=True)
def no_pip_of_this_machine(monkeypatch, tmp_path):
    """Only what a test writes counts."""
    monkeypatch.setattr("fleetbuild.store.index_config._SYSTEM", (tmp_path / "etc" / "pip.conf",))
    monkeypatch.setattr("fleetbuild.store.index_config._UV_SYSTEM", tmp_path / "etc" / "uv.toml")


def settings(tmp_path, extra=(), **environ):
    return index_settings(extra, tmp_path, environ, tmp_path / "home")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_without_settings_uv_uses_its_defaults(tmp_path):
    assert settings(tmp_path).environment == {}


def test_pips_variables_are_translated(tmp_path):
    made = settings(
        tmp_path,
        PIP_INDEX_URL="https://me:pass%40word@index.example.org/simple",
        PIP_EXTRA_INDEX_URL="https://a.example.org https://b.example.org",
        PIP_FIND_LINKS=f"{tmp_path} {tmp_path}/absent https://c.example.org/links.html",
        PIP_NO_INDEX="0",
        PIP_CERT="/ca.pem",
        PIP_TRUSTED_HOST="d.example.org",
    )
    assert made.environment == {
        "UV_DEFAULT_INDEX": "https://me:pass%40word@index.example.org/simple",
        "UV_INDEX": "https://a.example.org https://b.example.org",
        "UV_FIND_LINKS": f"{tmp_path},https://c.example.org/links.html",
        "SSL_CERT_FILE": "/ca.pem",
        "UV_INSECURE_HOST": "d.example.org",
    }
    assert made.credentials == {"index.example.org": "me:pass@word"}
    assert "pass" not in made.key
    assert "pass" not in repr(made)


def test_pips_files_are_read_in_its_order(tmp_path):
    write(tmp_path / "etc" / "pip.conf", "[global]\nindex-url = https://global\nno-index = true\n")
    write(
        tmp_path / "home" / ".config" / "pip" / "pip.conf",
        "[global]\nindex_url = https://user\n"
        "[install]\nextra-index-url =\n  https://x\n  https://y\n",
    )
    made = settings(tmp_path).environment
    assert made["UV_DEFAULT_INDEX"] == "https://user"
    assert made["UV_INDEX"] == "https://x https://y"
    assert made["UV_NO_INDEX"] == "1"
    named = write(tmp_path / "named.conf", "[global]\nindex-url = https://named\n")
    assert settings(tmp_path, PIP_CONFIG_FILE=str(named)).environment["UV_DEFAULT_INDEX"] == (
        "https://named"
    )
    assert settings(tmp_path, PIP_CONFIG_FILE=os.devnull).environment == {}


def test_a_broken_pip_file_is_ignored(tmp_path):
    write(tmp_path / "etc" / "pip.conf", "no section\n")
    assert settings(tmp_path).environment == {}


def test_uvs_own_settings_come_before_pips(tmp_path):
    pip = {"PIP_INDEX_URL": "https://pip"}
    assert settings(tmp_path, UV_INDEX_URL="https://uv", **pip).environment == {
        "UV_INDEX_URL": "https://uv"
    }
    write(tmp_path / "home" / ".config" / "uv" / "uv.toml", '[[index]]\nurl = "https://uv"\n')
    assert settings(tmp_path, **pip).environment == {}
    other = write(tmp_path / "uv.toml", "not toml")
    assert settings(tmp_path, UV_CONFIG_FILE=str(other), **pip).environment != {}


def test_entries_of_fleetbuild_yml_come_first(tmp_path):
    make_wheel(tmp_path / "wheels", "x")
    (tmp_path / "index" / "x").mkdir(parents=True)
    made = settings(
        tmp_path,
        ["wheels", "index", "https://name=x@a.example.org/simple", "https://a.example.org/l.html"],
        UV_INDEX="https://later",
        UV_FIND_LINKS="/later",
    ).environment
    assert made["UV_INDEX"].split() == [
        (tmp_path / "index").as_uri(),
        "https://name=x@a.example.org/simple",
        "https://later",
    ]
    assert made["UV_FIND_LINKS"].split(",") == [
        str(tmp_path / "wheels"),
        "https://a.example.org/l.html",
        "/later",
    ]


def test_a_missing_index_folder_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        settings(tmp_path, ["absent"])


def test_a_named_index_of_uv_may_hold_a_login(tmp_path):
    made = settings(tmp_path, UV_INDEX="internal=https://u@b.example.org/simple")
    assert made.credentials == {"b.example.org": "u:"}


@pytest.mark.parametrize(
    "token", ["aBcD1234efGH5678", "onlyLettersButBothCases", "a1b2+c3d4%3De5f6="]
)
def test_a_token_in_a_path_is_hidden_and_restored_for_a_download(tmp_path, token):
    index = f"https://host/{token}/me/simple/"
    made = index_settings(environ={"UV_INDEX_URL": index}, home=tmp_path)
    assert made.environment["UV_INDEX_URL"] == index  # what uv gets
    wheel = f"https://host/{token}/me/files/a-1.whl"
    hidden = hide(wheel, made.tokens)
    assert hidden == "https://host/***host.1***/me/files/a-1.whl"
    assert reveal(hidden, made.tokens) == wheel
    assert token not in made.key
    assert token not in repr(made)


@pytest.mark.parametrize(
    "place",
    ["https://evil", "https://host.1", "https://host.1.evil", "https://host.evil", "http://host",
     "http://host:443", "https://host:8443"],
)  # fmt: skip
def test_a_token_is_restored_for_its_own_host_alone(tmp_path, place):
    index = "https://host/aBcD1234efGH5678/simple/"
    made = index_settings(environ={"UV_INDEX_URL": index}, home=tmp_path)
    address = f"{place}/***host.1***/a-1.whl"
    assert reveal(address, made.tokens) == address


def test_an_invalid_address_holds_no_token(tmp_path):
    made = index_settings(environ={"UV_INDEX": "http://[::1"}, home=tmp_path)
    assert made.tokens == {}
    assert reveal("http://[::1", {"***host.1***": "secret"}) == "http://[::1"


def test_signed_queries_are_hidden(tmp_path):
    links = "https://host/wheels.html?sig=a1b2&expires=9"
    made = index_settings(environ={"UV_FIND_LINKS": links}, home=tmp_path)
    assert hide(links, made.tokens) == "https://host/wheels.html?***host.1***"
    assert reveal(hide(links, made.tokens), made.tokens) == links
    signed = "https://s3/a.whl?X-Amz-Date=1&X-Amz-Signature=ab&part=2"
    assert hide(signed, {}) == "https://s3/a.whl?X-Amz-Date=***&X-Amz-Signature=***&part=2"


def test_addresses_without_secrets_stay(tmp_path):
    plain = "https://download.pytorch.org/whl/cu130 https://pypi.org/simple"
    made = index_settings(environ={"UV_INDEX": plain}, home=tmp_path)
    assert made.tokens == {}
    wheel = f"https://files.pythonhosted.org/packages/01/79/{'1f2d34ad' * 7}/torch-2.13.0.whl"
    assert hide(wheel, made.tokens) == wheel


def test_an_index_folder_that_is_not_there_is_refused(tmp_path):
    """uv takes it for an index without packages."""
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX"):
        environ = {name: f"file://{tmp_path}/gone"}
        with pytest.raises(ConfigError, match=f"{name} names the index file://.*no such folder"):
            index_settings(environ=environ, home=tmp_path)
    assert index_settings(environ={"UV_INDEX": tmp_path.as_uri()}, home=tmp_path).environment
