"""What nfd-master makes of NodeFeatureRules, for tests: the labels of a node with these features.

After pkg/apis/nfd/nodefeaturerule and processNodeFeatureRule of node-feature-discovery: rules are
evaluated in order, and what each says is seen by those after it as rule.matched. A feature that the
node does not have at all matches nothing, not even DoesNotExist.
"""

import re
from dataclasses import dataclass, field

from packaging.version import Version


@dataclass
class Features:
    """A node's features, as nfd-worker reports them: three kinds, by name."""

    flags: dict = field(default_factory=dict)  # name -> set
    attributes: dict = field(default_factory=dict)  # name -> map
    instances: dict = field(default_factory=dict)  # name -> list of maps

    def __contains__(self, name):
        return name in self.flags or name in self.attributes or name in self.instances


class BrokenRule(Exception):
    """nfd-master logs it and goes on; here it is a mistake."""


def labels_of(objects, features):
    """The labels that these NodeFeatureRules give a node."""
    labels = {}
    matched = {}
    for each in sorted(objects, key=lambda each: each["metadata"]["name"]):
        for rule in each["spec"]["rules"]:
            if matches(rule, features):
                labels |= rule.get("labels", {})
                matched |= {**rule.get("labels", {}), **rule.get("vars", {})}
            features.attributes["rule.matched"] = matched  # from the first rule on, matched or not
    return labels


def matches(rule, features):
    """Does this rule match a node with these features?"""
    any_of, all_of = rule.get("matchAny", []), rule.get("matchFeatures", [])
    return (
        not any_of or any(_terms(each["matchFeatures"], features) for each in any_of)
    ) and _terms(all_of, features)


def _terms(terms, features):
    return all(_term(term, features) for term in terms)


def _term(term, features):
    name = term["feature"].lower()
    if name not in features:
        return False
    if "matchName" in term:
        return _names(term["matchName"], name, features)
    expressions = term["matchExpressions"]
    keys, values = features.flags.get(name), features.attributes.get(name)
    here = (keys is not None or values is not None) and all(
        _key_or_value(key, how, keys, values) for key, how in expressions.items()
    )
    return here or any(
        all(holds(how, key in each, each.get(key)) for key, how in expressions.items())
        for each in features.instances.get(name, [])
    )


def _key_or_value(key, how, keys, values):
    answers = []
    if keys is not None:
        answers.append(holds(how, key in keys, None))
    if values is not None:
        answers.append(holds(how, key in values, values.get(key)))
    return all(answers) if how["op"] == "DoesNotExist" else any(answers)


def _names(how, name, features):
    names = [*features.flags.get(name, ()), *features.attributes.get(name, ())]
    names += [key for each in features.instances.get(name, []) for key in each]
    return any(holds(how, True, each) for each in names)


_ARGUMENTS = {
    "In": range(1, 10**6),
    "NotIn": range(1, 10**6),
    "InRegexp": range(1, 10**6),
    **dict.fromkeys(("Gt", "Ge", "Lt", "Le"), (1,)),
    **dict.fromkeys(("GtLt", "GeLe"), (2,)),
    **dict.fromkeys(("Exists", "DoesNotExist", "IsTrue", "IsFalse"), (0,)),
}


def holds(how, present, value):
    """Does one expression hold for an element that is there, or is not? A flag has no value."""
    op, wanted = how["op"], how.get("value", [])
    if op not in _ARGUMENTS or len(wanted) not in _ARGUMENTS[op]:
        raise BrokenRule(how)
    if op in ("Exists", "DoesNotExist"):
        return present == (op == "Exists")
    if not present or value is None:
        return False
    match op:
        case "In" | "NotIn":
            return (value in wanted) == (op == "In")
        case "InRegexp":
            return any(re.search(each, value) for each in wanted)
        case "IsTrue" | "IsFalse":
            return value == op.removeprefix("Is").lower()
    return _compares(op, *[_number(each, how) for each in (value, *wanted)])


def _compares(op, value, low, high=None):
    return {
        "Gt": lambda: value > low,
        "Ge": lambda: value >= low,
        "Lt": lambda: value < low,
        "Le": lambda: value <= low,
        "GtLt": lambda: low < value < high,
        "GeLe": lambda: low <= value <= high,
    }[op]()


def _number(text, how):
    try:
        return Version(text) if how.get("type") == "version" else int(text)
    except ValueError as problem:
        raise BrokenRule(how) from problem
