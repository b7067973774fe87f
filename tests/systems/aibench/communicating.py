"""Hand-made execution traces of jobs that communicate, one node a line."""

from __future__ import annotations

from gnomon.ingest.execution.trace import ExecutionTrace, Node, OpaqueValue, TensorValue
from gnomon.ingest.profiler.kineto import ProcessGroup

OBJECT = OpaqueValue("Object")
_PG = "__torch__.torch.classes.c10d.ProcessGroup process_group"
_OP = "__torch__.torch.classes.c10d.ReduceOp reduce_op"
_WORK = "__torch__.torch.classes.c10d.Work"
_END = "bool async_op=True, int timeout=-1"
SCHEMAS = {
    "c10d::allreduce_": f"(Tensor[] tensors, {_PG}, {_OP}, Tensor? sparse_indices, {_END}) -> (Tensor[], {_WORK})",
    "c10d::allreduce_coalesced_": f"(Tensor[] tensors, {_PG}, {_OP}, {_END}) -> {_WORK}",
    "c10d::broadcast_": f"(Tensor[] tensors, {_PG}, int root_rank, int root_tensor, {_END}) -> (Tensor[], {_WORK})",
    "c10d::reduce_": f"(Tensor[] tensors, {_PG}, {_OP}, int root_rank, int root_tensor, {_END}) -> {_WORK}",
    "c10d::allgather_": f"(Tensor[][] output_tensors, Tensor[] input_tensors, {_PG}, {_END}) -> (Tensor[][], {_WORK})",
    "c10d::_allgather_base_": f"(Tensor output_tensor, Tensor input_tensor, {_PG}, {_END}) -> (Tensor, {_WORK})",
    "c10d::allgather_into_tensor_coalesced_": f"(Tensor[] outputs, Tensor[] inputs, {_PG}, bool async_op=True) -> {_WORK}",
    "c10d::reduce_scatter_": f"(Tensor[] output_tensors, Tensor[][] input_tensors, {_PG}, {_OP}, {_END}) -> (Tensor[], {_WORK})",
    "c10d::_reduce_scatter_base_": f"(Tensor output_tensor, Tensor input_tensor, {_PG}, {_OP}, {_END}) -> (Tensor, {_WORK})",
    "c10d::reduce_scatter_tensor_coalesced_": f"(Tensor[] outputs, Tensor[] inputs, {_PG}, {_OP}, {_END}) -> {_WORK}",
    "c10d::alltoall_base_": f"(Tensor output, Tensor input, {_PG}, int[] output_split_sizes, int[] input_split_sizes, {_END}) -> {_WORK}",
    "c10d::alltoall_": f"(Tensor[] output_tensors, Tensor[] input_tensors, {_PG}, {_END}) -> (Tensor[], {_WORK})",
    "c10d::gather_": f"(Tensor[][] output_tensors, Tensor[] input_tensors, {_PG}, int root_rank, {_END}) -> {_WORK}",
    "c10d::scatter_": f"(Tensor[] output_tensors, Tensor[][] input_tensors, {_PG}, int root_rank, {_END}) -> (Tensor[], {_WORK})",
    "c10d::barrier": f"(Tensor tensor, {_PG}, int[] device_ids, {_END}) -> {_WORK}",
    "c10d::send": f"(Tensor[] tensors, {_PG}, int dst, int tag) -> {_WORK}",
    "c10d::recv_": f"(Tensor[] tensors, {_PG}, int src, int tag) -> {_WORK}",
    "_c10d_functional::all_reduce": "(Tensor input, str reduce_op, Any group_name) -> Tensor",
    "_c10d_functional::all_gather_into_tensor": "(Tensor input, int group_size, Any group_name) -> Tensor",
    "_c10d_functional::wait_tensor": "(Tensor tensor) -> Tensor",
    "aten::mul_": ".Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)",
    "aten::view": "(Tensor(a) self, SymInt[] size) -> Tensor(a)",
    "aten::relu": "(Tensor self) -> Tensor",
    "aten::index_select": "(Tensor self, int dim, Tensor index) -> Tensor",
}  # fmt: skip


class TraceMaker:
    """Collects nodes; tensors are named by numbers, and each lies in memory of its own."""

    def __init__(self, *groups: tuple[str, tuple[int, ...]], device="cuda:0"):
        self.groups = tuple(ProcessGroup(name, ranks) for name, ranks in groups)
        self.device = device
        self.nodes: list[Node] = [self._node("[root]", 1, (), (), 1, "")]

    def tensor(self, number, *shape, dtype="float32", storage=None):
        elements = 1
        for size in shape:
            elements *= size
        size = {"float32": 4, "int64": 8, "bfloat16": 2}[dtype]
        storage = 10_000 + number if storage is None else storage
        return TensorValue(number, storage, 0, elements, size, self.device, dtype, shape, None)

    def _node(self, name, parent, inputs, outputs, thread, schema):
        id = len(getattr(self, "nodes", ())) + 1
        return Node(id, name, parent, thread, 0, 0, -1, 0, id, schema, tuple(inputs),
                    tuple(outputs), "", "", {}, {})  # fmt: skip

    def add(self, name, inputs, outputs=(), thread=1, parent=1):
        schema = f"{name}{SCHEMAS[name]}" if name in SCHEMAS else ""
        self.nodes.append(self._node(name, parent, inputs, outputs, thread, schema))
        return self.nodes[-1].id

    def details(self, parent, *inputs, thread=1):
        """The `record_param_comms` node below a node."""
        return self.add("record_param_comms", inputs, (), thread, parent)

    def trace(self):
        return ExecutionTrace("made.json", "1.1.1-chakra.0.0.4", tuple(self.nodes), self.groups)


