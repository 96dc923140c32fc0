"""The C library asked without the package: np_run by hand, to judge what the package answers."""

import ctypes as c
import os

import nepit._bridge as layout
import numpy as np

FINISHES = {1: "length", 2: "stop", 3: "stop"}


class Judge:
    """A model and an engine of its own, without a prefix cache; or an engine that is open."""

    def __init__(self, path=None, engine=None):
        self.lib, self.keeps = c.CDLL(os.environ["NEPIT_LIBRARY"]), []
        self.model, self.engine, error = c.c_void_p(), c.c_void_p(engine), layout.Error()
        if engine is not None:
            return
        where = os.fsencode(path)
        assert self.lib.np_model_open(where, None, c.byref(self.model), c.byref(error)) == 0
        options = layout.EngineOptions(no_cache=1)
        opened = self.lib.np_engine_open(
            self.model, c.byref(options), c.byref(self.engine), c.byref(error)
        )
        assert opened == 0, error.message

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.model:
            self.lib.np_engine_close(self.engine)
            self.lib.np_model_close(self.model)

    def array(self, values, dtype):
        """The address of an array that stays."""
        made = np.ascontiguousarray(values, dtype)
        self.keeps.append(made)
        return made, made.ctypes.data

    def request(self, ids, params):
        """np_request of a prompt and of vLLM's parameters."""
        array, address = self.array(ids, np.int32)
        request = layout.Request(token_ids=address, n_tokens=len(array))
        request.start = params.get("prompt_logprob_start") or 0
        request.logprobs_mode = params.get("logprobs_mode") == "raw_logits"
        if params.get("score_temperature"):
            request.score_temperature = c.pointer(c.c_float(params["score_temperature"]))
        if "prompt_logprob_token_ids" in params:
            table, request.candidate_ids = self.array(params["prompt_logprob_token_ids"], np.int32)
            request.n_candidates = table.shape[-1]
            request.n_candidate_rows = table.shape[0] if table.ndim == 2 else 0
        if "prompt_logprobs" in params:
            request.want, request.top = 3, params["prompt_logprobs"]
        if params.get("prompt_logprob_tail"):
            request.want |= 8
        request.max_tokens = params["max_tokens"]
        if params["max_tokens"]:
            request.sampling = c.pointer(self.sampling(params))
        return request

    @staticmethod
    def sampling(params):
        drawn = layout.Sampling(
            temperature=c.pointer(c.c_float(params["temperature"])),
            top_p=params["top_p"],
            seed=c.pointer(c.c_uint64(params["seed"])),
        )
        for name in "top_k min_p repetition_penalty presence_penalty ignore_eos".split():
            setattr(drawn, name, params[name])
        if params["logprobs"] is not None:
            drawn.top, drawn.want = params["logprobs"], 3
        return drawn

    def run(self, ids, params):
        """What np_run answers, as Python's values."""
        request, result, error = self.request(ids, params), layout.Result(), layout.Error()
        ran = self.lib.np_run(
            self.engine,
            c.byref(request),
            c.c_size_t(1),
            c.byref(result),
            None,
            None,
            c.byref(error),
        )
        assert ran == 0 and result.error.status == 0, (error.message, result.error.message)
        self.keeps.clear()
        try:
            return self.answer(result, params)
        finally:
            self.lib.np_result_free(c.byref(result))

    @classmethod
    def answer(cls, result, params):
        rows, k = result.n_rows, result.n_candidates
        told = {"prompt_token_id_logprobs": None, "prompt_token_id_tail": None}
        if "prompt_logprob_token_ids" in params:
            cells = np.array(result.scores[: rows * k] if rows * k else [], np.float32)
            told["prompt_token_id_logprobs"] = cells.reshape(rows, k)
        if params.get("prompt_logprob_tail"):
            told["prompt_token_id_tail"] = np.array(result.tail[:rows] if rows else [], np.float32)
        if "prompt_logprobs" in params:
            first = result.start + 1
            tokens = result.token_ids[first : first + result.n_scored]
            told["prompt_logprobs"] = cls.places(result, tokens, result.n_top)
        told.update(token_ids=[], text="", finish_reason="length", logprobs=[])
        if result.n_choices:
            made = result.choices[0]
            told["token_ids"] = made.token_ids[: made.n_tokens]
            text = c.string_at(made.text, made.n_text_bytes)
            told["text"] = text.decode(errors="replace").rstrip("\ufffd")
            told["finish_reason"] = FINISHES[made.finish]
            if params["logprobs"] is not None:
                told["logprobs"] = cls.places(made, told["token_ids"], made.n_top)
        return told

    @staticmethod
    def places(arrays, tokens, width):
        """(id, log-probability, rank) at every place, the true token first."""
        found = []
        for i, token in enumerate(tokens):
            place = {token: (token, arrays.logprobs[i], arrays.ranks[i])}
            for k in range(width):
                other, value = arrays.top_ids[i * width + k], arrays.top_logprobs[i * width + k]
                if other >= 0:
                    place.setdefault(other, (other, value, k + 1))
            found.append(list(place.values()))
        return found
