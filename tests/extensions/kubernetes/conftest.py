"""A real API server for a module, where KUBEBUILDER_ASSETS names its programs."""

from collections.abc import Iterator

import pytest

from tests.factories import real_api


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_api.RealApi]:
    with real_api.serving(tmp_path_factory.mktemp("api")) as api:
        yield api
