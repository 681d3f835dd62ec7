"""NodeFeatureRules, by which Node Feature Discovery gives every node its hardware class.

Rules of one object are evaluated in order, and each sees the results of earlier ones in the feature
rule.matched. The best class comes first, and each rule applies only if no class was set, so a node
never gets two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fleetbuild.extensions.kubernetes.labels.classes import HardwareClass, classes
from fleetbuild.extensions.kubernetes.labels.features import gfd_labels, rung_flags
from fleetbuild.extensions.kubernetes.labels.node_labels import check_domain, label_key
from fleetbuild.extensions.kubernetes.manifests.names import dns_label, label_value, object_head
from fleetbuild.extensions.kubernetes.manifests.yaml_dump import FlowStyle, Note, dump
from fleetbuild.hardware.gpus import devices_of_sm, sm_order
from fleetbuild.models import Plan

FILE = "nodefeaturerule.yaml"
_NVIDIA = "10de"

_HEADER = """\
By these rules Node Feature Discovery gives every node its hardware class, also nodes that join
later. They need NFD 0.14 or newer in its default configuration:
    kubectl apply -f nodefeaturerule.yaml

Each node gets exactly one class, the best that it meets, or none. Rules are evaluated in this
order, the best class first, and each applies only if no earlier rule set a class. Results of
earlier rules are variables (rule.matched). The first rule sets all of them, so values of another
object are never read.

The rules ask for CPUID flags that NFD hides from labels; rules see all flags."""

_GPU_HEADER = """

The rules identify GPUs by PCI device id, which nfd-worker must publish (no pci.device in its
setting core.noPublishFeatures). For unknown ids they use the feature file of GPU Feature Discovery,
which it writes by default. A GPU counts only if its driver is loaded; until then its node gets a
class without GPU. So does a node with a GPU for whose SM the wheels have no code, because a pod
cannot choose its GPU. GPU Feature Discovery describes one GPU per node: for nodes with several
kinds of unknown id, write the labels with fleetbuild (fleetbuild emit nfd)."""

_START = "No result yet. A rule without matchers always matches."
_TOLD = "A feature file written by fleetbuild sets the class already; the probe knows more."
_DRIVER = (
    "The kernel module of NVIDIA's driver, proprietary or open, on the node or in a container."
)
_OTHER = "A GPU (PCI class 03) for which no class here has code, or whose SM is not known."
_GFD = "GPUs that the rules above do not know, by what the driver told GPU Feature Discovery."


def node_feature_rule(plan: Plan) -> str:
    """Return nodefeaturerule.yaml: the classes of a plan's groups as NFD rules."""
    check_domain(plan.label_domain)
    ours = classes(plan)
    name = "fleetbuild-classes"
    if plan.release != "default":
        name += "-" + dns_label(plan.release, 40)
    document = {
        **object_head("nfd.k8s-sigs.io/v1alpha1", "NodeFeatureRule", name=name),
        "spec": {"rules": list(_Rules(plan, ours).all()) if ours else []},
    }
    return dump(document, _HEADER + (_GPU_HEADER if any(class_.sms for class_ in ours) else ""))