def every_kind(device="cuda:0"):
    """A job of eight ranks that calls every collective once, and uses what comes out."""
    made = TraceMaker(("0", tuple(range(8))), ("tp", (0, 1)), device=device)
    t = made.tensor
    end = (True, -1)
    number = iter(range(100, 100_000))

    def new(*shape, dtype="float32"):
        return t(next(number), *shape, dtype=dtype)

    def use(*tensors):
        for one in tensors:
            made.add("aten::relu", (one,), (new(*one.shape),))

    one = new(64)
    made.add("c10d::allreduce_", ((one,), OBJECT, OBJECT, None, *end), ((one,), OBJECT))
    use(one)
    one, two = new(16), new(24)
    made.add("c10d::allreduce_coalesced_", ((one, two), OBJECT, OBJECT, *end), (OBJECT,))
    use(one, two)
    made.add("c10d::broadcast_", ((one,), OBJECT, 3, 0, *end), ((one,), OBJECT))
    made.add("c10d::reduce_", ((two,), OBJECT, OBJECT, 5, 0, *end), (OBJECT,))
    outs, one = tuple(new(16) for _ in range(8)), new(16)
    made.add("c10d::allgather_", ((outs,), (one,), OBJECT, *end), ((outs,), OBJECT))
    use(outs[7])
    out = new(128)
    made.add("c10d::_allgather_base_", (out, one, OBJECT, *end), (out, OBJECT))
    use(out)
    outs, ins = (new(128), new(64)), (new(16), new(8))
    made.add("c10d::allgather_into_tensor_coalesced_", (outs, ins, OBJECT, True), (OBJECT,))
    use(*outs)
    out, ins = new(16), tuple(new(16) for _ in range(8))
    made.add("c10d::reduce_scatter_", ((out,), (ins,), OBJECT, OBJECT, *end), ((out,), OBJECT))
    use(out)
    made.add("c10d::_reduce_scatter_base_", (out, new(128), OBJECT, OBJECT, *end), (out, OBJECT))
    outs, ins = (new(16), new(8)), (new(128), new(64))
    made.add(
        "c10d::reduce_scatter_tensor_coalesced_", (outs, ins, OBJECT, OBJECT, *end), (OBJECT,)
    )
    use(*outs)
    out, one = new(10, 4), new(17, 4)
    made.add(
        "c10d::alltoall_base_",
        (out, one, OBJECT, (1, 1, 1, 1, 1, 1, 1, 3), (2, 2, 2, 2, 2, 2, 2, 3), *end), (OBJECT,),
    )  # fmt: skip
    use(out)
    outs, ins = tuple(new(4) for _ in range(8)), tuple(new(4) for _ in range(8))
    made.add("c10d::alltoall_", (outs, ins, OBJECT, *end), (outs, OBJECT))
    use(outs[0])
    outs, one = tuple(new(4) for _ in range(8)), new(4)
    made.add("c10d::gather_", ((outs,), (one,), OBJECT, 0, *end), (OBJECT,))
    use(outs[3])
    made.add("c10d::scatter_", ((new(4),), (), OBJECT, 1, *end), ((), OBJECT))
    made.add("c10d::barrier", (new(1), OBJECT, (), *end), (OBJECT,))
    made.add("c10d::send", ((one,), OBJECT, 1, 0), (OBJECT,))
    made.add("c10d::recv_", ((one,), OBJECT, 1, 0), (OBJECT,))
    # Whole numbers that choose rows, from another rank.
    out, one = new(24, dtype="int64"), new(24, dtype="int64")
    made.add("c10d::alltoall_base_", (out, one, OBJECT, (), (), *end), (OBJECT,))
    made.add("aten::index_select", (new(7, 3), 0, out), (new(24, 3),))
    small = new(32)
    id = made.add("c10d::allreduce_", ((small,), OBJECT, OBJECT, None, *end), ((small,), OBJECT))
    made.details(id, (small,), (5, False), ("tp", "tensor"), 0, "allreduce", (), (), 0, 1, 2)
    made.details(1, (5, False), ("", ""), 0, "wait", (), (), -1, -1, 1)
    one, two = new(64), new(64)
    made.add("_c10d_functional::all_reduce", (one, "avg", "0"), (two,))
    made.add("_c10d_functional::wait_tensor", (two,), (two,))
    use(two)
    return made.trace()
