"""What is known of torch.distributed's operations by their names."""

from __future__ import annotations

import pytest

from hangdoc.model.operations import Operation, is_explicit, message_way, operation


@pytest.mark.parametrize(
    ("name", "sized", "rooted", "message"),
    [
        ("all_reduce", True, False, ""),
        ("all_gather_into_tensor_coalesced", True, False, ""),
        ("_reduce_scatter_base", False, False, ""),
        ("allgather_coalesced", False, True, ""),
        ("_broadcast_oop", True, True, ""),
        ("scatter_object_list", False, True, ""),
        ("reduce_scatter_tensor_coalesced", True, False, ""),
        ("alltoall_base", False, False, ""),
        ("recv_anysource", False, False, "recv"),
        ("batch_isend_irecv", False, False, "send"),
        ("DDP forward broadcasting module buffers", True, False, ""),
        ("broadcasting parameters and buffers from rank 0", True, True, ""),
        ("nobody_knows", True, False, ""),
    ],
)
def test_operations_are_known_by_their_names(name: str, sized: bool, rooted: bool, message: str) -> None:
    found = operation(name)
    assert (found.sized, found.rooted, message_way(name)) == (sized, rooted, message)


def test_only_a_name_in_the_table_asks_for_communication() -> None:
    assert is_explicit("all_reduce")
    assert not is_explicit("all_reduce_my_metrics")
    assert not is_explicit("send_object_list")
    assert operation("nobody_knows") == Operation()
