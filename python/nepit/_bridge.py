"""The bridge to libnepit: every struct and function of nepit.h, written once.

Nothing else in the package touches ctypes. Structs and functions are tables with the names of the
header; a test compares sizes and offsets with what a C compiler says. A function that returns a
status raises `NepitError`; the GIL is released while C runs.
"""

from __future__ import annotations

import ctypes as c
import functools
import os
import sys
from pathlib import Path

VERSION = "0.1.0"

# ---- errors --------------------------------------------------------------------------------------

CODES = {
    1: "ENOMEM",
    2: "EIO",
    3: "EFORMAT",
    4: "EUNSUPPORTED",
    5: "EINPUT",
    6: "ELIMIT",
    7: "ENUMERIC",
    8: "ECANCELLED",
    9: "EINTERNAL",
    10: "ETIMEOUT",
}


class NepitError(Exception):
    """What nepit refused or could not do.

    Attributes
    ----------
    code : str
        The status of nepit.h without its prefix: "EINPUT", "ELIMIT", "EUNSUPPORTED", ...
    where : str
        The field, file or tensor; "" where there is none.
    given : str
        The offending value, "" where there is none.
    offset : int
        Byte offset in a file or text, -1 where there is none.
    message : str
        What is wrong and what is allowed.
    """

    def __init__(
        self, code: str, message: str, where: str = "", given: str = "", offset: int = -1
    ) -> None:
        self.code, self.message, self.where = code, message, where
        self.given, self.offset = given, offset
        text = message + (f": {given}" if given else "") + (f" ({where})" if where else "")
        super().__init__(text)

    def __reduce__(self) -> tuple[type, tuple[str, str, str, str, int]]:
        return type(self), (self.code, self.message, self.where, self.given, self.offset)


# ---- structs -------------------------------------------------------------------------------------

_ids, _floats, _sizes = c.POINTER(c.c_int32), c.POINTER(c.c_float), c.POINTER(c.c_size_t)
PROGRESS = c.CFUNCTYPE(None, c.c_void_p, c.c_size_t, c.c_size_t)
READ = c.CFUNCTYPE(c.c_int64, c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p)
FINISHED = c.CFUNCTYPE(None, c.c_void_p, c.c_size_t)


class Error(c.Structure):
    _fields_ = [
        ("status", c.c_int),
        ("offset", c.c_int64),
        ("where", c.c_char * 192),
        ("given", c.c_char * 64),
        ("message", c.c_char * 320),
    ]


class ModelOptions(c.Structure):
    _fields_ = [
        ("profile", c.c_char_p),
        ("cpu", c.c_char_p),
        ("n_threads", c.c_int),
        ("max_memory", c.c_size_t),
        ("progress", PROGRESS),
        ("progress_user", c.c_void_p),
    ]


_INFO_TEXTS = "path container architecture name weight_types tokenizer profile cpu cpu_reason"
_INFO_INT64 = "n_parameters weight_bytes kv_bytes_per_token"
_INFO_INT32 = "n_vocab n_layers dim n_heads n_kv_heads head_dim ffn_dim n_context bos_id eos_id"
_INFO_INT = "adds_bos adds_eos has_tokenizer has_chat_template head_tied weights_rounded"


class Info(c.Structure):
    _fields_ = [
        *((name, c.c_char_p) for name in _INFO_TEXTS.split()),
        *((name, c.c_int64) for name in _INFO_INT64.split()),
        *((name, c.c_int32) for name in _INFO_INT32.split()),
        *((name, c.c_int) for name in _INFO_INT.split()),
    ]


class Tokens(c.Structure):
    _fields_ = [("n_tokens", c.c_size_t), ("token_ids", _ids), ("begin", _sizes), ("end", _sizes)]


class TokenizerInfo(c.Structure):
    _fields_ = [
        (name, c.c_char_p)
        for name in "bos_token eos_token pad_token unk_token tokenizer_class chat_template".split()
    ]


class Ids(c.Structure):
    _fields_ = [("ids", _ids), ("n", c.c_size_t)]


class String(c.Structure):
    _fields_ = [("bytes", c.c_char_p), ("n_bytes", c.c_size_t)]


class Chat(c.Structure):
    _fields_ = [
        ("messages", String),
        ("variables", String),
        ("chat_template", String),
        ("add_generation_prompt", c.c_int),
        ("continue_final_message", c.c_int),
        ("add_special", c.c_int),
        ("parse_special", c.c_int),
    ]


