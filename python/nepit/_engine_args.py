"""vLLM's engine arguments: what each of them means here.

Three kinds: those with a meaning (parameters of `LLM`), those that may stay as they are and are
refused otherwise, since another value would change a number or what is promised, and those that say
how vLLM uses its hardware, which change nothing: one warning names them all.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn, Optional, Union, cast

from ._sampling import refuse, wrong

# ---- refused, unless their value means nothing ---------------------------------------------------

_ONE_MODEL = "the model is read as its files are"
_TEXT_ONLY = "sequences of token ids are all that is served"
_NO_LORA = "adapters are not served: merge them into the weights"

# name: values that mean nothing here, why others are refused
REFUSED: dict[str, tuple[tuple[object, ...], str]] = {
    "runner": ((None, "auto", "generate"), "log-probabilities and generation are all there is"),
    "task": ((None, "auto", "generate"), "log-probabilities and generation are all there is"),
    "convert": ((None, "auto", "none"), _ONE_MODEL),
    "quantization": ((None, "gguf"), "weights are used in the type that the file has"),
    "quantization_config": ((None, {}), "weights are used in the type that the file has"),
    "kv_cache_dtype": ((None, "auto", "float32"), "keys and values are kept as they are computed"),
    "kv_cache_dtype_skip_layers": ((None, []), "keys and values are kept as they are computed"),
    "hf_overrides": ((None, {}), _ONE_MODEL),
    "hf_config_path": ((None,), _ONE_MODEL),
    "model_weights": ((None, ""), _ONE_MODEL),
    "model_class_overrides": ((None, {}), _ONE_MODEL),
    "model_loader_extra_config": ((None, {}), _ONE_MODEL),
    "config_format": ((None, "auto", "hf"), _ONE_MODEL),
    "load_format": ((None, "auto", "safetensors", "gguf", "hf"), _ONE_MODEL),
    "rope_scaling": ((None, {}), _ONE_MODEL),
    "rope_theta": ((None,), _ONE_MODEL),
    "disable_sliding_window": ((None, False), _ONE_MODEL),
    "swa_bounded_replay": ((None, False), _ONE_MODEL),
    "kv_sharing_fast_prefill": ((None, False), "every row is computed in full"),
    "revision": ((None, "main"), "give the path of that revision's files as the model"),
    "tokenizer_revision": ((None, "main"), "the model's own tokenizer is used"),
    "tokenizer_mode": ((None, "auto", "hf", "slow"), "the model's own tokenizer is used"),
    "enable_lora": ((None, False), _NO_LORA),
    "default_mm_loras": ((None, {}), _NO_LORA),
    "enable_prompt_embeds": ((None, False), _TEXT_ONLY),
    "enable_mm_embeds": ((None, False), _TEXT_ONLY),
    "mm_processor_kwargs": ((None, {}), _TEXT_ONLY),
    "mm_encoder_only": ((None, False), _TEXT_ONLY),
    "io_processor_plugin": ((None,), _TEXT_ONLY),
    "pooler_config": ((None,), "nothing is pooled"),
    "logits_processors": ((None, []), "logits are changed by the fields of SamplingParams alone"),
    "watermark_config": ((None, {}), "texts are not marked"),
    "diffusion_config": ((None, {}), "models are causal"),
    "enable_return_routed_experts": ((None, False), "there are no experts"),
    "return_sampling_mask": ((None, False), "masks are not told"),
    "aux_output_config": ((None, {}), "there are no further outputs"),
    "enable_trace_replay": ((None, False), "append the tokens to the prompt and score it"),
    "kv_transfer_config": ((None,), "keys and values stay in the process"),
    "ec_transfer_config": ((None,), "keys and values stay in the process"),
    "weight_transfer_config": ((None,), "weights do not change while a model is open"),
    "engram_config": ((None,), _ONE_MODEL),
    "additional_config": ((None, {}), "there is nothing further to set"),
    "worker_cls": ((None, "auto"), "there are no workers to replace"),
    "worker_extension_cls": ((None, ""), "there are no workers to extend"),
    "scheduler_cls": ((None,), "the scheduler cannot be replaced"),
}

# ---- harmless ------------------------------------------------------------------------------------

HARMLESS = frozenset(
    """
    _api_process_count _api_process_rank aggregate_engine_logging all2all_backend
    allow_deprecated_quantization allowed_local_media_path allowed_media_domains async_scheduling
    attention_backend attention_config block_size code_revision collect_detailed_traces
    compilation_config cp_kv_cache_interleave_size cpu_distributed_timeout_seconds cpu_offload_gb
    cpu_offload_params cudagraph_capture_sizes cudagraph_metrics custom_histogram_buckets
    data_parallel_address data_parallel_backend data_parallel_external_lb data_parallel_hybrid_lb
    data_parallel_multi_port_external_lb data_parallel_rank data_parallel_rpc_port
    data_parallel_size data_parallel_size_local data_parallel_start_rank
    dbo_decode_token_threshold dbo_prefill_token_threshold dcp_comm_backend
    dcp_kv_cache_interleave_size dcp_q_replicate decode_context_parallel_size device device_ids
    disable_cascade_attn disable_chunked_mm_input disable_custom_all_reduce
    disable_hybrid_kv_cache_manager disable_log_requests disable_log_stats
    disable_nccl_for_dp_synchronization distributed_executor_backend distributed_timeout_seconds
    download_dir dp_sync_interval ec_manager_config elastic_ep_max_dp_size
    enable_batch_sharded_sampling enable_chunked_prefill enable_cumem_allocator enable_dbo
    enable_elastic_ep enable_ep_weight_filter enable_eplb enable_expert_parallel
    enable_fault_tolerance enable_flashinfer_autotune enable_hc_sp enable_layerwise_nvtx_tracing
    enable_logging_iteration_details enable_mamba_cache_stochastic_rounding
    enable_mamba_shared_prefix_checkpoint enable_mfu_metrics enable_mixed_moe_lora_format
    enable_mm_processor_stats enable_moe_shared_loras enable_nccl_comm_suspend
    enable_shm_tensor_arena enable_sleep_mode enable_tower_connector_lora enforce_eager eplb_config
    expert_placement_strategy fail_on_environ_validation fault_tolerance_config fully_sharded_loras
    gdn_prefill_backend gpu_memory_utilization hf_token ignore_patterns interleave_mm_strings
    ir_op_priority jit_monitor_mode jit_monitor_verbose kda_decode_backend kda_prefill_backend
    kernel_config kv_cache_memory_bytes kv_cache_metrics kv_cache_metrics_sample kv_events_config
    kv_offloading_backend kv_offloading_size language_model_only limit_mm_per_prompt linear_backend
    log_config_file log_level logging_config long_prefill_token_threshold
    long_prefill_token_threshold_adaptive lora_dtype lora_target_modules mamba_backend
    mamba_block_size mamba_cache_dtype mamba_cache_mode mamba_cache_philox_rounds mamba_config
    mamba_ssm_cache_dtype mamba_ssu_algorithm master_addr master_port max_cpu_loras
    max_cudagraph_capture_size max_lora_cls_labels max_lora_rank max_loras max_num_active_seqs
    max_num_batched_tokens max_num_queued_reqs max_num_queued_tokens max_num_scheduled_tokens
    max_num_seqs max_parallel_loading_workers max_seq_len_to_capture media_io_kwargs
    mm_device_do_normalize mm_encoder_attn_backend mm_encoder_attn_dtype mm_encoder_fp8_scale_path
    mm_encoder_fp8_scale_save_margin mm_encoder_fp8_scale_save_path mm_encoder_tp_mode
    mm_hasher_algorithm mm_ipc_gpu_memory_gb mm_processor_cache_gb mm_processor_cache_type
    mm_processor_device mm_shm_cache_max_object_size_mb mm_tensor_ipc model_impl moe_backend nnodes
    node_rank num_gpu_blocks_override numa_bind numa_bind_cpus numa_bind_nodes offload_backend
    offload_group_size offload_num_in_group offload_params offload_prefetch_step optimization_level
    otlp_traces_endpoint per_request_spec_decode_metrics performance_mode pipeline_parallel_size
    prefill_context_parallel_size prefill_schedule_interval
    prefix_cache_retention_interval prefix_caching_hash_algo prefix_match_unit profiler_config
    pt_load_map_location ray_workers_use_nsight reasoning_config reasoning_parser
    reasoning_parser_plugin renderer_num_workers replayssm_buffer_len safetensors_load_strategy
    safetensors_prefetch_block_size safetensors_prefetch_num_threads scheduler_reserve_full_isl
    scheduling_policy served_model_name show_hidden_metrics_for_version shutdown_timeout
    skip_mm_profiling skip_tokenizer_init sleep_mode_offload_cudagraph
    sleep_preserve_parameter_names sparse_indexer_topk_backend spec_method spec_model spec_tokens
    specialize_active_lora speculative_config stream_interval structured_outputs_config swap_space
    tensor_parallel_size tokens_only trust_remote_code ubatch_size use_fp64_gumbel use_replayssm
    use_tqdm_on_load video_pruning_method video_pruning_rate watermark
    """.split()
)

# Those of `LLM` itself, for the nearest name.
MEANT = frozenset(
    """
    cache_memory chat_template cpu dtype enable_prefix_caching generation_config logprobs_mode
    max_logprobs max_memory max_model_len model override_generation_config profile seed threads
    tokenizer
    """.split()
)


def check(given: Mapping[str, object], stacklevel: int) -> None:
    """Refuses arguments that would change a number, and names those that mean nothing."""
    idle = []
    for name, value in given.items():
        if name in REFUSED:
            neutral, why = REFUSED[name]
            if not any(value is known or value == known for known in neutral):
                refuse(name, value, why)
        elif name not in HARMLESS:
            _unknown(name)
        elif not _is_neutral(name, value):
            idle.append(name)
    if idle:
        what = "has" if len(idle) == 1 else "have"
        warnings.warn(
            f"{', '.join(idle)} {what} no meaning here; no number depends on it",
            stacklevel=stacklevel + 1,
        )


def _is_neutral(name: str, value: object) -> bool:
    """Whether a value asks for what is done anyway."""
    if value is None or value is False:
        return True
    return name.endswith("parallel_size") and value == 1


def _unknown(name: str) -> NoReturn:
    import difflib  # slow to import, and seldom needed

    near = difflib.get_close_matches(name, sorted(MEANT | HARMLESS | set(REFUSED)), 1)
    raise TypeError(f"unknown argument {name!r}" + (f"; {near[0]!r} is meant?" if near else ""))


# ---- with a meaning ------------------------------------------------------------------------------

_PROFILES = {"auto": None, "float32": None, "float": None, "bfloat16": "bf16"}


def profile_of(dtype: object, profile: Optional[str], stacklevel: int) -> Optional[str]:
    """The profile of a dtype of vLLM's, by its name or as torch's object."""
    name = str(dtype).removeprefix("torch.")
    if name in ("float16", "half"):
        refuse(
            "dtype",
            dtype,
            "nothing is computed in float16: float32 (weights in float16 are read exactly) or "
            "bfloat16 is",
        )
    if name not in _PROFILES:
        wrong("dtype", dtype, 'must be "auto", "float32" or "bfloat16"')
    meant = _PROFILES[name]
    if profile is not None and meant is not None and profile != meant:
        wrong("dtype", dtype, f"contradicts profile={profile!r}: give one of them")
    if name == "auto" and profile is None:
        warnings.warn(
            'dtype="auto" is float32 here, whatever the file holds; say dtype="float32" or '
            '"bfloat16"',
            stacklevel=stacklevel + 1,
        )
    return profile or meant


def context_of(max_model_len: object) -> int:
    """Tokens of the longest sequence; 0: the model's own."""
    if max_model_len is None or max_model_len == "auto" or max_model_len == -1:
        return 0
    if isinstance(max_model_len, bool) or not isinstance(max_model_len, int):
        raise TypeError(f"max_model_len: a number of tokens is expected, not {max_model_len!r}")
    if max_model_len < 1:
        wrong("max_model_len", max_model_len, "must be 1 token or more; None is the model's own")
    return max_model_len


