/*
 * arch.c - the rows of arch.h: one per architecture.
 *
 * The surprising decision: nothing is ignored because it is not known. A model that is almost right
 * is wrong, so a setting without a rule or a tensor without a place is refused by name. Sources of
 * the names: transformers' configuration_*.py and modeling_*.py, ggml's gguf-py/gguf/constants.py.
 */
#include "model/arch.h"

#include <stddef.h>
#include <stdio.h>

#include "model/settings.h"

/* ---- settings ----------------------------------------------------------------------------------
 * */

#define FIELD(name) offsetof(struct model_config, name)
#define SIZE(key, name)                         \
    {                                           \
        key, RULE_SIZE, FIELD(name), true, NULL \
    }
#define SIZE_IF(key, name)                       \
    {                                            \
        key, RULE_SIZE, FIELD(name), false, NULL \
    }
#define REAL(key, name)                         \
    {                                           \
        key, RULE_REAL, FIELD(name), true, NULL \
    }
#define REAL_IF(key, name)                       \
    {                                            \
        key, RULE_REAL, FIELD(name), false, NULL \
    }
#define FLAG(key, name)                          \
    {                                            \
        key, RULE_FLAG, FIELD(name), false, NULL \
    }
#define EXPECT(key, text)                \
    {                                    \
        key, RULE_EXPECT, 0, false, text \
    }
#define IGNORE(key)                      \
    {                                    \
        key, RULE_IGNORE, 0, false, NULL \
    }
#define END_RULES                         \
    {                                     \
        NULL, RULE_IGNORE, 0, false, NULL \
    }

/* Llama and Qwen2. Biases are used where the file has them; pretraining_tp only cuts the same
 * product into pieces. */
#define LLAMA_HF                                                                                   \
    SIZE("num_hidden_layers", n_layers), SIZE("hidden_size", dim),                                 \
        SIZE("num_attention_heads", n_heads), SIZE_IF("num_key_value_heads", n_kv_heads),          \
        SIZE_IF("head_dim", head_dim), SIZE("intermediate_size", ffn_dim),                         \
        SIZE("vocab_size", n_vocab), SIZE("max_position_embeddings", n_context),                   \
        REAL("rms_norm_eps", norm_eps), REAL_IF("rope_theta", rope_theta),                         \
        REAL_IF("rope_parameters.rope_theta", rope_theta), FLAG("tie_word_embeddings", head_tied), \
        EXPECT("rope_parameters.rope_type", "default"), EXPECT("rope_parameters.type", "default"), \
        EXPECT("rope_scaling", "null"), EXPECT("rope_scaling.rope_type", "default"),               \
        EXPECT("rope_scaling.type", "default"), EXPECT("rope_interleaved", "false"),               \
        EXPECT("hidden_act", "silu"), IGNORE("attention_bias"), IGNORE("mlp_bias"),                \
        IGNORE("pretraining_tp"), IGNORE("is_llama_config")
/* Llama itself never reads sliding_window. */
static const struct setting_rule llama_hf[] = {LLAMA_HF,
                                               EXPECT("layer_types", "full_attention"),
                                               EXPECT("use_sliding_window", "false"),
                                               IGNORE("sliding_window"),
                                               IGNORE("max_window_layers"),
                                               END_RULES};
/* These four are read together: windows_qwen2. */
static const struct setting_rule qwen2_hf[] = {LLAMA_HF,
                                               IGNORE("layer_types"),
                                               IGNORE("use_sliding_window"),
                                               IGNORE("sliding_window"),
                                               IGNORE("max_window_layers"),
                                               END_RULES};