class ChatText(c.Structure):
    _fields_ = [
        ("text", c.c_void_p),
        ("n_bytes", c.c_size_t),
        ("content_begin", c.c_size_t),
        ("content_end", c.c_size_t),
        ("tokens", Tokens),
    ]


class EngineOptions(c.Structure):
    _fields_ = [
        ("n_threads", c.c_int),
        ("oversubscribe", c.c_int),
        ("n_context", c.c_size_t),
        ("chunk_rows", c.c_size_t),
        ("max_memory", c.c_size_t),
        ("cache_memory", c.c_size_t),
        ("no_cache", c.c_int),
    ]


class Stats(c.Structure):
    _fields_ = [
        *(
            (name, c.c_uint64)
            for name in "n_requests n_tokens n_computed n_steps n_evicted_pages n_preempted".split()
        ),
        *(
            (name, c.c_size_t)
            for name in "n_waiting n_running n_pages n_cached_pages page_bytes cache_bytes".split()
        ),
        ("n_generated", c.c_uint64),
        ("busy_s", c.c_double),
    ]


class Bias(c.Structure):
    _fields_ = [("id", c.c_int32), ("bias", c.c_float)]


class Sampling(c.Structure):
    _fields_ = [
        ("temperature", _floats),
        ("top_k", c.c_int32),
        ("top_p", c.c_float),
        ("min_p", c.c_float),
        ("presence_penalty", c.c_float),
        ("frequency_penalty", c.c_float),
        ("repetition_penalty", c.c_float),
        ("seed", c.POINTER(c.c_uint64)),
        ("logit_bias", c.POINTER(Bias)),
        ("n_logit_bias", c.c_size_t),
        ("allowed_token_ids", Ids),
        ("bad_words", c.POINTER(Ids)),
        ("n_bad_words", c.c_size_t),
        ("stop_token_ids", Ids),
        ("stop", c.POINTER(String)),
        ("n_stop", c.c_size_t),
        ("include_stop", c.c_int),
        ("min_tokens", c.c_size_t),
        ("ignore_eos", c.c_int),
        ("keep_special", c.c_int),
        ("n", c.c_int32),
        ("processed", c.c_int),
        ("want", c.c_uint),
        ("top", c.c_int32),
        ("candidate_ids", Ids),
    ]


class Generated(c.Structure):
    _fields_ = [
        ("n_tokens", c.c_size_t),
        ("token_ids", _ids),
        ("logprobs", _floats),
        ("ranks", _ids),
        ("entropies", _floats),
        ("n_top", c.c_size_t),
        ("top_ids", _ids),
        ("top_logprobs", _floats),
        ("candidate_ids", _ids),
        ("n_candidates", c.c_size_t),
        ("scores", _floats),
        ("text", c.c_void_p),
        ("n_text_bytes", c.c_size_t),
        ("text_end", _sizes),
        ("finish", c.c_int),
        ("stop_index", c.c_int32),
        ("seed", c.c_uint64),
    ]


class Request(c.Structure):
    _fields_ = [
        ("token_ids", c.c_void_p),
        ("n_tokens", c.c_size_t),
        ("text", c.c_char_p),
        ("n_bytes", c.c_size_t),
        ("add_special", c.c_int),
        ("parse_special", c.c_int),
        ("condition", c.c_int),
        ("start", c.c_size_t),
        ("next", c.c_int),
        ("want", c.c_uint),
        ("top", c.c_int32),
        ("candidate_ids", c.c_void_p),
        ("n_candidates", c.c_size_t),
        ("n_candidate_rows", c.c_size_t),
        ("logprobs_mode", c.c_int),
        ("score_temperature", _floats),
        ("max_tokens", c.c_size_t),
        ("sampling", c.POINTER(Sampling)),
        ("priority", c.c_int32),
        ("timeout_ms", c.c_int64),
        ("cache_salt", c.c_char_p),
        ("skip_reading_prefix_cache", c.c_int),
    ]


