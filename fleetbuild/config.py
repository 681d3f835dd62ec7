"""Read fleetbuild.yml; report each mistake with its place in the file and what belongs there.

`parse_yaml` and `validate` also serve recipes.
"""

from __future__ import annotations

import difflib
import re
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError, create_model

from fleetbuild.errors import ConfigError, FleetbuildError
from fleetbuild.extension import extensions
from fleetbuild.files import is_there, read_input
from fleetbuild.foreign_settings import folder_of, refuse_foreign_folder
from fleetbuild.models import Config, Inventory
from fleetbuild.models.config import Hook
from fleetbuild.text import is_nested_deeply, yaml_mistake, yaml_value

FILE_NAME = "fleetbuild.yml"
_LARGEST = 16 << 20  # bytes
_MODEL = TypeVar("_MODEL", bound=BaseModel)


def load_config(path: Path | str) -> Config:
    """Return the configuration in this file."""
    path = Path(path)
    try:
        text = read_input(path, _LARGEST).decode()
    except FileNotFoundError:
        raise ConfigError(
            f"{path} does not exist.",
            "Name another file with --config, or write one with: fleetbuild init",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} cannot be read: {_reason(error)}", "It must be a readable UTF-8 text file."
        ) from None
    return parse_config(text, str(path)).within(str(path.parent.absolute()))


def find_config(inventory: str) -> Path | None:
    """Return the path of fleetbuild.yml beside the inventory, or None.

    An inventory directory may hold it, or lie beside it. Raises UsageError if the file may be
    another user's.
    """
    folder = folder_of(inventory)
    source = Path(inventory)
    folders = [folder]
    if is_there(source) and source.is_dir() and inventory not in (".", "./"):
        folders.append(folder.absolute().parent)
    found = next((path for folder in folders if (path := folder / FILE_NAME).exists()), None)
    if found:
        refuse_foreign_folder(inventory, found.parent)
    return found


def base_folder(config: Config, inventory: Inventory) -> Path:
    """Return the folder of fleetbuild.yml, else of the inventory: relative paths start there."""
    return Path(config.folder or folder_of(inventory.source).absolute())


def with_absolute_playbooks(config: Config, folder: Path) -> Config:
    """Return the configuration with absolute paths of its hooks' playbooks, which must exist."""
    hooks = {}
    for name in ("before", "after"):
        hook: Hook | None = getattr(config.rollout, name)
        if hook:
            path = (folder / hook.playbook).expanduser().absolute()
            if not path.is_file():
                raise ConfigError(
                    f"rollout.{name} names the playbook {path}, which does not exist.",
                    "Name a playbook, with a path that starts at the folder of fleetbuild.yml.",
                )
            hooks[name] = hook.model_copy(update={"playbook": str(path)})
    rollout = config.rollout.model_copy(update=hooks)
    return config.model_copy(update={"rollout": rollout})


def parse_config(text: str, source: str = FILE_NAME) -> Config:
    """Return the configuration in this text; an empty text means all defaults."""
    data = parse_yaml(text, source, ConfigError)
    for value in data.values() if isinstance(data, dict) else ():
        if isinstance(value, dict) and not {"hosts", "children"}.isdisjoint(value):
            raise ConfigError(
                f"{source} is an Ansible inventory, not a fleetbuild configuration.",
                "Name it as INVENTORY, without --config.",
            )
    return validate(config_model(), {} if data is None else data, source, ConfigError)


@cache
def config_model() -> type[Config]:
    """Return the model of fleetbuild.yml: the core's keys and the sections of extensions."""
    sections: dict[str, Any] = {
        key: (model, model())
        for extension in extensions()
        for key, model in extension.sections().items()
    }
    if taken := sorted(sections.keys() & Config.model_fields.keys()):
        raise ConfigError(
            f"An extension adds {taken[0]}: to fleetbuild.yml, which is a key of the core.",
            "Uninstall the extension, or ask its authors for another key.",
        )
    return create_model("Config", __base__=Config, __doc__=Config.__doc__, **sections)


