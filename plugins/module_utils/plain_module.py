"""Runs a module of the collection without Ansible's own code, whose import takes 0.14 s of CPU.

plugin_utils/programs.py sends this file as a program, with the sources of the collection. It offers
the part of `AnsibleModule` that these modules use, with the same arguments and errors.

Standard library only, Python 3.6 or newer.
"""

import json
import os
import sys
import traceback
from importlib.machinery import ModuleSpec

COLLECTION = "ansible_collections.fleetbuild.core.plugins"
YES, NO = ("y", "yes", "on", "1", "true", "t", "1.0"), ("n", "no", "off", "0", "false", "f", "0.0")
ARGUMENTS = {}  # of the module that runs, with Ansible's own beside them


class Sources:
    """Imports the collection's modules from their texts, which are named by path."""

    def __init__(self, texts):
        self.texts = texts

    def find_spec(self, name, *_):
        if (name + ".").startswith(COLLECTION + ".") or COLLECTION.startswith(name + "."):
            start = name[len(COLLECTION) :].replace(".", "/")
            if start + ".py" in self.texts:
                return self.spec(name, start + ".py", False)
            if any(place.startswith(start + "/") for place in self.texts):
                return self.spec(name, start + "/__init__.py", True)
        return None

    def spec(self, name, place, is_package):
        spec = ModuleSpec(name, self, origin=place, is_package=is_package)
        spec.has_location = True
        return spec

    def create_module(self, spec):  # noqa: ARG002
        return None

    def exec_module(self, module):
        place = module.__spec__.origin
        code = compile(self.texts.get(place, ""), place, "exec")
        exec(code, module.__dict__)  # noqa: S102 (the collection's own)

    def get_source(self, name):
        return self.texts.get(self.find_spec(name).origin, "")

    def get_data(self, place):
        return self.texts[place].encode("utf-8")


class AnsibleModule:
    """The arguments of a module, and its one answer."""

    def __init__(self, argument_spec, supports_check_mode=False, required_if=()):
        given = {key: value for key, value in ARGUMENTS.items() if not key.startswith("_ansible_")}
        self.check_mode = bool(ARGUMENTS.get("_ansible_check_mode"))
        if self.check_mode and not supports_check_mode:
            self.answer(skipped=True, msg="remote module does not support check mode")
        try:
            self.params = filled(given, argument_spec)
            for key, value, needed in required_if:
                lacking = [name for name in needed if self.params[name] is None]
                if self.params[key] == value and lacking:
                    raise ValueError(f"{key} is {value}, and {', '.join(lacking)} is missing")
        except ValueError as problem:
            self.fail_json(msg=str(problem))

    def exit_json(self, **answer):
        self.answer(**answer)

    def fail_json(self, msg, **answer):
        self.answer(failed=True, msg=msg, **answer)

    def answer(self, **answer):
        sys.stdout.write("\n" + json.dumps(answer) + "\n")
        raise SystemExit(1 if answer.get("failed") else 0)


def filled(given, spec, within=""):
    """Return arguments in the types that a specification names, with defaults; raise for others."""
    unknown = sorted(set(given) - set(spec))
    if unknown:
        named = ", ".join(within + name for name in unknown)
        known = ", ".join(sorted(spec))
        raise ValueError(f"Unsupported parameters: {named}. Supported parameters include: {known}.")
    result = {}
    for name, about in spec.items():
        value = given.get(name)
        if value is None:
            value = {} if about.get("apply_defaults") else about.get("default")
        if value is None and about.get("required"):
            raise ValueError(f"missing required arguments: {within + name}")
        result[name] = None if value is None else typed(value, about, within + name)
    return result


def typed(value, about, name):
    """Return a value in the type that its specification names."""
    kind = about.get("type", "str")
    try:
        value = KINDS[kind](value)
    except (ValueError, TypeError, SyntaxError):
        given = type(value).__name__
        raise ValueError(f"argument '{name}' is of type {given}, and {kind} is needed") from None
    if "choices" in about and value not in about["choices"]:
        choices = ", ".join(about["choices"])
        raise ValueError(f"value of {name} must be one of: {choices}, got: {value}")
    if kind == "list" and "elements" in about:
        each = {key: about[key] for key in about if key == "options"}
        value = [typed(item, dict(each, type=about["elements"]), name) for item in value]
    if kind == "dict" and "options" in about:
        value = filled(value, about["options"], name + ".")
    return value


def as_bool(value):
    said = str(value).lower()
    if said not in YES + NO:
        raise ValueError
    return said in YES


def as_list(value):
    if isinstance(value, dict):
        raise ValueError
    if isinstance(value, str):
        return value.split(",")
    return value if isinstance(value, list) else [value]


def as_dict(value):
    value = from_text(value) if isinstance(value, str) else value
    if not isinstance(value, dict):
        raise ValueError
    return value


def from_text(text):
    """Return the value of a text that is JSON, Python or words of key=value."""
    import ast  # noqa: PLC0415 (5 ms, which few arguments need)
    import shlex  # noqa: PLC0415

    if not text.startswith("{"):
        words = shlex.shlex(text.strip(), posix=True)
        words.whitespace, words.whitespace_split, words.commenters = ", ", True, ""
        return dict(word.split("=", 1) for word in words) if "=" in text else None
    try:
        return json.loads(text)
    except ValueError:
        return ast.literal_eval(text)


def as_path(value):
    return os.path.expanduser(os.path.expandvars(as_text(value)))


def as_text(value):
    return value if isinstance(value, str) else str(value)


def as_int(value):
    if isinstance(value, float) and value != int(value):
        raise ValueError
    return int(value)


KINDS = {
    "str": as_text,
    "int": as_int,
    "bool": as_bool,
    "list": as_list,
    "dict": as_dict,
    "path": as_path,
}


def run(name, texts, arguments):
    """Run a module of the collection; an exception becomes its answer."""
    try:
        readable = os.access(os.getcwd(), os.R_OK | os.X_OK)
    except OSError:  # it is gone
        readable = False
    if not readable:  # programs such as podman end in a folder that sudo's user cannot enter
        os.chdir("/")
    sys.meta_path.insert(0, Sources(texts))
    sys.modules["ansible.module_utils.basic"] = sys.modules[__name__]
    ARGUMENTS.update(arguments)
    try:
        __import__(f"{COLLECTION}.modules.{name}", fromlist=["main"]).main()
    except Exception as problem:
        said, each = [], problem
        while each is not None and len(said) < 4:
            said.append(str(each) or type(each).__name__)
            each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
        AnsibleModule.answer(
            None, failed=True, msg=": ".join(said), exception=traceback.format_exc()
        )