class Result(c.Structure):
    _fields_ = [
        ("error", Error),
        ("n_tokens", c.c_size_t),
        ("token_ids", _ids),
        ("begin", _sizes),
        ("end", _sizes),
        ("start", c.c_size_t),
        ("n_rows", c.c_size_t),
        ("n_scored", c.c_size_t),
        ("logprobs", _floats),
        ("ranks", _ids),
        ("entropies", _floats),
        ("n_top", c.c_size_t),
        ("top_ids", _ids),
        ("top_logprobs", _floats),
        ("mass", _floats),
        ("n_candidates", c.c_size_t),
        ("scores", _floats),
        ("tail", _floats),
        ("n_computed", c.c_size_t),
        ("choices", c.POINTER(Generated)),
        ("n_choices", c.c_size_t),
        ("memory", c.c_void_p),
    ]


class Document(c.Structure):
    _fields_ = [
        ("text", c.c_char_p),
        ("n_bytes", c.c_uint64),
        ("read", READ),
        ("read_user", c.c_void_p),
    ]


class PerplexityOptions(c.Structure):
    _fields_ = [
        ("window", c.c_size_t),
        ("stride", c.c_size_t),
        ("add_special", c.c_int),
        ("parse_special", c.c_int),
        ("condition", c.c_int),
        ("progress", PROGRESS),
        ("finished", FINISHED),
        ("user", c.c_void_p),
    ]


class PerplexityResult(c.Structure):
    _fields_ = [
        ("error", Error),
        *(
            (name, c.c_uint64)
            for name in "n_tokens n_scored n_bytes n_scored_bytes n_windows n_computed".split()
        ),
        ("total", c.c_double),
        ("perplexity", c.c_double),
        ("bits_per_byte", c.c_double),
        ("window", c.c_size_t),
        ("stride", c.c_size_t),
        ("has_bos", c.c_int),
    ]


READY = c.CFUNCTYPE(None, c.c_void_p, c.c_size_t, c.POINTER(Result), c.c_size_t, c.c_int)

# The names in the header, for the test that compares layouts.
STRUCTS: dict[str, type[c.Structure]] = {
    "np_error": Error,
    "np_model_options": ModelOptions,
    "np_info": Info,
    "np_tokens": Tokens,
    "np_tokenizer_info": TokenizerInfo,
    "np_ids": Ids,
    "np_string": String,
    "np_chat": Chat,
    "np_chat_text": ChatText,
    "np_engine_options": EngineOptions,
    "np_stats": Stats,
    "np_bias": Bias,
    "np_sampling": Sampling,
    "np_generated": Generated,
    "np_request": Request,
    "np_result": Result,
    "np_document": Document,
    "np_perplexity_options": PerplexityOptions,
    "np_perplexity_result": PerplexityResult,
}

# ---- functions -----------------------------------------------------------------------------------

_handle, _status, _error = c.c_void_p, c.c_int, c.POINTER(Error)
_handles = c.POINTER(_handle)

# name: result, arguments. A status with an error last is checked by `call`.
FUNCTIONS: dict[str, tuple[object, list[object]]] = {
    "np_version": (c.c_char_p, []),
    "np_numerics": (c.c_char_p, []),
    "np_model_open": (_status, [c.c_char_p, c.POINTER(ModelOptions), _handles, _error]),
    "np_model_close": (None, [_handle]),
    "np_model_info": (Info, [_handle]),
    "np_model_tokenizer": (TokenizerInfo, [_handle]),
    "np_tokenize": (
        _status,
        [_handle, c.c_char_p, c.c_size_t, c.c_int, c.c_int, c.POINTER(Tokens), _error],
    ),
    "np_tokens_free": (None, [c.POINTER(Tokens)]),
    "np_token_bytes": (
        _status,
        [_handle, c.c_int32, c.POINTER(c.c_void_p), _sizes, _error],
    ),
    "np_detokenize": (
        _status,
        [_handle, c.c_void_p, c.c_size_t, c.POINTER(c.c_void_p), _sizes, _error],
    ),
    "np_free": (None, [c.c_void_p]),
    "np_chat_render": (_status, [_handle, c.POINTER(Chat), c.POINTER(ChatText), _error]),
    "np_chat_text_free": (None, [c.POINTER(ChatText)]),
    "np_engine_open": (_status, [_handle, c.POINTER(EngineOptions), _handles, _error]),
    "np_engine_close": (None, [_handle]),
    "np_engine_cancel": (None, [_handle]),
    "np_engine_stats": (Stats, [_handle]),
    "np_engine_clear_cache": (None, [_handle]),
    "np_engine_save_cache": (_status, [_handle, c.c_char_p, _error]),
    "np_engine_load_cache": (_status, [_handle, c.c_char_p, _error]),
    "np_run": (
        _status,
        [_handle, c.POINTER(Request), c.c_size_t, c.c_void_p, c.c_void_p, c.c_void_p, _error],
    ),
    "np_submit": (
        _status,
        [_handle, c.POINTER(Request), c.c_size_t, READY, c.c_void_p, _handles, _error],
    ),
    "np_poll": (c.c_int, [_handle, c.c_int64]),
    "np_cancel": (None, [_handle]),
    "np_wait": (_status, [_handle, c.c_void_p, _error]),
    "np_result_free": (None, [c.c_void_p]),
    "np_perplexity": (
        _status,
        [
            _handle,
            c.POINTER(Document),
            c.c_size_t,
            c.POINTER(PerplexityOptions),
            c.POINTER(PerplexityResult),
            _error,
        ],
    ),
}