class _Rules:
    """The rules for these classes.

    Variables carry our domain, because all objects share the feature.
    """

    def __init__(self, plan: Plan, ours: Sequence[HardwareClass]) -> None:
        self.plan, self.ours = plan, ours
        self.sms = sorted({sm for class_ in ours for sm in class_.sms}, key=sm_order)

    def all(self) -> Iterator[object]:
        """Yield all rules, in the order of their evaluation."""
        yield self._start()
        yield self._told()
        if self.sms:
            yield from self._gpus()
        yield from map(self._class, self.ours)

    def _start(self) -> object:
        gpu = ("driver", *map(_sm, self.sms), "other-gpu") if self.sms else ()
        return Note({"name": "start", "vars": self._set("false", "classed", *gpu)}, _START)

    def _told(self) -> object:
        key = label_key(self.plan.label_domain, "class", self.plan.release)
        matches = [_feature("local.label", {key: _op("Exists")})]
        return Note(self._rule("told by a feature file", ("classed",), matches), _TOLD)

    def _gpus(self) -> Iterator[object]:
        loaded = _feature("kernel.loadedmodule", {"nvidia": _op("Exists")})
        yield Note(self._rule("driver", ("driver",), [loaded]), _DRIVER)
        for sm in self.sms:
            if devices := devices_of_sm(sm):
                yield self._rule(f"SM {sm}", (_sm(sm),), [_device("In", devices)])
        ids = sorted(device for sm in self.sms for device in devices_of_sm(sm))
        display = {"class": FlowStyle(_op("InRegexp", ["^03"]))}
        other = _device("NotIn", ids, **display)
        yield Note(self._rule("another GPU", ("other-gpu",), [other]), _OTHER)
        for number, sm in enumerate(self.sms):
            yield Note(self._by_gfd(sm), _GFD) if number == 0 else self._by_gfd(sm)

    def _by_gfd(self, sm: str) -> Mapping[str, Any]:
        says = {key: _op("In", [value]) for key, value in gfd_labels(sm).items()}
        none = self._are("IsFalse", *map(_sm, self.sms))
        matches = [_feature("local.label", says), _feature("rule.matched", none)]
        rule = self._rule(f"SM {sm} by GPU Feature Discovery", ("driver", _sm(sm)), matches)
        # The GPU is not another one, now that it is known.
        return {**rule, "vars": {**rule["vars"], **self._set("false", "other-gpu")}}

    def _class(self, each: HardwareClass) -> object:
        flags = {flag: _op("Exists") for flag in rung_flags(each.rung)}
        state = self._are("IsFalse", "classed")
        rule: dict[str, Any] = {
            "name": f"class {each.name}",
            "labels": {
                self._key("class"): label_value(each.name),
                self._key("isa"): label_value(each.rung.name),
            },
            "vars": self._set("true", "classed"),
        }
        if each.sms:
            foreign = [_sm(sm) for sm in self.sms if sm not in each.sms]
            state |= self._are("IsTrue", "driver") | self._are("IsFalse", "other-gpu", *foreign)
        if len(each.sms) == 1:
            state |= self._are("IsTrue", _sm(each.sms[0]))
        matches = [_feature("cpu.cpuid", flags), _feature("rule.matched", state)]
        if len(each.sms) > 1:
            rule["matchAny"] = Note(
                [
                    {"matchFeatures": [_feature("rule.matched", self._are("IsTrue", _sm(sm)))]}
                    for sm in each.sms
                ],
                "At least one of them: the wheels hold code for each.",
            )
        return {**rule, "matchFeatures": matches}

    def _rule(self, name: str, found: Sequence[str], matches: Sequence[object]) -> dict[str, Any]:
        return {"name": name, "vars": self._set("true", *found), "matchFeatures": matches}

    def _set(self, value: str, *variables: str) -> dict[str, str]:
        return {self._variable(name): value for name in variables}

    def _are(self, op: str, *variables: str) -> dict[str, object]:
        return {self._variable(name): _op(op) for name in variables}

    def _variable(self, name: str) -> str:
        return f"{self.plan.label_domain}/{name}"

    def _key(self, name: str) -> str:
        return label_key(self.plan.label_domain, name, self.plan.release)


def _sm(sm: str) -> str:
    return "sm" + sm.replace(".", "")


def _device(op: str, ids: Sequence[str], **expressions: object) -> dict[str, object]:
    """Return a matcher for NVIDIA devices by id; the many ids stand on lines of their own."""
    device = {"device": {"op": op, "value": FlowStyle(ids)}} if ids else {}
    vendor = {"vendor": FlowStyle(_op("In", [_NVIDIA]))}
    return {"feature": "pci.device", "matchExpressions": {**vendor, **expressions, **device}}


def _feature(name: str, expressions: Mapping[str, object]) -> dict[str, object]:
    return {"feature": name, "matchExpressions": FlowStyle(expressions)}


def _op(op: str, value: Sequence[str] = ()) -> dict[str, object]:
    return {"op": op, "value": value} if value else {"op": op}
