"""What bitsandbytes computes on a GPU, beside the CPU and full precision. Run by test_gpu.py."""

from __future__ import annotations

import sys

import bitsandbytes
import torch
from bitsandbytes import functional


def apart(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return how far two tensors are from each other, as a part of the second one's size."""
    found, wanted = found.detach().float().cpu(), wanted.detach().float().cpu()
    return float((found - wanted).norm() / wanted.norm())


def expect(what: str, value: float, most: float) -> None:
    """Print a measured value; end where it is larger than it may be."""
    print(f"{what}: {value:.5f}, at most {most}")  # noqa: T201
    if not value <= most:
        sys.exit(f"{what} is {value}")


def round_trips(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what 8-bit values and NF4 make of the same random numbers."""
    given = torch.randn(512, 1024, generator=torch.Generator().manual_seed(1)).to(device)
    quantised, state = functional.quantize_blockwise(given)
    eight = functional.dequantize_blockwise(quantised, state)
    packed, state4 = functional.quantize_4bit(given, blocksize=64, quant_type="nf4")
    four = functional.dequantize_4bit(packed, state4)
    expect(f"8-bit values on {device}, mean error", (eight - given).abs().mean().item(), 0.02)
    expect(f"NF4 on {device}, mean error", (four - given).abs().mean().item(), 0.09)
    return eight, four


def layers(device: str) -> None:
    """Compare layers with quantised weights with a layer of full precision."""
    torch.manual_seed(2)
    full = torch.nn.Linear(1024, 512)
    given = torch.randn(64, 1024)
    wanted = full(given)
    on_cpu = bitsandbytes.nn.Linear4bit(1024, 512, compute_dtype=torch.float32, quant_type="nf4")
    on_gpu = bitsandbytes.nn.Linear4bit(1024, 512, compute_dtype=torch.float16, quant_type="nf4")
    for layer in (on_cpu, on_gpu):
        layer.load_state_dict(full.state_dict())
    on_cpu, on_gpu = on_cpu.to("cpu"), on_gpu.to(device)
    four = on_gpu(given.to(device, torch.float16))
    expect("Linear4bit beside full precision", apart(four, wanted), 0.15)
    weight = functional.dequantize_4bit(on_gpu.weight.data, on_gpu.weight.quant_state)
    same = torch.nn.functional.linear(given, weight.float().cpu(), full.bias)
    expect("Linear4bit beside its own weights in full precision", apart(four, same), 0.005)
    one = on_gpu(given[:1].to(device, torch.float16))  # a kernel of its own
    expect("Linear4bit for one row", apart(one, same[:1]), 0.005)
    if on_cpu.weight.quant_state is not None:
        expect("Linear4bit beside the CPU's", apart(four, on_cpu(given)), 0.02)
    eight = bitsandbytes.nn.Linear8bitLt(1024, 512, has_fp16_weights=False)
    eight.load_state_dict(full.state_dict())
    eight = eight.to(device)
    found = eight(given.to(device, torch.float16))
    expect("Linear8bitLt beside full precision", apart(found, wanted), 0.05)


def training(device: str) -> None:
    """Compare 20 steps of Adam with 8-bit state with torch's own."""
    ends = []
    for optimiser in (torch.optim.Adam, bitsandbytes.optim.Adam8bit):
        torch.manual_seed(3)
        layer = torch.nn.Linear(256, 256).to(device)
        given = torch.randn(128, 256, device=device)
        steps = optimiser(layer.parameters(), lr=0.01)
        for _ in range(20):
            steps.zero_grad()
            loss = (layer(given) - given).square().mean()
            loss.backward()
            steps.step()
        ends.append(loss.item())
    print("losses after 20 steps of Adam and of Adam8bit:", *ends)  # noqa: T201
    expect("Adam8bit beside Adam", abs(ends[1] - ends[0]) / ends[0], 0.1)


def main() -> None:
    """Compute on the device that is named, or the GPU."""
    device = sys.argv[1] if sys.argv[1:] else "cuda"
    name = torch.cuda.get_device_name() if device == "cuda" else device
    print(f"bitsandbytes {bitsandbytes.__version__}, torch {torch.__version__}, {name}")  # noqa: T201
    there, here = round_trips(device), round_trips("cpu")
    expect("8-bit values beside the CPU's", apart(there[0], here[0]), 0.005)
    expect("NF4 beside the CPU's", apart(there[1], here[1]), 0.02)
    layers(device)
    training(device)


if __name__ == "__main__":
    main()