def _candidates() -> list[str]:
    """Where the library may lie, best first."""
    named = os.environ.get("NEPIT_LIBRARY")
    if named:
        return [named]
    here = Path(__file__).resolve().parent
    beside = sorted(str(path) for path in here.glob("libnepit.*") if ".a" not in path.suffixes)
    return [*beside, "libnepit.so.0", "libnepit.0.dylib"]


def _load() -> c.CDLL:
    errors = []
    for path in _candidates():
        try:
            lib = c.CDLL(path)
        except OSError as error:
            errors.append(str(error))
            continue
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
        found = lib.np_version().decode()
        if found != VERSION:
            raise ImportError(f"libnepit {found} at {path}; this package needs {VERSION}")
        return lib
    raise ImportError("libnepit is not there (NEPIT_LIBRARY can name it): " + "; ".join(errors))


lib = _load()


def error_of(error: Error, prefix: str = "") -> NepitError:
    """What a filled np_error says; `prefix` names the request that it belongs to."""
    code = CODES.get(error.status, "EINTERNAL")
    message, where, given = (text_of(x) for x in (error.message, error.where, error.given))
    place = f"{prefix}.{where}" if prefix and where else prefix or where
    return NepitError(code, message, place, given, error.offset)


def raise_error(error: Error) -> None:
    """Raises what a filled np_error says."""
    raise error_of(error)


def call(name: str, *arguments: object) -> None:
    """A function that returns a status and fills an error."""
    error = Error()
    if getattr(lib, name)(*arguments, c.byref(error)) != 0:
        raise error_of(error)


def text_of(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


# ---- memory of answers ---------------------------------------------------------------------------


class RawResult(c.Structure):
    """Result with bare addresses: reading one makes no object but an int."""

    _fields_ = [
        (name, c.c_void_p if issubclass(kind, c._Pointer) else kind)
        for name, kind, *_ in Result._fields_
    ]


@functools.lru_cache(64)
def requests_of(n: int) -> type[c.Array[Request]]:
    return Request * n


@functools.lru_cache(64)
def _results_of(n: int) -> tuple[type[c.Array[Result]], type[c.Array[RawResult]]]:
    return Result * n, RawResult * n


_RESULT_BYTES = c.sizeof(Result)


class Answers:
    """Results of one call; owns their memory. Arrays made from them keep it."""

    __slots__ = ("__weakref__", "_kind", "address", "free", "raw")

    def __init__(self, n: int) -> None:
        self._kind, raw = _results_of(n)
        self.raw = raw()
        self.address, self.free = c.addressof(self.raw), lib.np_result_free

    @property
    def results(self) -> c.Array[Result]:
        """The same with typed pointers."""
        return self._kind.from_buffer(self.raw)

    def __del__(self) -> None:
        for i in range(len(self.raw)):
            self.free(self.address + i * _RESULT_BYTES)


class Answer:
    """One result of many: its memory goes when no array needs it, whatever the others do."""

    __slots__ = ("_answers", "_i")

    def __init__(self, answers: Answers, i: int) -> None:
        self._answers, self._i = answers, i

    def __del__(self) -> None:
        answers = self._answers
        answers.free(answers.address + self._i * _RESULT_BYTES)


def address_of(pointer: object) -> int:
    """Where a pointer that is not NULL points."""
    return c.cast(pointer, c.c_void_p).value or 0  # type: ignore[arg-type]


if sys.byteorder != "little":
    raise ImportError("nepit needs a little-endian machine")
