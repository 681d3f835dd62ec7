"""One small wheel beside NVIDIA's cuobjdump; `python -m benchmarks.cuobjdump` has the rest."""

import pytest
import yaml

from benchmarks.cuobjdump import HERE, Tool, compare_wheel, download

pytestmark = pytest.mark.network


def test_the_reader_finds_what_cuobjdump_lists(tmp_path):
    wanted = yaml.safe_load(HERE.with_suffix(".yml").read_text("utf-8"))
    tool = Tool(tmp_path, wanted["tools"][0])
    compared = list(compare_wheel([tool], download(wanted["wheels"][0], tmp_path)))
    assert sum(each.kernels for each in compared) > 100
    assert [each.differences for each in compared] == [()] * len(compared)