def cache_of(enable_prefix_caching: Optional[bool], cache_memory: Optional[int]) -> Optional[int]:
    """Bytes of the prefix cache; None: the default."""
    if enable_prefix_caching is not None and not enable_prefix_caching:
        if cache_memory:
            wrong("cache_memory", cache_memory, "contradicts enable_prefix_caching=False")
        return 0
    return cache_memory


def check_tokenizer(tokenizer: object, model: str) -> None:
    """The model's own is the only one: another would make other ids of a text."""
    if tokenizer is not None and Path(str(tokenizer)) != Path(model):
        refuse(
            "tokenizer",
            tokenizer,
            "texts are encoded by the model's own tokenizer; encode them yourself and give ids",
        )


def template_of(chat_template: Union[str, Path, None]) -> Optional[str]:
    """A chat template, given as a file or as Jinja itself."""
    if chat_template is None:
        return None
    if isinstance(chat_template, str) and ("{" in chat_template or "\n" in chat_template):
        return chat_template
    return Path(chat_template).read_text(encoding="utf-8")


def generation_config_of(source: str, model: str) -> dict[str, object]:
    """What generation_config.json says; {} where there is none.

    "auto" and "vllm" read the model's folder ("vllm" for its end-of-text ids alone), anything else
    is the folder of another one.
    """
    folder = Path(model if source in ("auto", "vllm") else source)
    path = folder / "generation_config.json"
    if not path.is_file():
        if source in ("auto", "vllm"):
            return {}
        wrong("generation_config", source, 'must be "auto", "vllm" or a folder that has one')
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        wrong("generation_config", str(path), "generation_config.json must hold an object")
    return cast("dict[str, object]", found)


# What of it changes how tokens are drawn where no SamplingParams are given.
_DRAWN = (
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "max_new_tokens",
)


def default_params(
    config: Mapping[str, object], source: str, override: Mapping[str, object]
) -> dict[str, object]:
    """The fields of `SamplingParams` that a generation_config.json sets."""
    known = {} if source == "vllm" else dict(config)
    known.update(override)
    found = {name: known[name] for name in _DRAWN if known.get(name) is not None}
    if "max_new_tokens" in found:
        found["max_tokens"] = found.pop("max_new_tokens")
    return found


def end_ids(config: Mapping[str, object], eos_id: int) -> list[int]:
    """The ids, beside EOS, that end a text."""
    ids = config.get("eos_token_id")
    listed = [ids] if isinstance(ids, int) else cast("list[int]", ids or [])
    return [token for token in listed if token != eos_id]
