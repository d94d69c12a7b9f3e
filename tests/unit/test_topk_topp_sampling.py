"""The sampler without a sort against a stable sort: ties, order, masked tokens and few tokens could mislead it."""

import sys
import types
from pathlib import Path

import pytest
import torch
from interpreter import interpret
from torch import Tensor

from ch16.baseline_topk_topp_sampling import workload as topk_topp_sampling
from ch16.peer_topk_topp_sampling__flashinfer import prepare as prepare_flashinfer
from common.python.workload import Draw

ROOT = Path(__file__).resolve().parents[2]
INTERPRETED = """
import torch
from ch16.optimized_topk_topp_sampling import K, P, prepare

CASES = {
    "noise": (17011, 1024, 200, 128, 41), "ties": (17011, 1501), "equal": (17011, 70), "greater at the end": (17011,),
    "ascending": (5003,), "descending": (5003,), "negative": (9001,), "ten of all": (17011,),
}


def check(case, vocabulary):
    generator = torch.Generator().manual_seed(7)
    normal, gumbel = torch.randn(3, vocabulary, generator=generator), torch.empty(3, vocabulary)
    gumbel = -gumbel.exponential_(generator=generator).log()
    late, masked = torch.zeros_like(normal), torch.full_like(normal, -torch.inf)
    late[:, -9:] = 3 + normal[:, :9]
    masked[:, torch.randperm(vocabulary, generator=generator)[:10]] = normal[:, :10]
    logits = {
        "noise": 2 * normal,
        "ties": (2 * normal).round(),
        "equal": torch.zeros_like(normal),
        "greater at the end": late,
        "ascending": torch.arange(vocabulary).float().expand(3, -1) / 100,
        "descending": -torch.arange(vocabulary).float().expand(3, -1) / 100,
        "negative": -100 - normal.abs(),
        "ten of all": masked,
    }[case].contiguous()
    wanted = []
    for row, noise in zip(logits, gumbel):
        order = row.argsort(descending=True, stable=True)[:K]  # of equals the first
        shares = row[order].double().softmax(0)
        before = shares.cumsum(0) - shares
        noise += 50.0  # whoever keeps one token more chooses that one, most likely
        noise[order[before < P]] -= 50.0
        noise[order[(before - P).abs() < 1e-5]] = -100.0  # what rounding would decide is never chosen
        kept = order[(before < P) & (row[order] > -torch.inf)]
        wanted.append(kept[(row + noise)[kept].argmax()])
    assert torch.equal(prepare(logits, gumbel)(), torch.stack(wanted)), (case, vocabulary)


for case, sizes in CASES.items():
    for vocabulary in sizes:
        check(case, vocabulary)
"""


def test_the_peer_chooses_rightly_with_filters_that_do_what_flashinfer_says_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As FlashInfer documents: all but the top k become -inf; shares that top p drops become 0, the others sum to 1."""

    def top_k_mask_logits(logits: Tensor, top_k: int) -> Tensor:
        return logits.masked_fill(logits < logits.topk(top_k).values[:, -1:], -torch.inf)

    def top_p_renorm_probs(probs: Tensor, top_p: float) -> Tensor:
        ordered, order = probs.sort(descending=True)
        kept = ordered * (ordered.cumsum(-1) - ordered < top_p)
        return torch.zeros_like(probs).scatter(1, order, kept / kept.sum(-1, keepdim=True))

    given = types.SimpleNamespace(top_k_mask_logits=top_k_mask_logits, top_p_renorm_probs=top_p_renorm_probs)
    monkeypatch.setitem(sys.modules, "flashinfer", types.ModuleType("flashinfer"))
    monkeypatch.setitem(sys.modules, "flashinfer.sampling", given)
    inputs = topk_topp_sampling.inputs(Draw(torch.device("cpu"), 0, tmp_path), **topk_topp_sampling.sizes["test"])
    before = inputs["logits"].clone()
    assert torch.equal(prepare_flashinfer(**inputs)(), topk_topp_sampling.reference(**inputs))
    assert torch.equal(inputs["logits"], before)


def test_the_sampler_keeps_what_a_stable_sort_keeps() -> None:
    interpret(INTERPRETED)
