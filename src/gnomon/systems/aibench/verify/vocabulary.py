"""Words that everybody knows: of torch's operators, of trace formats, of our own templates.

A benchmark has to name the operators it calls. What torch itself registers reveals nothing about
the job; everything else that appears in a trace might.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

#: Fields of execution traces, of Chrome traces, and what PyTorch's profiler adds to those.
_FORMATS = """
schema|schemaVersion|pid|tid|time|start_ts|finish_ts|nodes|id|name|rf_id|parent|fw_parent|seq_id
scope|fw_tid|op_schema|inputs|outputs|input_shapes|input_types|output_shapes|output_types|attrs
values|shapes|types|strides|type|value|ctrl_deps|kernel_backend|kernel_file|tensor_range|string
int64|uint64|collective_name|dtype|in_msg_nelems|out_msg_nelems|in_split_size|out_split_size
global_rank_start|global_rank_stride|pg_name|pg_desc|pg_size|group_size|group_count|backend_config
ranks|traceEvents|deviceProperties|displayTimeUnit|baseTimeNanoseconds|distributedInfo|traceName
ph|ts|dur|cat|args|bp|kernel|cpu_op|cuda_runtime|cuda_driver|user_annotation|overhead
gpu_user_annotation|gpu_memcpy|gpu_memset|python_function|fwdbwd|ac2g|async|trace|device|stream
context|correlation|External id|Record function id|Sequence number|Fwd thread id|Ev Idx|Input Dims
Input type|Input Strides|Concrete Inputs|Collective name|In msg nelems|Out msg nelems|Group size
Call stack|Python id|Python parent id|Python module id|bytes|size|grid|block|queued|labels
registers per thread|shared memory|blocks per SM|warps per SM|sort_index|process_name|thread_name
rank|world_size|backend|profile_memory|record_shapes|with_stack|with_flops|with_modules|numSms
totalGlobalMem|computeMajor|computeMinor|maxThreadsPerBlock|warpSize|GenericList|Tuple|Tensor
Device|Double|Bool|String|None|Object|Generator|Stream|Storage|True|False|null|true|false
kernel_name|kernel_backend|kernel_file|kernel_hash|kernel_kwargs|num_stages|num_warps|triton
"""
_DTYPES = """
float16 float32 float64 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex32
complex64 complex128 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu
float4_e2m1fn_x2 qint8 quint8 qint32 float double half long int short char byte Float Double Half
BFloat16 Long Int Short Char Byte Bool cpu cuda meta
"""
#: In the types of values, as traces write them.
_TYPES = """
GenericList Tuple OptionalList Tensor TensorList ScalarList Scalar nullptr uninitialized Int Bool
Double String None Device c10 complex signed unsigned Half BFloat16 Float8_e4m3fn Float8_e5m2
"""
#: Namespaces of the operators that come with torch.
_NAMESPACES = (
    "aten", "prim", "prims", "c10d", "_c10d_functional", "_c10d_functional_autograd", "symm_mem",
    "quantized", "_quantized", "quantization", "sparse", "mkl", "mkldnn", "mkldnn_prepacked",
    "onednn", "inductor", "inductor_prims", "rngprims", "debugprims", "profiler", "_dtensor",
    "static_runtime",
)  # fmt: skip
_WORD = re.compile(r"\w+")
_OPERATOR = re.compile(rf"(?:{'|'.join(_NAMESPACES)})::\w+(?:\.\w+)?")
_SCHEMA = re.compile(r"(\w+::\w+(?:\.\w+)?)\(.*\) -> ", re.DOTALL)
_DEVICE = re.compile(r"(?:cuda|cpu|meta)(?::\d+)?")
_TYPE_TEXT = re.compile(r"[\w\[\](),<>: ]+")


class Vocabulary:
    """Whether a text reveals nothing about a job.

    >>> words = Vocabulary({"run.py": "def step(): ..."}, ["aten::mm(Tensor self) -> Tensor"])
    >>> [words.has(text) for text in ("aten::mm", "def step", "tep", "bfloat16", "MyModel")]
    [True, True, False, True, False]
    """

    def __init__(self, templates: Mapping[str, str], strings: Iterable[str] = ()) -> None:
        """Learns from our own files, and from the strings of a trace which operators it called."""
        self._templates = "\n".join(templates.values())
        self._operators, words = _registered()
        self._words = {*words, *_WORD.findall(self._templates), *_DTYPES.split()}
        self._texts = set(_FORMATS.strip().replace("\n", "|").split("|"))
        self._types = {*_TYPES.split(), *_DTYPES.split()}
        self._asked: dict[str, bool] = {}
        for text in strings:
            schema = _SCHEMA.match(text)
            if self.is_operator(schema[1] if schema else text):
                self._texts.add(text)
                self._words.update(_WORD.findall(text))

    def is_operator(self, name: str) -> bool:
        """Whether torch itself registers this operator; without torch, whether it might."""
        known = self._operators
        return name in known if known else _OPERATOR.fullmatch(name) is not None

    def has(self, text: str) -> bool:
        """Whether a text is known: as a word, an operator, a type, or from our own files."""
        if text not in self._asked:
            self._asked[text] = (
                text in self._words
                or text in self._texts
                or self.is_operator(text)
                or _DEVICE.fullmatch(text) is not None
                or bool(_TYPE_TEXT.fullmatch(text) and self._types.issuperset(_WORD.findall(text)))
                or self._in_templates(text)
            )
        return self._asked[text]

    def _in_templates(self, text: str) -> bool:
        """Stands there as a whole: `step` is not known for `steps` being there."""
        if not text or text not in self._templates:
            return False
        before = r"(?<!\w)" if _WORD.match(text[0]) else ""
        after = r"(?!\w)" if _WORD.match(text[-1]) else ""
        return re.search(f"{before}{re.escape(text)}{after}", self._templates) is not None


@cache
def _registered() -> tuple[frozenset[str], frozenset[str]]:
    """Operators of the torch that is installed, and the words of their schemas."""
    try:
        import torch
    except ImportError:
        return frozenset(), frozenset()
    operators: set[str] = set()
    words: set[str] = set()
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith(tuple(f"{space}::" for space in _NAMESPACES)):
            operators |= {schema.name, f"{schema.name}.{schema.overload_name}"}
            words.update(_WORD.findall(str(schema)))
    return frozenset(operators), frozenset(words)
