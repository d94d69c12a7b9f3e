"""What is wrong is refused with its reason, what is right is accepted, and a tolerance without teeth is named."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from common.python.proof import comparison as verification
from common.python.proof.comparison import CORRUPTIONS, Rejected, compare, in_order, leaves, poison, same, teeth
from common.python.workload import AnyOrder

NAN, INF = float("nan"), float("inf")
TOLERANCE = 1e-3


def noise(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def doubles(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def integers(*values: int, dtype: torch.dtype = torch.int64) -> Tensor:
    return torch.tensor(values, dtype=dtype)


def reason(output: Tensor, reference: Tensor, tolerance: float = TOLERANCE) -> str | None:
    return compare([output], [reference], [output.dtype], tolerance).reason


def test_the_error_is_relative_to_the_norm_of_the_reference() -> None:
    reference = noise(500)
    for scale in (1e-20, 1.0, 1e20):
        comparison = compare([reference * scale * 1.01], [reference * scale], [torch.float64], 0.02)
        assert comparison.error == pytest.approx(0.01)
        assert comparison.reason is None


def test_an_error_beyond_the_tolerance_is_refused_with_both_numbers() -> None:
    answer = noise(500)
    assert reason(answer * 1.01, answer) == "relative error 1.00e-02, the tolerance is 1.0e-03"
    assert reason(answer * (1 + 0.99 * TOLERANCE), answer) is None


def test_one_wrong_element_cannot_hide_in_the_norm() -> None:
    answer = torch.ones(1_000_000, dtype=torch.float64)
    wrong = answer.clone()
    wrong[123_456] += 0.011  # of a norm of 1000: within the tolerance 100 times over
    assert reason(wrong, answer) == "one element is off by 1.10e-02, at most 1.00e-02 is allowed"
    wrong[123_456] = 1.009
    assert reason(wrong, answer) is None


@pytest.mark.parametrize(
    ("output", "reference", "message"),
    [
        ([noise(3)], [noise(3), noise(3)], "1 outputs, the reference has 2"),
        ([noise(3), noise(3)], [noise(3)], "2 outputs, the reference has 1"),
        ([noise(3, 1)], [noise(3)], "shape (3, 1), should be (3,)"),
        ([noise(3), noise(4)], [noise(3), noise(5)], "output 1: shape (4,), should be (5,)"),
        ([noise(3).float()], [noise(3)], "dtype float32, should be float64"),
        ([noise(3), noise(3).half()], [noise(3), noise(3)], "output 1: dtype float16, should be float64"),
    ],
)
def test_an_output_of_another_form_is_refused(output: list[Tensor], reference: list[Tensor], message: str) -> None:
    comparison = compare(output, reference, [leaf.dtype for leaf in reference], TOLERANCE)
    assert comparison.reason == message
    assert comparison.error == INF


def test_of_several_outputs_the_wrong_one_is_named_and_the_worst_error_counts() -> None:
    a, b = noise(100), noise(100, seed=1)
    right = compare([a * 1.0001, b], [a, b], [a.dtype, b.dtype], TOLERANCE)
    assert right.reason is None
    assert right.error == pytest.approx(1e-4)
    wrong = compare([a * 1.0001, b * 2], [a, b], [a.dtype, b.dtype], TOLERANCE)
    assert wrong.reason == "output 1: relative error 1.00e+00, the tolerance is 1.0e-03"
    assert wrong.error == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("output", "reference", "message"),
    [
        (doubles(1, INF, -INF), doubles(1, INF, -INF), None),
        (doubles(INF, INF), doubles(INF, INF), None),
        (doubles(1, INF), doubles(1, -INF), "NaN or infinity where the reference is finite, or the reverse"),
        (doubles(1, INF), doubles(1, 2), "NaN or infinity where the reference is finite, or the reverse"),
        (doubles(1, 2), doubles(1, INF), "NaN or infinity where the reference is finite, or the reverse"),
        (doubles(1, NAN), doubles(1, 2), "NaN or infinity where the reference is finite, or the reverse"),
        (doubles(1, NAN), doubles(1, INF), "NaN or infinity where the reference is finite, or the reverse"),
        (doubles(1.1, INF), doubles(1, INF), "relative error 1.00e-01, the tolerance is 1.0e-03"),
        (doubles(0, 0), doubles(0, 0), None),
        (doubles(0, 1e-30), doubles(0, 0), "should be all zeros"),
        (doubles(), doubles(), None),
    ],
)
def test_infinities_nan_and_zeros_are_held_against_the_reference(
    output: Tensor, reference: Tensor, message: str | None
) -> None:
    comparison = compare([output], [reference], [output.dtype], TOLERANCE)
    assert comparison.reason == message
    assert (comparison.error == 0.0) == (message is None)


class Made(TorchDispatchMode):
    """The most bytes that what the operators made held at a time."""

    most = 0

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[StorageWeakRef, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor) and not func.is_view:
            self.held[StorageWeakRef(made.untyped_storage())] = made.untyped_storage().nbytes()
        self.held = {ref: size for ref, size in self.held.items() if not ref.expired()}
        self.most = max(self.most, sum(self.held.values()))
        return made


@pytest.mark.parametrize("tolerance", [0.0, TOLERANCE])
def test_many_outputs_take_no_more_memory_to_compare_than_one(tolerance: float) -> None:
    answers = [noise(500, 40, seed=seed).T for seed in range(8)]  # strides that have to be copied to be flat
    outputs = [answer.T.contiguous().T for answer in answers]
    most = []
    for count in (1, 8):
        with Made() as made:
            assert compare(outputs[:count], answers[:count], [torch.float64] * count, tolerance).reason is None
        most.append(made.most)
    assert most[0] > 500 * 40
    assert most[1] < most[0] + 1000
    assert tolerance or most[0] < 500 * 40 * 8, "what is exact is compared as it lies"


def test_alike_are_shape_type_and_every_bit() -> None:
    x, nan = torch.arange(4.0), torch.tensor([NAN])
    others = [x.clone(), x.double(), x[:3], x.reshape(2, 2), x + torch.eye(4)[2] * 1e-6, nan, x[:0]]
    assert [same(x, other) for other in others] == [True, False, False, False, False, False, False]
    assert (same(nan, nan.clone()), same(x[:0], x[:0])) == (True, True)
    strided, turned = torch.arange(12).view(3, 4).t(), torch.tensor([1 + 2j]).conj()
    small = torch.tensor([1, 2, 255], dtype=torch.uint8).view(torch.float8_e4m3fn)
    assert all(same(tensor, tensor.clone()) for tensor in (strided, turned, small))


@pytest.mark.parametrize("tolerance", [0.0, TOLERANCE])
def test_a_reference_with_nan_is_an_error_of_the_workload(tolerance: float) -> None:
    with pytest.raises(Rejected, match="the reference itself holds NaN"):
        reason(doubles(1, NAN), doubles(1, NAN), tolerance)


@pytest.mark.parametrize(
    ("output", "reference", "tolerance", "wrong"),
    [
        (doubles(1, 2, 3), doubles(1, 2, 3), 0.0, 0),
        (doubles(1, 2, 3), doubles(1, 2, 3 + 1e-15), 0.0, 1),
        (doubles(1, NAN, 3), doubles(1, 2, 3), 0.0, 1),
        (noise(4).float(), noise(4), 0.0, 0),
        (integers(1, 2, 3), integers(1, 2, 3), 0.5, 0),
        (integers(1_000_000, 2), integers(1_000_001, 3), 0.5, 2),
        (integers(7, 8, dtype=torch.uint8), integers(7, 9), 0.5, 1),
        (torch.tensor([True, False]), torch.tensor([True, False]), 0.5, 0),
        (torch.tensor([True, False]), torch.tensor([True, True]), 0.5, 1),
        (integers(3, 4, dtype=torch.int32), doubles(3, 4), 0.5, 0),
    ],
)
def test_tolerance_zero_integers_and_bools_are_exact(
    output: Tensor, reference: Tensor, tolerance: float, wrong: int
) -> None:
    comparison = compare([output], [reference], [output.dtype], tolerance)
    n = output.numel()
    assert comparison.reason == (f"{wrong} of {n} elements differ, and the answer is exact" if wrong else None)
    assert comparison.error == wrong / n


@pytest.mark.parametrize(
    ("output", "reference"),
    [
        (integers(44, dtype=torch.uint8), integers(300)),
        (integers(5, dtype=torch.int32), integers((1 << 32) + 5)),
        (integers(2, dtype=torch.int32), doubles(2.9)),
    ],
)
def test_an_integer_that_overflowed_or_was_cut_off_is_refused(output: Tensor, reference: Tensor) -> None:
    assert reason(output, reference) is not None


@pytest.mark.parametrize("place", [0, 6, 7, 500, 993, 994, 999])
@pytest.mark.parametrize(("wrong", "message"), [(NAN, "NaN or infinity"), (0.02, "one element is off by 2.00e-02")])
def test_a_wrong_element_is_found_in_every_chunk(
    place: int, wrong: float, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(verification.CHUNK, "cpu", 7)
    answer = torch.ones(1000, dtype=torch.float64)
    output = answer.clone()
    output[place] += wrong
    assert message in (reason(output, answer) or "")


@pytest.mark.parametrize("shape", [(), (1,), (5, 3), (3, 0), (2, 3, 4)])
def test_any_shape_can_be_compared_whatever_its_strides(shape: tuple[int, ...]) -> None:
    answer = noise(*shape)
    transposed = answer.permute(tuple(reversed(range(answer.dim()))))
    for tolerance in (0.0, TOLERANCE):
        assert reason(transposed, transposed.contiguous(), tolerance) is None
        assert reason(transposed.contiguous(), transposed, tolerance) is None
        if answer.numel():
            assert reason(transposed + 1, transposed, tolerance) is not None


def test_a_tensor_or_a_tuple_of_them_is_an_output() -> None:
    a, b = noise(3), torch.nn.Parameter(noise(2, dtype=torch.float32))
    assert leaves(a) == [a]
    assert [id(leaf) for leaf in leaves((a, b))] == [id(a), id(b)]
    assert leaves(()) == []


class Lazy(Tensor):
    """A subclass that could compute its values when they are looked at."""


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (None, "output is a NoneType, not a tensor or a tuple of tensors"),
        ([noise(3)], "output is a list, not a tensor"),
        ((noise(3), 1.0), "output is a float, not a tensor"),
        ((noise(3), (noise(3),)), "output is a tuple, not a tensor"),
        (noise(3).as_subclass(Lazy), "output is a Lazy: a subclass may compute when it is read"),
        (noise(3, 3).to_sparse(), "output is torch.sparse_coo on cpu, not a strided tensor in memory"),
        (torch.empty(3, device="meta"), "output is torch.strided on meta, not a strided tensor in memory"),
        (torch.zeros(3, dtype=torch.complex64), "output is complex: return torch.view_as_real of it"),
    ],
)
def test_what_does_not_already_hold_its_values_is_refused(output: object, message: str) -> None:
    with pytest.raises(Rejected) as refused:
        leaves(output)  # type: ignore[arg-type]
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (torch.float32, NAN),
        (torch.float8_e4m3fn, NAN),
        (torch.int8, -128),
        (torch.int64, -(1 << 63)),
        (torch.uint8, 255),
        (torch.bool, True),
    ],
)
def test_a_poisoned_output_is_no_likely_answer(dtype: torch.dtype, value: Any) -> None:
    leaf = torch.zeros(3, dtype=dtype)
    poison([leaf])
    if value != value:
        assert leaf.float().isnan().all()
    else:
        assert leaf.tolist() == [value] * 3


def test_poison_reaches_every_output_views_and_parameters_too() -> None:
    whole, parameter = torch.zeros(4, 4), torch.nn.Parameter(torch.zeros(2))
    poison([whole.T[1:], parameter])
    assert whole[:, 1:].isnan().all()
    assert (whole[:, 0] == 0).all()
    assert parameter.isnan().all()


REFERENCES = {  # a right answer, that of other inputs, and the dtype of outputs
    "matrix": (noise(65, 33), noise(65, 33, seed=1), torch.float32),
    "transposed": (noise(65, 33).T, noise(65, 33, seed=1).T, torch.bfloat16),
    "vector": (noise(97), noise(97, seed=1), torch.float16),
    "scalar": (noise(), noise(seed=1), torch.float32),
    "integers": (torch.arange(97), torch.arange(97).flip(0), torch.int32),
    "bytes": (torch.arange(97) % 7, (torch.arange(97) + 1) % 7, torch.uint8),
    "bools": (torch.arange(97) % 3 == 0, torch.arange(97) % 3 == 1, torch.bool),
    "nothing": (noise(0, 4), noise(0, 4), torch.float32),
    "zeros": (torch.zeros(65, 33, dtype=torch.float64), noise(65, 33), torch.float32),
}


@pytest.mark.parametrize(("reference", "stale", "dtype"), REFERENCES.values(), ids=REFERENCES.keys())
def test_a_sound_tolerance_refuses_every_corruption(reference: Tensor, stale: Tensor, dtype: torch.dtype) -> None:
    assert teeth([reference], [stale], [dtype], 0.049) == []


@pytest.mark.parametrize("index", [0, 1, 2])
def test_one_output_that_could_be_corrupted_is_named_wherever_it_stands(index: int) -> None:
    alike = 1 + 0.001 * noise(7)  # seven losses within a tenth of a percent of each other
    outputs, stale = [noise(65, 33), noise(97)], [noise(65, 33, seed=1), noise(97, seed=1)]
    outputs.insert(index, alike)
    stale.insert(index, alike + 1)
    assert teeth(outputs, stale, [torch.float32] * 3, 0.02) == [f"rows permuted (output {index})"]


def test_each_corruption_does_what_its_name_says() -> None:
    leaf = noise(20, 32, dtype=torch.float32)  # 640 elements, of which a tile is 16
    bad: dict[str, Any] = {name: corrupt(leaf.clone()) for name, corrupt in CORRUPTIONS.items()}
    changed = {name: (other != leaf).reshape(-1).nonzero().reshape(-1).tolist() for name, other in bad.items()}
    assert changed["one wrong element"] == [320]
    assert changed["last tile dropped"] == list(range(624, 640))
    assert changed["one NaN"] == [639]
    assert [bool((bad["last tile dropped"].reshape(-1)[624:] == 0).all()), bool(bad["one NaN"][-1, -1].isnan())] == [
        True
    ] * 2
    assert torch.equal(bad["rows permuted"][0], leaf[-1])
    assert torch.allclose(bad["5% scale"], leaf * 1.05)
    assert not bad["zeros"].any()
    rms = leaf.square().mean().sqrt()
    assert (bad["one wrong element"] - leaf).sum() == pytest.approx(float(rms))


def test_a_stale_output_is_accepted_only_where_the_inputs_do_not_matter() -> None:
    large = 100 + noise(65, 33)
    assert "stale output" in teeth([large], [100 + noise(65, 33, seed=1)], [torch.float32], 0.02)
    assert "stale output" not in teeth([large], [large], [torch.float32], 0.02)


@pytest.mark.parametrize("index", [0, 1])
def test_a_corruption_that_changes_nothing_is_passed_over(index: int) -> None:
    outputs, stale = [noise(65, 33)], [noise(65, 33, seed=1)]
    outputs.insert(index, torch.ones(9, 5, dtype=torch.float64))  # rows that are equal
    stale.insert(index, noise(9, 5))
    assert teeth(outputs, stale, [torch.float32] * 2, 0.02) == []


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 1e-4), (torch.float32, 1e-9), (torch.float16, 2e-4)])
def test_a_tolerance_too_small_for_the_dtype_is_an_error_of_the_workload(dtype: torch.dtype, tolerance: float) -> None:
    with pytest.raises(Rejected, match=f"the tolerance {tolerance:g} refuses even the rounded reference: "):
        teeth([noise(65, 33)], [noise(65, 33, seed=1)], [dtype], tolerance)


def test_rows_in_any_order_are_equal_as_a_multiset_and_in_no_other_way() -> None:
    rows = torch.tensor([[1.0, 2.0], [1.0, 3.0], [0.5, 9.0], [1.0, 2.0]])

    def told(other: Tensor) -> str | None:
        pair = [in_order(AnyOrder(one), [one]) for one in (other, rows.double())]
        return compare(pair[0], pair[1], [torch.float32], 0.0).reason

    assert told(rows.flip(0)) is None
    assert told(rows[[2, 0, 1, 3]]) is None
    assert told(rows[[0, 0, 1, 2]]) is None, "the same rows: the first and the last are equal"
    assert told(rows[[0, 1, 1, 2]]), "one lost, another one twice"
    assert told(torch.tensor([[1.0, 3.0], [1.0, 2.0], [0.5, 8.0], [1.0, 3.0]])), "the right sum, other rows"