class _Loader(yaml.SafeLoader):
    """Refuse a key that a mapping has twice: PyYAML drops the first value without a word."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key, _ in node.value:
            if keys.count(key.value) > 1:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} is there twice", problem_mark=key.start_mark
                )
        return node


def parse_yaml(text: str, source: str, error: type[FleetbuildError]) -> Any:
    """Return the document in this YAML text; a mistake is reported with its line."""
    if is_nested_deeply(text):
        raise error(
            f"{source} has more than 100 brackets open at once.", "Close them, or write blocks."
        )
    try:
        return yaml.load(text, _Loader)  # noqa: S506 (it is a safe one)
    except yaml.MarkedYAMLError as problem:
        raise error(
            f"{source} is not valid YAML{yaml_mistake(problem)}.",
            "Look at that line and the one before it: indentation, colons and quotes.",
        ) from None
    except RecursionError:
        raise error(f"{source} is nested too deeply.", "Nest less.") from None
    except (yaml.YAMLError, ValueError) as problem:
        raise error(
            f"{source} is not valid YAML{yaml_mistake(problem)}.",
            "It must be a plain UTF-8 text file.",
        ) from None


def validate(model: type[_MODEL], data: Any, source: str, error: type[FleetbuildError]) -> _MODEL:
    """Return the model with this data; report the first mistake with its place in the file."""
    if not isinstance(data, dict):
        raise error(
            f"{source} contains {_kind(data)}; keys with values belong there.",
            f"Its keys are: {', '.join(model.model_fields)}.",
        )
    try:
        return model.model_validate(data)
    except ValidationError as problem:
        raise _explained(problem, model, source, error) from None


# pydantic's error types, in the words of someone who writes YAML.
_BELONGS = {
    "tuple_type": "must be a list, such as [this, that]",
    "model_type": "must be keys with values",
    "string_type": "must be a string; put it in quotes",
}


def _explained(
    problem: ValidationError, model: type[BaseModel], source: str, error: type[FleetbuildError]
) -> FleetbuildError:
    # An unknown key explains a missing one beside it, so it is reported first.
    first = min(problem.errors(), key=lambda each: each["type"] != "extra_forbidden")
    *parents, key = [str(part) for part in first["loc"]]
    place = ".".join((*parents, key))
    if first["type"] == "extra_forbidden":
        keys = list(_model_at(model, parents).model_fields)
        near = difflib.get_close_matches(key, keys, n=1)
        return error(
            f"{source}: unknown key {place!r}.",
            f"Did you mean {'.'.join((*parents, near[0]))!r}?"
            if near
            else f"The keys here are: {', '.join(keys)}.",
        )
    if first["type"] == "missing":
        return error(f"{source}: the key {place!r} is missing.", f"Add {place}: to it.")
    reason = _BELONGS.get(first["type"]) or first["msg"].removeprefix("Value error, ").rstrip(".")
    reason = re.sub(r"^Input should be (.*?)(?:, (?:unable|got) .*)?$", r"must be \1", reason)
    field = _model_at(model, parents).model_fields.get(key)
    if first["type"] == "string_pattern_mismatch" and field and field.description:
        reason = f"must be {field.description}"
    value = "empty" if first["input"] is None else yaml_value(first["input"])
    return error(f"{source}: {place} is {value}: {reason}.", f"Correct {place} and try again.")


def _model_at(model: type[BaseModel], parents: list[str]) -> type[BaseModel]:
    """Return the model of the section that these keys lead to."""
    for parent in parents:
        field = model.model_fields.get(parent)
        kind = field.annotation if field else None
        for part in (kind, *get_args(kind)):  # a section, or one that may be missing
            if isinstance(part, type) and issubclass(part, BaseModel):
                model = part
    return model


def _kind(data: object) -> str:
    if data is None:
        return "nothing"
    if isinstance(data, list):
        return "a list"
    return "a string" if isinstance(data, str) else f"the value {yaml_value(data)}"


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not UTF-8 text."
