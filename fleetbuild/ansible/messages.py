"""Reduce Ansible's output to one sentence.

In: text with colours, labels and line breaks. Out: plain messages.
"""

from __future__ import annotations

import re
import shlex

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_LABEL = re.compile(r"^(?:ERROR!|\[?(?:ERROR|WARNING)\]?:?)\s*")
_PROGRESS = re.compile(r"(?:fatal|ok|changed|skipping|failed): \[|(?:TASK|PLAY) ")
_LONGEST = 500
# Lines of the user's file that Ansible shows: neighbours of the wrong one may be passwords.
_SOURCE = re.compile(
    r"^[ \t]*Origin: .*(?:\n[ \t]*$|\n[ \t]*\d+ .*|\n[ \t]*\^.*|\n[ \t]*\.\.\..*)*", re.MULTILINE
)
_OLDER_SOURCE = re.compile(
    r"The\s+offending\s+line\s+appears\s+to\s+be:(?:(?!The\s+offending).)*?\^\s+here", re.DOTALL
)
# Only these words of Ansible's are shown: the rest may quote a file, and so a password.
_NAME = r"[A-Za-z_][A-Za-z0-9_.-]{0,62}"
_SAID = re.compile(
    r"Expected key=value(?: host variable assignment)?|Expected group name|No closing quotation"
    r"|Invalid section entry|has unknown type|Invalid host pattern|invalid literal for int\(\)"
    r"|could not convert string to float|Parsed empty YAML file"
    rf"|Section \[{_NAME}:(?:vars|children)\] (?:includes|not valid for) undefined group"
    rf'|Invalid "(?:hosts|vars|children)" entry for "{_NAME}" group, requires a dictionary'
    r"|(?:it should be a|expected) dictionary|could not be verified"
    r"|specifies unknown plugin(?: '[a-z0-9_]+\.[a-z0-9_.]+')?"
    rf"|Skipping (?:unexpected )?key \({_NAME}\) in group \({_NAME}\)"
    r"|not a valid group definition|Found both group and host with same name"
    rf"|Found variable using reserved name '{_NAME}'"
    r"|YAML parsing failed: (?:Tabs are usually invalid in YAML"
    r"|Colons in unquoted values must be followed by a non-space character)"
    r"|YAML parsing failed|Syntax Error while loading YAML"
    r"|non-zero exit code -?\d+|could not be parsed as JSON|Failed to execute inventory script"
    r"|characters that cannot be interpreted as UTF-8|JSON decoder"
    rf"|Found duplicate mapping key '{_NAME}'"
    r"|Could not match supplied host pattern(?:, ignoring: [\w.*!&@-]+)?"
    r"|Permission denied|Is a directory"
)
_REMOVE = re.compile(
    r"(?:-f \\?[\"'](?P<file>/[A-Za-z0-9._/@+-]{1,255})\\?[\"'] )?"
    r"-R \\?[\"'](?P<name>[A-Za-z0-9._:\[\]-]{1,255})\\?[\"']"
)


def plain(text: str) -> str:
    """Return the text without colours and other control characters."""
    return "".join(c for c in _ANSI.sub("", text) if c.isprintable() or c in "\n\t")


def without_source(text: str) -> str:
    """Return Ansible's output without the lines of the user's files that it shows."""
    return _OLDER_SOURCE.sub("", _SOURCE.sub("", plain(text)))


def without_values(reason: str) -> str:
    """Return what Ansible says of a file, without anything that the file holds but plain names."""
    line = re.match(r"\S*:(\d+): ", reason)
    said = dict.fromkeys(found[0] for found in _SAID.finditer(reason))
    text = ", ".join(said) or "Ansible says more than may be shown here: ansible-inventory --list"
    return f"line {line[1]}: {text}" if line else text


def place_in(text: str, file: str) -> str:
    """Return the line and column of a file that Ansible names as the origin of an error, or ""."""
    found = re.search(rf"Origin: {re.escape(file)}:(\d+):(\d+)", plain(text))
    return f"line {found[1]}, column {found[2]}: " if found else ""


def messages(text: str) -> list[str]:
    """Return Ansible's messages, unwrapped, without their labels (ERROR, WARNING) and sources."""
    problems: list[str] = []
    ended = True
    for line in without_source(text).splitlines():
        if _LABEL.match(line):
            problems.append(_LABEL.sub("", line).strip())
            ended = False
        elif _PROGRESS.match(line):
            ended = True
        elif line.strip() and not ended:
            problems[-1] += " " + line.strip()
    return problems


def unreachable_reason(text: str) -> str:
    """Return why ssh did not reach a node, from Ansible's output.

    For a changed host key the fix is included, because ssh hides it in a banner.
    """
    if "HOST IDENTIFICATION HAS CHANGED" not in text:
        return text
    command = _REMOVE.search(text)
    file = f"-f {command['file']} " if command and command["file"] else ""
    return (
        "HOST KEY CHANGED: another machine may be answering. Find out why; only if the node is"
        f" really new: ssh-keygen {file}-R {shlex.quote(command['name']) if command else 'HOST'}"
    )


def sentence(text: str) -> str:
    """Return the first message in Ansible's output, bounded in length."""
    texts = messages(text) or [" ".join(without_source(text).split())]
    return texts[0][:_LONGEST].rstrip(" .:") or "no reason given"
