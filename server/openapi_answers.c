/*
 * openapi_answers.c - the shapes of answers. They are written by hand, since an answer is written
 * by code; a test validates answers of every route against them.
 */
#include "openapi.h"

#include <string.h>

#define HEAD "created: count, model: text, system_fingerprint: text, "
#define ENDING "finish_reason: 'stop' | 'length' | null, stop_reason: text | count | null"
#define MEANING "logprobs_mode?: text, profile?: text, numerics?: text"
#define RANKED "token_id: count, logprob: number, rank: count | null"
#define NAMED RANKED ", token: text, bytes: [count] | null"
#define CHOOSE_NUMBERS                                                                             \
    "mean: number | null, total: number | null, per_byte: number | null, per_character: number | " \
    "null, calibrated: number | null"
#define ONE_PROMPT                                                                      \
    "prompt_logprobs: PromptLogprobs | null, prompt_token_id_logprobs: Scores | null, " \
    "prompt_logprob_tail: [number] | null, prompt_logprob_mass: [number] | null, "      \
    "prompt_token_ids: [count] | null"
/* Of a list of prompts, a list of each. */
#define PROMPTS                                                   \
    "prompt_logprobs: PromptLogprobs | [PromptLogprobs] | null, " \
    "prompt_token_id_logprobs: Scores | [Scores] | null, "        \
    "prompt_logprob_tail: [number] | [[number]] | null, "         \
    "prompt_logprob_mass: [number] | [[number]] | null, "         \
    "prompt_token_ids: [count] | [[count]] | null"

const struct answer_shape named_shapes[] = {
    {"Error", "{error: {message: text, type: text, param: text | null, code: count}}",
     "param is the path of the field, code the status.", false},
    {"Health", "{status: 'ok' | 'loading' | 'failed' | 'stopping', reason?: text}", NULL, false},
    {"Usage",
     "{prompt_tokens: count, completion_tokens: count, total_tokens: count, "
     "prompt_tokens_details: {cached_tokens: count}}",
     NULL, false},
    {"PromptLogprobs", "[<{logprob: number, rank: count, decoded_token: text | null}> | null]",
     "As long as the prompt; null where nothing is scored, else by token id, the true token first.",
     false},
    {"Scores", "text | [[number]]",
     "Rows by candidates: base64 of a .npy file of float32, or lists of numbers.", false},
    {"RankedToken", "{" RANKED ", top_logprobs: [{" RANKED "}]}", NULL, false},
    {"NamedToken", "{" NAMED ", top_logprobs: [{" NAMED "}], begin?: count, end?: count}",
     "begin and end, of a scored message: bytes of its content.", false},
    {"LegacyLogprobs",
     "{tokens: [text], token_logprobs: [number | null], top_logprobs: [<number> | null], "
     "text_offset: [count], token_ids: [count], ranks: [count | null], bytes: [[count] | null], "
     "top_tokens: [[{token: text, " RANKED "}] | null]}",
     "Lists of one length. top_logprobs has texts for keys, of which several tokens may share one: "
     "top_tokens has them all.",
     false},
    {"Triple", "[number | count | text | null]", "Log-probability, token id, text.", false},
    {"SGLangAnswer",
     "{text: text, output_ids: [count], meta_info: {id: text, finish_reason: {type: text, length?: "
     "count, matched?: text | count | null} | null, prompt_tokens: count, completion_tokens: "
     "count, cached_tokens: count, e2e_latency: number, prompt_token_ids?: [count], "
     "input_token_logprobs?: [Triple], output_token_logprobs?: [Triple], input_top_logprobs?: "
     "[[Triple] | null], output_top_logprobs?: [[Triple]], input_token_ids_logprobs?: [[Triple] | "
     "null], output_token_ids_logprobs?: [[Triple]], " MEANING "}}",
     "With prompt_logprobs or candidates, and no return_logprob, also the members that prompts "
     "have elsewhere.",
     false},
    {"ScoreResult",
     "{token_ids: [count], tokens?: [text], offsets?: [[count]], logprobs?: [number | null], "
     "logits?: [number | null], ranks: [count | null], entropies?: [number | null], top_logprobs?: "
     "[[{token_id: count, token: text, logprob: number, rank: count}] | null], top_logits?: "
     "[[{token_id: count, token: text, logit: number, rank: count}] | null], log_mass_not_listed?: "
     "[number | null], total?: number | null, mean?: number | null, perplexity?: number | null, "
     "bits_per_byte?: number | null, n_tokens: count, n_scored: count, n_bytes: count, "
     "n_scored_bytes: count, conditioning: text}",
     "Lists are as long as the text, null where nothing is scored.", false},
    {"LlamaProbability",
     "{id: count, token: text, bytes: [count] | null, logprob?: number, prob?: number}", NULL,
     false},
    {"LlamaAnswer",
     "{content: text, index: count, tokens: [count], id_slot: whole, stop: flag, model: text, "
     "prompt: text | null, tokens_predicted: count, tokens_evaluated: count, tokens_cached: count, "
     "truncated: flag, has_new_line: flag, stop_type: text, stopping_word: text, "
     "generation_settings: any, timings: <number>, completion_probabilities?: [{id: count, token: "
     "text, bytes: [count] | null, logprob?: number, prob?: number, top_logprobs?: "
     "[LlamaProbability], top_probs?: [LlamaProbability]}], " MEANING "}",
     "With prompt_logprobs or candidates also the members that prompts have elsewhere.", false},
};
const size_t n_named_shapes = sizeof named_shapes / sizeof named_shapes[0];

