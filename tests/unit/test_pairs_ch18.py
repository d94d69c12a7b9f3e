"""Attention's references against torch's own, kernels at awkward sizes, and documents' tiles against all pairs."""

from pathlib import Path
from typing import Any

import pytest
import torch
from interpreter import interpret
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask
from torch.nn.functional import scaled_dot_product_attention

from ch18.baseline_flash_forward import workload as flash_forward
from ch18.baseline_flex_document_mask import lengths
from ch18.baseline_flex_document_mask import workload as flex_document_mask
from ch18.baseline_split_kv_decode import workload as split_kv_decode
from ch18.optimized_flex_document_mask import BLOCK, block_mask
from common.python.workload import Draw, Workload

ROOT = Path(__file__).resolve().parents[2]


def drawn(workload: Workload, folder: Path, **size: Any) -> dict[str, Tensor]:
    inputs = workload.inputs(Draw(torch.device("cpu"), 0, folder), **(size or workload.sizes["test"]))
    return {name: x.double() if x.is_floating_point() else x for name, x in inputs.items()}


@pytest.mark.parametrize("workload", [flash_forward, split_kv_decode], ids=["flash_forward", "split_kv_decode"])
def test_every_query_attends_to_all_keys_of_its_head(workload: Workload, tmp_path: Path) -> None:
    inputs = drawn(workload, tmp_path)
    wanted = scaled_dot_product_attention(inputs["q"], inputs["k"], inputs["v"])
    torch.testing.assert_close(workload.reference(**inputs), wanted)


def test_a_token_attends_to_what_came_before_it_in_its_document(tmp_path: Path) -> None:
    inputs = drawn(flex_document_mask, tmp_path)
    document = inputs["document"]
    mask = (document[:, None] == document).tril()
    wanted = scaled_dot_product_attention(inputs["q"], inputs["k"], inputs["v"], attn_mask=mask)
    torch.testing.assert_close(flex_document_mask.reference(**inputs), wanted)


def test_documents_are_packed_in_another_order_each_time_and_always_of_the_same_lengths(tmp_path: Path) -> None:
    size = flex_document_mask.sizes["test"]
    drawings = [
        flex_document_mask.inputs(Draw(torch.device("cpu"), seed, tmp_path), **size)["document"] for seed in range(5)
    ]
    found = [tuple(document.unique_consecutive(return_counts=True)[1].tolist()) for document in drawings]
    assert {tuple(sorted(each)) for each in found} == {tuple(lengths(size["tokens"], size["documents"]))}
    assert sum(lengths(size["tokens"], size["documents"])) == size["tokens"]
    assert len(set(found)) > 1


@pytest.mark.parametrize(("tokens", "documents"), [(331, 5), (1024, 3), (1000, 7), (128, 2), (129, 1), (4096, 9)])
def test_tiles_found_from_beginnings_are_those_found_from_all_pairs(
    tokens: int, documents: int, tmp_path: Path
) -> None:
    document = drawn(flex_document_mask, tmp_path, heads=1, tokens=tokens, width=1, documents=documents)["document"]

    def visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (document[query] == document[key]) & (key <= query)

    wanted = create_block_mask(visible, None, None, tokens, tokens, device="cpu")
    found = BlockMask.from_kv_blocks(*block_mask(document), BLOCK, visible, (tokens, tokens))
    assert torch.equal(found.to_dense(), wanted.to_dense())
    rows = tokens // BLOCK  # torch takes a last tile that is not full for one that needs the mask
    assert torch.equal(found.full_kv_num_blocks[..., :rows], wanted.full_kv_num_blocks[..., :rows])
    for row, count in enumerate(wanted.full_kv_num_blocks[0, 0, :rows]):
        assert torch.equal(found.full_kv_indices[0, 0, row, :count], wanted.full_kv_indices[0, 0, row, :count])


def test_a_mix_of_lengths_keeps_a_sixth_of_the_causal_pairs_at_bench_size() -> None:
    size = flex_document_mask.sizes["bench"]
    pairs = flex_document_mask.cost(**size).flops / (4 * size["heads"] * size["width"])
    assert 0.17 < pairs / (size["tokens"] * (size["tokens"] + 1) / 2) < 0.19


INTERPRETED = """
import importlib, sys, torch
from pathlib import Path
from common.python.workload import Draw
for name, rung, sizes in (
    ("flash_forward", "", [{"heads": 2, "tokens": n, "width": 32} for n in (1, 64, 129)]),
    *(
        ("split_kv_decode", rung, [dict(requests=1, heads=2, group=3, keys=n, width=16) for n in (1, 1024, 2049)])
        for rung in ("", "__single_pass")
    ),
):
    workload = importlib.import_module(f"ch18.baseline_{name}").workload
    variant = importlib.import_module(f"ch18.optimized_{name}{rung}")
    for size in sizes:
        inputs = workload.inputs(Draw(torch.device("cpu"), 0, Path(sys.argv[1])), dtype="float16", **size)
        wanted = workload.reference(**{name: x.double() for name, x in inputs.items()})
        step = variant.prepare(**inputs)
        for _ in range(2):  # the second finds what the first left behind
            out = step()
            error = (out.double() - wanted).norm() / wanted.norm()
            assert error < workload.tolerance, (name, rung, size, error)
            out.fill_(float("nan"))
"""


def test_kernels_are_right_where_tiles_and_parts_just_fit_and_just_do_not(tmp_path: Path) -> None:
    interpret(INTERPRETED, tmp_path)
