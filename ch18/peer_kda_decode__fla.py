"""flash-linear-attention's recurrent kernel, which updates states in their pool; norms and gates are in it too."""

import torch
from fla.ops.kda.fused_recurrent import fused_recurrent_kda_fwd
from torch import Tensor

from ch18.baseline_kda_decode import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(modules=["fla"], gpus=1, sm=80)


def prepare(states: Tensor, slots: Tensor, a_log: Tensor, dt_bias: Tensor, **of: Tensor) -> Step:
    out = torch.empty_like(of["v"], dtype=states.dtype)
    tokens = [of[name][:, None] for name in ("q", "k", "v", "f", "b")]  # (requests, 1 token, heads, width)
    options = {
        "initial_state": states,
        "inplace_final_state": True,
        "ssm_state_indices": slots,
        "use_qk_l2norm_in_kernel": True,
        "use_gate_in_kernel": True,
        "use_beta_sigmoid_in_kernel": True,
        "out": out[:, None],
    }

    def step() -> tuple[Tensor, Tensor]:
        fused_recurrent_kda_fwd(*tokens, a_log, dt_bias, **options)
        return out, states

    return step
