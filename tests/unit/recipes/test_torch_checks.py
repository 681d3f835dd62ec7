"""What the torch recipe asks of a node, answered by a torch whose answers the test sets."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from fleetbuild.recipes import find_recipe
from fleetbuild.recipes.render import RecipeInput, render_checks
from tests.factories.plans import make_target

KERNELS, CPU = range(2)
FBGEMM = GPU = 2  # FBGEMM's check is there from avx2 on, before the GPUs' check


def checks(
    isa: str, version: str, *sms: str, package: str = "torch", cuda: str | None = None
) -> tuple[str, ...]:
    target = make_target(isa, sms=sms)
    job = RecipeInput(
        package=package, version="2.13.0", wheel_version=version, target=target, cuda=cuda
    )
    return render_checks(find_recipe(package), job)


def run(monkeypatch: pytest.MonkeyPatch, snippet: str, torch: Any) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch)
    exec(compile(snippet, "<check>", "exec"), {})  # noqa: S102


def fake(version: str, **answers: Any) -> Any:
    torch = MagicMock(__version__=version)
    torch.backends.cpu.get_cpu_capability.return_value = answers.get("capability", "DEFAULT")
    told = "  - CPU capability usage: NO AVX\n"
    torch.__config__ = SimpleNamespace(show=lambda: told)
    torch.cuda.get_arch_list.return_value = answers.get("archs", [])
    capabilities = answers.get("gpus", [])
    torch.cuda.device_count.return_value = len(capabilities)
    torch.cuda.get_device_capability.side_effect = lambda number: capabilities[number]
    torch.allclose.return_value = answers.get("right", True)
    return torch


@pytest.mark.parametrize(
    ("isa", "label", "capability", "says"),
    [
        ("x86-64-v2", ".x8664v2", "DEFAULT", None),
        ("avx", ".avx", "NO AVX", None),
        ("avx", ".avx", "AVX2", "runs its AVX2 kernels here, and avx promises DEFAULT"),
        ("avx2", ".avx2", "AVX2", None),
        ("avx2", ".avx2", "DEFAULT", "runs its DEFAULT kernels here, and avx2 promises AVX2"),
        ("avx2", ".avx2", "AVX512", "runs its AVX512 kernels"),
        ("avx512bf16", ".avx512bf16", "AVX512", None),
        ("avx512", ".avx512", "AVX2", "and avx512 promises AVX512"),
        ("avx2", "", "AVX512", None),  # a published wheel, on a node that has more
        ("avx512", "", "AVX2", "and avx512 promises AVX512"),
        ("armv8.2", ".armv8.2", "DEFAULT", None),
        ("armv8.2", ".armv8.2", "SVE256", "armv8.2 promises DEFAULT"),
    ],
)
def test_the_check_compares_torchs_kernels_with_the_target(
    monkeypatch: pytest.MonkeyPatch, isa: str, label: str, capability: str, says: str | None
) -> None:
    version = f"2.13.0+cpu{label}"
    snippet, torch = checks(isa, version)[KERNELS], fake(version, capability=capability)
    if says is None:
        run(monkeypatch, snippet, torch)
        return
    with pytest.raises(RuntimeError, match=says):
        run(monkeypatch, snippet, torch)


def test_the_check_fails_with_another_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    snippet = checks("avx", "2.13.0+cpu.avx")[KERNELS]
    with pytest.raises(RuntimeError, match=r"torch 2\.13\.0\+cpu is installed instead of"):
        run(monkeypatch, snippet, fake("2.13.0+cpu"))


def test_the_kernels_of_an_old_torch_are_read_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fake("2.0.1+cu117.sm35.avx")
    torch.backends = SimpleNamespace()
    run(monkeypatch, checks("avx", "2.0.1+cu117.sm35.avx", "3.5")[KERNELS], torch)


@pytest.mark.parametrize(
    ("sms", "label", "built", "says"),
    [
        (["8.6"], "sm86", (["sm_86"], [(8, 6)]), None),
        (["8.6"], "sm86", (["sm_80"], [(8, 6)]), r"no code for SM 8\.6, only sm_80"),
        (["8.0", "8.6"], "sm80.sm86", (["sm_80", "sm_86"], [(8, 6), (8, 0)]), None),
        (
            ["8.6"],
            "sm86",
            (["sm_86"], [(7, 5), (3, 7)]),
            "none of the GPUs here",
        ),
        (["8.7"], "sm87", (["sm_87"], [(8, 6)]), "none of the GPUs here"),  # a Jetson's alone
        (["12.0"], "sm120", (["sm_120", "compute_120"], [(12, 1)]), None),
        (["9.0"], "sm90", (["sm_90a", "sm_90"], [(9, 0)]), None),
        (["10.3"], "sm103", (["sm_103a"], [(10, 3)]), None),
        (["12.1"], "sm121", (["sm_121a"], [(12, 1)]), None),
        (["12.0"], "", (["sm_120a"], [(12, 1)]), r"no code for SM 12\.1 of GPU 0"),
        (["8.6"], "", (["sm_80", "sm_90"], [(8, 6)]), None),  # a published wheel serves it
        (["10.0"], "", (["sm_80", "compute_90"], [(10, 0)]), None),  # by PTX
        (["7.5"], "", (["sm_80", "compute_80"], [(7, 5)]), r"no code for SM 7\.5 of GPU 0"),
    ],
)
def test_the_check_needs_code_for_every_gpu(
    monkeypatch: pytest.MonkeyPatch,
    sms: list[str],
    label: str,
    built: tuple[list[str], list[tuple[int, int]]],
    says: str | None,
) -> None:
    archs, gpus = built
    version = f"2.13.0+cu130.{label}.avx" if label else "2.13.0+cu130"
    snippet, torch = checks("avx", version, *sms)[GPU], fake(version, archs=archs, gpus=gpus)
    if says is None:
        run(monkeypatch, snippet, torch)
        assert torch.allclose.call_count == 2 * len(gpus)
        return
    with pytest.raises(RuntimeError, match=says):
        run(monkeypatch, snippet, torch)


def test_a_gpu_outside_of_the_target_is_mentioned(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    version = "2.13.0+cu130.sm100.avx"
    torch = fake(version, archs=["sm_100"], gpus=[(3, 7), (10, 0)])
    run(monkeypatch, checks("avx", version, "10.0")[GPU], torch)
    assert "GPU 0 (SM 3.7) is left out: these wheels are for SM 10.0" in capsys.readouterr().out
    assert [call.args for call in torch.device.call_args_list] == [("cuda", 1)]


def test_torchvision_leaves_out_the_same_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fake("2.13.0+cu130.sm100.avx", gpus=[(3, 7), (10, 0)])
    monkeypatch.setitem(sys.modules, "torchvision", torch.vision)
    torch.vision.ops.nms.return_value.tolist.return_value = [0, 2]
    (snippet,) = checks("avx", "0.28.0+cu130.sm100.avx", "10.0", package="torchvision")
    run(monkeypatch, snippet, torch)
    assert [call.args for call in torch.tensor.return_value.to.call_args_list[::2]] == [
        ("cpu",),
        ("cuda:1",),
    ]


@pytest.mark.parametrize(
    ("package", "call", "right"),
    [
        ("torch-scatter", "scatter_max", [[3.0, 5.0]]),
        ("torch-cluster", "knn", [[0], [2]]),
    ],
)
def test_extensions_are_checked_on_every_gpu_with_code(
    monkeypatch: pytest.MonkeyPatch, package: str, call: str, right: list[list[float]]
) -> None:
    torch = fake("2.1.2", gpus=[(7, 5), (8, 0)])
    monkeypatch.setitem(sys.modules, package.replace("-", "_"), torch.extension)
    (snippet,) = checks("avx", "2.1.2+cu130.sm80.avx", "8.0", package=package)
    answer = getattr(torch.extension, call).return_value
    answer.tolist.return_value = right
    answer.__getitem__.return_value.tolist.return_value = right[0]
    run(monkeypatch, snippet, torch)
    devices = [each.args for each in torch.tensor.return_value.to.call_args_list]
    assert devices == [("cpu",)] * 2 + [("cuda:1",)] * 2
    answer.tolist.return_value = answer.__getitem__.return_value.tolist.return_value = []
    with pytest.raises(RuntimeError, match="what it computes on cpu is wrong"):
        run(monkeypatch, snippet, torch)
    assert checks("avx", "1.0+cpu.avx", package="torch-sparse") == ()


@pytest.mark.parametrize(
    ("gpus", "right", "says"),
    [
        ([(7, 5), (8, 0)], True, None),
        ([(7, 5), (8, 0)], False, "attention on GPU 1 is wrong"),
        ([(7, 5)], True, r"none of the GPUs here runs code for SM 8\.0"),
    ],
)
def test_flash_attention_is_checked_on_every_gpu_with_its_code(
    monkeypatch: pytest.MonkeyPatch, gpus: list[tuple[int, int]], right: bool, says: str | None
) -> None:
    version = "2.8.3+cu130.sm80.avx"
    torch = fake(version, gpus=gpus, right=right)
    torch.randn.return_value = [MagicMock()] * 3
    monkeypatch.setitem(sys.modules, "flash_attn", torch.flash)
    (snippet,) = checks("avx", version, "8.0", package="flash-attn")
    if says is None:
        run(monkeypatch, snippet, torch)
        assert torch.randn.call_args.kwargs["device"] == "cuda:1"
        return
    with pytest.raises(RuntimeError, match=says):
        run(monkeypatch, snippet, torch)


def test_a_gpu_that_computes_wrongly_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    version = "2.13.0+cu130.sm86.avx"
    torch = fake(version, archs=["sm_86"], gpus=[(8, 6)], right=False)
    with pytest.raises(RuntimeError, match="matrix product on GPU 0 is wrong"):
        run(monkeypatch, checks("avx", version, "8.6")[GPU], torch)


def test_the_check_of_a_cpu_wheel_ignores_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fake("2.13.0+cpu.avx")
    run(monkeypatch, checks("avx", "2.13.0+cpu.avx")[GPU], torch)
    assert not torch.cuda.init.called


@pytest.mark.parametrize(
    ("isa", "engines", "says"),
    [
        ("avx2", ["qnnpack", "x86", "fbgemm"], None),
        ("avx2", ["qnnpack", "onednn"], r"torch has no FBGEMM, only qnnpack, onednn"),
        ("avx512", [], "no FBGEMM"),
    ],
)
def test_the_check_needs_fbgemm_if_the_recipe_builds_it(
    monkeypatch: pytest.MonkeyPatch, isa: str, engines: list[str], says: str | None
) -> None:
    snippet, torch = checks(isa, f"2.8.0+cpu.{isa}")[FBGEMM], fake(f"2.8.0+cpu.{isa}")
    torch.backends.quantized.supported_engines = engines
    if says is None:
        run(monkeypatch, snippet, torch)
        return
    with pytest.raises(RuntimeError, match=says):
        run(monkeypatch, snippet, torch)


def test_without_avx2_the_check_does_not_need_fbgemm() -> None:
    assert not [snippet for snippet in checks("avx", "2.8.0+cpu.avx") if "fbgemm" in snippet]


def compiled(monkeypatch: pytest.MonkeyPatch, answer: object, *, right: bool = True) -> None:
    """The check of torch.compile on a Hopper, where the compiled function gives this answer."""
    version = "2.13.0+cu130.sm90.avx"
    torch = fake(version, gpus=[(9, 0)], right=right)
    torch.compile.return_value.side_effect = [answer]
    run(monkeypatch, checks("avx", version, "9.0", cuda="13.0")[-1], torch)


def test_torch_compile_is_tried_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(monkeypatch, "result")
    with pytest.raises(RuntimeError, match=r"torch\.compile computes something else on GPU 0"):
        compiled(monkeypatch, "result", right=False)


def test_without_a_compiler_the_check_says_that_torch_compile_does_not_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled(monkeypatch, OSError("Failed to find C compiler.\nSpecify it."))
    assert capsys.readouterr().out == (
        "torch.compile does not work on GPU 0: OSError: Failed to find C compiler.\n"
    )


def test_torch_compile_is_not_tried_on_a_cpu_node_nor_before_volta() -> None:
    for sms in ((), ("6.1",)):
        found = checks("avx", "2.13.0+cu126.avx", *sms, cuda="12.6" if sms else None)
        assert not [snippet for snippet in found if "torch.compile" in snippet]