static const struct setting_rule llama_gguf[] = {SIZE("block_count", n_layers),
                                                 SIZE("embedding_length", dim),
                                                 SIZE("attention.head_count", n_heads),
                                                 SIZE_IF("attention.head_count_kv", n_kv_heads),
                                                 SIZE_IF("attention.key_length", head_dim),
                                                 SIZE_IF("attention.value_length", head_dim),
                                                 SIZE_IF("rope.dimension_count", head_dim),
                                                 SIZE("feed_forward_length", ffn_dim),
                                                 SIZE_IF("vocab_size", n_vocab),
                                                 SIZE("context_length", n_context),
                                                 REAL("attention.layer_norm_rms_epsilon", norm_eps),
                                                 REAL_IF("rope.freq_base", rope_theta),
                                                 EXPECT("rope.scaling.type", "none"),
                                                 EXPECT("rope.scaling.factor", "1"),
                                                 EXPECT("rope.scale_linear", "1"),
                                                 EXPECT("expert_count", "0"),
                                                 EXPECT("expert_used_count", "0"),
                                                 END_RULES};

static const struct setting_rule gpt2_hf[] = {
    SIZE("n_layer", n_layers),
    SIZE("n_embd", dim),
    SIZE("n_head", n_heads),
    SIZE_IF("n_inner", ffn_dim),
    SIZE("vocab_size", n_vocab),
    SIZE("n_positions", n_context),
    REAL_IF("layer_norm_epsilon", norm_eps),
    FLAG("tie_word_embeddings", head_tied),
    EXPECT("activation_function", "gelu_new|gelu_pytorch_tanh"),
    EXPECT("scale_attn_weights", "true"),
    EXPECT("scale_attn_by_inverse_layer_idx", "false"),
    EXPECT("add_cross_attention", "false"),
    IGNORE("reorder_and_upcast_attn"),
    IGNORE("n_ctx"),
    IGNORE("attn_pdrop"),
    IGNORE("embd_pdrop"),
    IGNORE("resid_pdrop"),
    IGNORE("summary_*"),
    END_RULES};

static const struct setting_rule gpt2_gguf[] = {SIZE("block_count", n_layers),
                                                SIZE("embedding_length", dim),
                                                SIZE("attention.head_count", n_heads),
                                                SIZE_IF("attention.head_count_kv", n_kv_heads),
                                                SIZE("feed_forward_length", ffn_dim),
                                                SIZE_IF("vocab_size", n_vocab),
                                                SIZE("context_length", n_context),
                                                REAL("attention.layer_norm_epsilon", norm_eps),
                                                END_RULES};

/* ---- weights -----------------------------------------------------------------------------------
 * */

#define MODEL(field) offsetof(struct model, field)
#define LAYER(field) offsetof(struct layer, field)
#define MATRIX(hf, gguf, place, rows, cols, flags)        \
    {                                                     \
        hf, gguf, WEIGHT_MATRIX, place, rows, cols, flags \
    }
#define BIAS(hf, gguf, place, rows, flags)                                   \
    {                                                                        \
        hf, gguf, WEIGHT_BIAS, place, rows, X_ONE, (flags) | WEIGHT_OPTIONAL \
    }
#define VECTOR(hf, gguf, place, rows)                  \
    {                                                  \
        hf, gguf, WEIGHT_VECTOR, place, rows, X_ONE, 0 \
    }
#define END_WEIGHTS                                   \
    {                                                 \
        NULL, NULL, WEIGHT_MATRIX, 0, X_ONE, X_ONE, 0 \
    }
#define H(name) "model.layers.%zu." name
#define G(name) "blk.%zu." name

static const struct weight llama_weights[] = {
    MATRIX("model.embed_tokens.weight", "token_embd.weight", MODEL(embedding), X_VOCAB, X_DIM, 0),
    MATRIX("lm_head.weight", "output.weight", MODEL(head), X_VOCAB, X_DIM, WEIGHT_OPTIONAL),
    VECTOR("model.norm.weight", "output_norm.weight", MODEL(norm_gain), X_DIM), END_WEIGHTS};

