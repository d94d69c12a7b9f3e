"""Chapter 4's all-reduce in one kernel: ranks that wait for each other word by word, and sum alike.

Here the ranks are processes that share memory at the same addresses, and the kernel is interpreted. The interpreter
knows no PTX, so an ordinary store stands in for the strong one.
"""

from interpreter import interpret

RANKS_IN_PROCESSES = """
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


def test_ranks_wait_for_each_others_words_and_sum_them_in_one_order() -> None:
    interpret(RANKS_IN_PROCESSES, (2, 40, 0), (3, 33, 0), (2, 16, 0xFFFD))