const struct answer_shape answer_shapes[] = {
    {"/inference/v1/generate",
     "{request_id: text, " HEAD "choices: [{index: count, token_ids: [count], logprobs: {content: "
     "[RankedToken]} | null, " ENDING ", text?: text}], " PROMPTS ", " MEANING
     ", kv_transfer_params: null, usage: Usage}",
     NULL, true},
    {"/v1/completions",
     "{id: text, object: 'text_completion', " HEAD "choices: [{index: count, text: text, logprobs: "
     "LegacyLogprobs | null, " ENDING ", token_ids: [count] | null, " ONE_PROMPT "}], " MEANING
     ", warnings?: [text], usage: Usage}",
     NULL, true},
    {"/v1/chat/completions",
     "{id: text, object: 'chat.completion', " HEAD "choices: [{index: count, message: {role: text, "
     "content: text, refusal: null}, logprobs: {content: [NamedToken], refusal: null} | "
     "null, " ENDING ", token_ids: [count] | null}], " PROMPTS
     ", final_message_logprobs?: [NamedToken], " MEANING
     ", warnings?: [text], prompt_text?: text, usage: Usage}",
     NULL, true},
    {"/tokenize",
     "{count: count, max_model_len: count, tokens: [count], token_strs: [text] | null}", NULL,
     false},
    {"/detokenize", "{prompt: text}", NULL, false},
    {"/tokenizer_info",
     "{tokenizer_class: text | null, bos_token: text | null, eos_token: text | null, pad_token: "
     "text | null, unk_token: text | null, chat_template: text | null, add_bos_token: flag, "
     "add_eos_token: flag, bos_token_id: whole, eos_token_id: whole, vocab_size: count, "
     "model_max_length: count}",
     NULL, false},
    {"/health", "Health", NULL, false},
    {"/ping", "Health", NULL, false},
    {"/version", "{version: text, numerics: text}", NULL, false},
    {"/v1/models",
     "{object: 'list', data: [{id: text, object: 'model', created: count, owned_by: text, root: "
     "text, parent: null, max_model_len: count, system_fingerprint: text, vocab_size: count}]}",
     NULL, false},
    {"/metrics", "text", NULL, false},
    {"/openapi.json", "{openapi: text, info: any, servers: any, paths: any, components: any}", NULL,
     false},
    {"/docs", "text", NULL, false},
    {"/get_sequence_logprobs/",
     "{logprobs?: [[[number]]], logprob_token_ids?: [[[count]]], actual_logprobs?: [[[number]]], "
     "actual_token_ids?: [[[count]]], logprobs_b64?: text, token_ids_b64?: text, "
     "actual_logprobs_b64?: text, actual_token_ids_b64?: text, shape?: [count], "
     "completion_lengths?: [count], model: text, " MEANING "}",
     NULL, false},
    {"/get_world_size/", "{world_size: count}", NULL, false},
    {"/generate", "SGLangAnswer | [SGLangAnswer]", NULL, true},
    {"/completion", "LlamaAnswer | [LlamaAnswer]", NULL, true},
    {"/generative_scoring",
     "{id: text, object: 'list', " HEAD "data: [{index: count, object: 'score', score: number, "
     "label_logprobs: [number]}], " MEANING ", usage: Usage}",
     NULL, false},
    {"/nepit/v1/score",
     "{request_id: text, " HEAD "results: [ScoreResult], " MEANING ", usage: Usage}", NULL, false},
    {"/nepit/v1/gather",
     "{request_id: text, " HEAD "results: [{start: count, row_token_ids: [count], scores: Scores, "
     "tail?: [number], n_tokens: count, split?: text}], " MEANING ", usage: Usage}",
     NULL, true},
    {"/nepit/v1/choose",
     "{request_id: text, " HEAD "by: text, winner: count | null, winners: <count | null>, options: "
     "[{index: count, " CHOOSE_NUMBERS ", probability: number | null, text?: text, token_ids?: "
     "[count], tokens?: [text], logprobs?: [number], start?: count, straddles?: flag, n_tokens?: "
     "count, n_bytes?: count, n_characters?: count, variants?: [{text: text, " CHOOSE_NUMBERS
     ", token_ids: [count], tokens: [text], logprobs: [number], start: count, straddles: flag, "
     "n_tokens: count, n_bytes: count, n_characters: count}]}], split: text, conditioning: text, "
     "warnings: [text], " MEANING ", usage: Usage}",
     NULL, false},
    {"/nepit/v1/perplexity",
     "{request_id: text, " HEAD "total: number | null, mean: number | null, perplexity: number | "
     "null, bits_per_byte: number | null, n_tokens: count, n_scored: count, n_bytes: count, "
     "n_scored_bytes: count, n_windows: count, n_computed: count, window: count, stride: count, "
     "conditioning: text, " MEANING ", usage: Usage}",
     NULL, false},
};
const size_t n_answer_shapes = sizeof answer_shapes / sizeof answer_shapes[0];

const struct answer_shape *answer_shape_of(const char *path)
{
    for (size_t i = 0; i < n_answer_shapes; i++)
        if (strcmp(answer_shapes[i].path, path) == 0) return &answer_shapes[i];
    return NULL;
}