/* GGUF holds the rows of q and k of Llama, and of Llama alone, in the order of its own rotation. */
#define LLAMA_LAYER(permuted)                                                                     \
    VECTOR(H("input_layernorm.weight"), G("attn_norm.weight"), LAYER(norm1_gain), X_DIM),         \
        VECTOR(H("post_attention_layernorm.weight"), G("ffn_norm.weight"), LAYER(norm2_gain),     \
               X_DIM),                                                                            \
        MATRIX(H("self_attn.q_proj.weight"), G("attn_q.weight"), LAYER(qkv[0]), X_Q, X_DIM,       \
               permuted),                                                                         \
        MATRIX(H("self_attn.k_proj.weight"), G("attn_k.weight"), LAYER(qkv[1]), X_KV, X_DIM,      \
               permuted),                                                                         \
        MATRIX(H("self_attn.v_proj.weight"), G("attn_v.weight"), LAYER(qkv[2]), X_KV, X_DIM, 0),  \
        MATRIX(H("self_attn.o_proj.weight"), G("attn_output.weight"), LAYER(out), X_DIM, X_Q, 0), \
        MATRIX(H("mlp.gate_proj.weight"), G("ffn_gate.weight"), LAYER(up[0]), X_FFN, X_DIM, 0),   \
        MATRIX(H("mlp.up_proj.weight"), G("ffn_up.weight"), LAYER(up[1]), X_FFN, X_DIM, 0),       \
        MATRIX(H("mlp.down_proj.weight"), G("ffn_down.weight"), LAYER(down), X_DIM, X_FFN, 0),    \
        BIAS(H("self_attn.q_proj.bias"), G("attn_q.bias"), LAYER(qkv[0]), X_Q, permuted),         \
        BIAS(H("self_attn.k_proj.bias"), G("attn_k.bias"), LAYER(qkv[1]), X_KV, permuted),        \
        BIAS(H("self_attn.v_proj.bias"), G("attn_v.bias"), LAYER(qkv[2]), X_KV, 0),               \
        BIAS(H("self_attn.o_proj.bias"), G("attn_output.bias"), LAYER(out), X_DIM, 0),            \
        BIAS(H("mlp.gate_proj.bias"), G("ffn_gate.bias"), LAYER(up[0]), X_FFN, 0),                \
        BIAS(H("mlp.up_proj.bias"), G("ffn_up.bias"), LAYER(up[1]), X_FFN, 0),                    \
        BIAS(H("mlp.down_proj.bias"), G("ffn_down.bias"), LAYER(down), X_DIM, 0), END_WEIGHTS
static const struct weight llama_layer[] = {LLAMA_LAYER(WEIGHT_PERMUTED)};
static const struct weight qwen2_layer[] = {LLAMA_LAYER(0)};

#undef H
#define H(name) "h.%zu." name
static const struct weight gpt2_weights[] = {
    MATRIX("wte.weight", "token_embd.weight", MODEL(embedding), X_VOCAB, X_DIM, 0),
    MATRIX("lm_head.weight", "output.weight", MODEL(head), X_VOCAB, X_DIM, WEIGHT_OPTIONAL),
    {"wpe.weight", "position_embd.weight", WEIGHT_VECTOR, MODEL(positions), X_CONTEXT, X_DIM, 0},
    VECTOR("ln_f.weight", "output_norm.weight", MODEL(norm_gain), X_DIM),
    VECTOR("ln_f.bias", "output_norm.bias", MODEL(norm_bias), X_DIM),
    END_WEIGHTS};

