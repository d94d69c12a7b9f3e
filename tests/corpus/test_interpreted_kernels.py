"""Kernels whose fault the proof on a CPU cannot see, in Triton's interpreter: each program holds what it checks.

The interpreter must be chosen before triton is imported: hence another process.
"""

import json
import os
import subprocess
import sys

from changed import ROOT, nightly_unless_changed

# torch is imported once for all programs, each of which runs in a fork.
EACH = """
import json, os, sys
import torch, triton

for name, (program, cases) in json.loads(sys.argv[1]).items():
    if os.fork() == 0:
        for case in cases:
            print(name, "with the arguments", *case, file=sys.stderr)
            sys.argv[1:] = map(str, case)
            exec(program, {"__name__": "__main__"})
        os._exit(0)
    print(name, os.wait()[1])
"""

# Chapter 4's all-reduce in one kernel: ranks wait for each other word by word, and sum in one order. They are processes
# that share memory at the same addresses. The interpreter knows no PTX: an ordinary store stands in for the strong one.
SYMMETRIC_ALLREDUCE = """
import os, signal, sys, time
import torch, triton
import triton.language as tl
from ch04 import optimized_symmetric_allreduce as variant

@triton.jit
def send(place, word):
    tl.store(place, word)

variant.send = send
ranks, n, before = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
blocks, slots, turns = -(-n // 16), triton.next_power_of_2(ranks), 4
torch.manual_seed(0)
numbers = torch.randn(turns, ranks, n).bfloat16()
inboxes = [torch.zeros(2, ranks, n, dtype=torch.int32).share_memory_() for _ in range(ranks)]
table = torch.tensor([inbox.data_ptr() for inbox in inboxes])
outs = torch.full((turns, ranks, n + 8), -7.0, dtype=torch.bfloat16).share_memory_()
children = []
for rank in range(ranks):
    if child := os.fork():
        children.append(child)
        continue
    signal.alarm(90)  # a rank that waits in vain
    taken = torch.full((blocks,), before, dtype=torch.int32)
    for turn in range(turns):
        time.sleep(0.3 if turn % ranks == rank else 0)  # each is late once: nobody may go on without it
        arguments = numbers[turn, rank], table, inboxes[rank], taken, outs[turn, rank], n, rank, ranks, slots, 16
        variant.all_reduce[(blocks,)](*arguments)
    os._exit(taken.tolist() != [before + turns] * blocks)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
# Triton's interpreter cuts bfloat16 off, where a GPU rounds: hence 2**-7.
wanted = numbers.float().sum(1, keepdim=True).expand(-1, ranks, -1)
torch.testing.assert_close(outs[:, :, :n].float(), wanted, rtol=2**-7, atol=1e-6)
assert (outs[:, :, :n] == outs[:, :1, :n]).all(), "ranks sum alike"
assert (outs[:, :, n:] == -7).all(), "and write no others"
"""
# Chapter 4's put: every microbatch arrives where it belongs, with its own flag behind it, and nothing else is written.
SYMMETRIC_PUT = """
import sys
import torch
from ch04.optimized_symmetric_put import put, wait

microbatches, n = int(sys.argv[1]), int(sys.argv[2])
blocks = -(-n // 64)
x = torch.randn(microbatches, n).bfloat16()
received = [torch.full((microbatches * n + 8,), -7.0, dtype=torch.bfloat16) for _ in range(3)]
arrived = [torch.zeros(microbatches, dtype=torch.int32) for _ in range(3)]
buffers, flags = (torch.tensor([held.data_ptr() for held in all_ranks]) for all_ranks in (received, arrived))
for _ in range(2):
    put[(blocks, microbatches)](x, buffers, flags, 1, n, BLOCK=64)
    assert arrived[1].tolist() == [blocks] * microbatches
    wait[(microbatches,)](arrived[1], blocks)
    assert not torch.stack(arrived).any(), "the flags are as they were, and nobody else's was raised"
assert torch.equal(received[1][:-8], x.flatten())
assert (received[1][-8:] == -7).all() and (received[0] == -7).all() and (received[2] == -7).all()
"""
# Chapter 4's all-to-all by stores: a token comes to its expert once, its result home, and nothing beside it.
MOE_ALL_TO_ALL = """
import sys
import torch
from ch04.optimized_moe_all_to_all import scale_and_return, send

ranks, tokens, width = map(int, sys.argv[1:])
block = 64
x = torch.randint(-99, 99, (ranks, tokens, width)).bfloat16()
to = torch.randint(ranks, (ranks, tokens))
to[0] = ranks - 1  # one sender needs all the room that there is for it in one box
gain = 0.5 ** torch.randint(3, (ranks, width)).bfloat16()  # exact products, for the interpreter cuts bfloat16 off
guard = 8
boxes = torch.full((ranks, ranks * tokens * width + guard), -7.0, dtype=torch.bfloat16)
outs = torch.full((ranks, tokens * width + guard), -7.0, dtype=torch.bfloat16)
numbers = torch.full((ranks, ranks * tokens + guard), -7, dtype=torch.int32)
counts = torch.zeros(ranks, ranks, dtype=torch.int32)
where = lambda held: torch.tensor([each.data_ptr() for each in held])
for _ in range(2):
    counts.zero_()
    outs[:, :-guard] = torch.nan
    for rank in range(ranks):
        send[(tokens,)](
            x[rank], to[rank], counts[rank], where(boxes), where(numbers), rank, tokens, width, BLOCK=block
        )
    for sender in range(ranks):
        assert counts[sender].tolist() == [int((to[sender] == rank).sum()) for rank in range(ranks)]
    for rank in range(ranks):
        scale_and_return[(ranks, 3)](
            boxes[rank], numbers[rank], where(counts), gain[rank], where(outs), rank, tokens, width, BLOCK=block
        )
    assert torch.equal(outs[:, :-guard].view(ranks, tokens, width), x * gain[to])
    for held in (boxes, outs, numbers):
        assert (held[:, -guard:] == -7).all()
"""
# Chapter 18's list of tiles for packed documents: those of keys that each tile of queries sees, the longest first.
DOCUMENT_TILES = """
import sys
import torch
import triton
from ch18.optimized_flex_document_mask import plan

document = torch.arange(len(sys.argv) - 1).repeat_interleave(torch.tensor([int(n) for n in sys.argv[1:]]))
tokens, every = len(document), torch.arange(len(document))
rows = triton.cdiv(tokens, 128)
begins, tiles = (torch.empty(rows, n, dtype=torch.int32) for n in (128, 3))
plan[(rows,)](document, begins, tiles, tokens, rows, tokens.bit_length(), 128, triton.next_power_of_2(rows))
assert begins.flatten()[:tokens].tolist() == torch.searchsorted(document, document).tolist()
live = (document[:, None] == document) & (every <= every[:, None])
for row, whole, cut in tiles.tolist():
    seen = live[row * 128 : row * 128 + 128]
    assert seen[:, (row - whole) * 128 : row * 128].all()
    assert cut == sum(seen[:, i * 128 : i * 128 + 128].any().item() for i in range(row)) - whole
assert sorted(tiles[:, 0].tolist()) == list(range(rows))
lengths = (tiles[:, 1] + tiles[:, 2]).tolist()
assert lengths == sorted(lengths, reverse=True)
"""
# Chapter 19's delayed scale: what outgrows the earlier maxima saturates, is noted, and fits in the next step.
DELAYED_SCALING = """
import torch
from ch19.optimized_delayed_scaling import prepare

step = prepare(torch.tensor([[3.5, 28, -1792]]).bfloat16(), torch.tensor([5, 4, 6.9]))
for wanted in ([224, 448, -448], 64, [1792, 5, 4]), ([0.875, 7, -448], 0.25, [1792, 1792, 5]):
    codes, scale, history = step()
    assert (codes[0].view(torch.float8_e4m3fn).float().tolist(), scale.item(), history.tolist()) == wanted
"""
PROGRAMS = {
    "all-reduce": (SYMMETRIC_ALLREDUCE, ((2, 40, 0), (3, 33, 0), (2, 16, 0xFFFD))),
    "put": (SYMMETRIC_PUT, ((3, 185), (2, 128), (1, 1))),
    "all-to-all": (MOE_ALL_TO_ALL, ((2, 11, 37), (3, 5, 64), (2, 1, 1))),
    "tiles of documents": (DOCUMENT_TILES, ((331,), (70, 300, 5, 256), (128, 128, 600, 1, 200))),
    "delayed scale": (DELAYED_SCALING, ((),)),
}


@nightly_unless_changed(
    "ch04:symmetric_allreduce",
    "ch04:symmetric_put",
    "ch04:moe_all_to_all",
    "ch18:flex_document_mask",
    "ch19:delayed_scaling",
)
def test_each_does_what_its_program_says() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-uc", EACH, json.dumps(PROGRAMS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT, timeout=300)
    assert done.stdout.splitlines() == [f"{name} 0" for name in PROGRAMS], done.stderr[-4000:]
