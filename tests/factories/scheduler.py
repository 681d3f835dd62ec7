"""What the scheduler makes of selectors and affinity, for tests: where a pod may run, and how much
a node is preferred."""

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def allowed(pod, labels):
    """May the pod run on a node with these labels?"""
    selected = all(labels.get(key) == value for key, value in pod.get("nodeSelector", {}).items())
    required = pod.get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED)
    if required is None:
        return selected
    return selected and any(_holds(term, labels) for term in required["nodeSelectorTerms"])


def score(pod, labels):
    """Return the sum of the weights of the preferences that the node meets."""
    preferred = pod["affinity"]["nodeAffinity"].get(PREFERRED, [])
    assert all(1 <= each["weight"] <= 100 for each in preferred)
    return sum(each["weight"] for each in preferred if _holds(each["preference"], labels))


def _holds(term, labels):
    assert term["matchExpressions"], "an empty term matches no node"
    for each in term["matchExpressions"]:
        assert each["operator"] == "In"
        if labels.get(each["key"]) not in each["values"]:
            return False
    return True