static const struct weight gpt2_layer[] = {
    VECTOR(H("ln_1.weight"), G("attn_norm.weight"), LAYER(norm1_gain), X_DIM),
    VECTOR(H("ln_1.bias"), G("attn_norm.bias"), LAYER(norm1_bias), X_DIM),
    VECTOR(H("ln_2.weight"), G("ffn_norm.weight"), LAYER(norm2_gain), X_DIM),
    VECTOR(H("ln_2.bias"), G("ffn_norm.bias"), LAYER(norm2_bias), X_DIM),
    MATRIX(H("attn.c_attn.weight"), G("attn_qkv.weight"), LAYER(qkv[0]), X_QKV, X_DIM,
           WEIGHT_TRANSPOSED),
    MATRIX(H("attn.c_proj.weight"), G("attn_output.weight"), LAYER(out), X_DIM, X_DIM,
           WEIGHT_TRANSPOSED),
    MATRIX(H("mlp.c_fc.weight"), G("ffn_up.weight"), LAYER(up[0]), X_FFN, X_DIM, WEIGHT_TRANSPOSED),
    MATRIX(H("mlp.c_proj.weight"), G("ffn_down.weight"), LAYER(down), X_DIM, X_FFN,
           WEIGHT_TRANSPOSED),
    BIAS(H("attn.c_attn.bias"), G("attn_qkv.bias"), LAYER(qkv[0]), X_QKV, 0),
    BIAS(H("attn.c_proj.bias"), G("attn_output.bias"), LAYER(out), X_DIM, 0),
    BIAS(H("mlp.c_fc.bias"), G("ffn_up.bias"), LAYER(up[0]), X_FFN, 0),
    BIAS(H("mlp.c_proj.bias"), G("ffn_down.bias"), LAYER(down), X_DIM, 0),
    END_WEIGHTS};

/* ---- the table ---------------------------------------------------------------------------------
 * */

#define ROPE_MODEL                                                                       \
    {                                                                                    \
        .norm = NORM_RMS, .ffn = FFN_SILU_GATED, .rope = ROPE_PLAIN, .rope_theta = 10000 \
    }

static const struct architecture architectures[] = {
    {"llama", "", ROPE_MODEL, llama_hf, llama_gguf, llama_weights, llama_layer, NULL},
    {"qwen2", "", ROPE_MODEL, qwen2_hf, llama_gguf, llama_weights, qwen2_layer, windows_qwen2},
    {"gpt2",
     "transformer.",
     {.norm = NORM_LAYER,
      .ffn = FFN_GELU_TANH,
      .rope = ROPE_NONE,
      .norm_eps = 1e-5,
      .head_tied = true,
      .learned_positions = true},
     gpt2_hf,
     gpt2_gguf,
     gpt2_weights,
     gpt2_layer,
     NULL},
};

const struct architecture *architecture_of(const struct modelfile *file, np_error *err)
{
    bool gguf = modelfile_container(file) == CONTAINER_GGUF;
    const char *key = gguf ? "general.architecture" : "model_type";
    const struct setting *setting = modelfile_get(file, key);
    char known[128] = "";
    if (!setting || setting->type != SETTING_STRING) {
        error_set(err, NP_EFORMAT, key, NO_OFFSET,
                  "the setting that names the architecture is missing");
        return NULL;
    }
    for (size_t i = 0, n = 0; i < sizeof architectures / sizeof *architectures; i++) {
        const char *name = architectures[i].name;
        if (setting->text.n_bytes == strlen(name) &&
            memcmp(setting->text.bytes, name, strlen(name)) == 0)
            return &architectures[i];
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", name);
    }
    error_set(err, NP_EUNSUPPORTED, key, NO_OFFSET, "the architecture is not supported (known: %s)",
              known);
    error_given(err, NP_EUNSUPPORTED, "%.*s",
                setting->text.n_bytes < 40 ? (int)setting->text.n_bytes : 40, setting->text.bytes);
    return NULL;
}

void extents_of(const struct model_config *config, size_t out[X_COUNT])
{
    size_t q = config->n_heads * config->head_dim, kv = config->n_kv_heads * config->head_dim;
    const size_t extents[X_COUNT] = {[X_ONE] = 1,
                                     [X_DIM] = config->dim,
                                     [X_Q] = q,
                                     [X_KV] = kv,
                                     [X_QKV] = q + 2 * kv,
                                     [X_FFN] = config->ffn_dim,
                                     [X_VOCAB] = config->n_vocab,
                                     [X_CONTEXT] = config->n_context};
    memcpy(out, extents, sizeof extents);
}
