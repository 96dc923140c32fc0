/*
 * The groups of fields that routes share. Where engines call a thing differently each name has its
 * row; where they disagree about a default the route's own row stands before the group's, and the
 * last default of a place counts.
 */
#include "ask_fields.h"
#include "server.h"

const char *const server_modes[] = {"raw_logprobs", "raw_logits", "processed_logprobs",
                                    "processed_logits", NULL};
const char *const score_format_names[] = {"base64", "list", NULL};

const struct field drawing_fields[] = {
    NUMBERS("n", FIELD_INT, n, 1, 128, "1", "OpenAI", NULL, "Choices per prompt."),
    NUMBERS("temperature", FIELD_NUMBER, temperature, 0, 2, "1", "OpenAI", NULL,
            "Divides the logits before a token is drawn; 0: always the likeliest. It never touches "
            "scores of given tokens."),
    NUMBERS("top_p", FIELD_ABOVE0, top_p, 0, 1, "1", "OpenAI", NULL,
            "Draws from the likeliest tokens that hold this mass."),
    NUMBERS("top_k", FIELD_INT, top_k, -1, COUNT_MAX, "0", "vLLM", NULL,
            "Draws from the k likeliest tokens; 0 and -1: from all."),
    NUMBERS("min_p", FIELD_NUMBER, min_p, 0, 1, "0", "vLLM", NULL,
            "No token below this times the likeliest one's probability."),
    NUMBERS("presence_penalty", FIELD_NUMBER, presence_penalty, -2, 2, "0", "OpenAI", NULL,
            "Taken from the logit of tokens that were generated."),
    NUMBERS("frequency_penalty", FIELD_NUMBER, frequency_penalty, -2, 2, "0", "OpenAI", NULL,
            "The same, for each time that they were."),
    NUMBERS("repetition_penalty", FIELD_ABOVE0, repetition_penalty, 0, 1e30, "1", "vLLM", NULL,
            "Divides positive logits of tokens of the prompt and the text; 1: none."),
    ROW("seed", FIELD_SEED, seed, "null", "OpenAI", "sampling.seed",
        "The same seed gives the same text, whatever else runs; null or -1: a random one."),
    ROW("stop", FIELD_TEXTS, stop, NULL, "OpenAI", NULL, "Texts that end a choice; at most 64."),
    ROW("stop_token_ids", FIELD_IDS, stop_ids, NULL, "vLLM", NULL, "Token ids that end it too."),
    ROW("ignore_eos", FIELD_FLAG, ignore_eos, "false", "vLLM", NULL,
        "The model's end token does not end a choice."),
    NUMBERS("min_tokens", FIELD_INT, min_tokens, 0, COUNT_MAX, "0", "vLLM", NULL,
            "Nothing ends a choice before it has so many tokens."),
    ROW("include_stop_str_in_output", FIELD_FLAG, include_stop, "false", "vLLM", NULL,
        "Leaves in the text what ended it."),
    ROW("skip_special_tokens", FIELD_FLAG, skip_special, "true", "vLLM", NULL,
        "Special tokens do not appear in the text."),
    ROW("logit_bias", FIELD_BIASES, biases, NULL, "OpenAI", NULL,
        "{\"token id\": bias}, added to logits; what is beyond -100 or 100 is taken as that."),
    ROW("allowed_token_ids", FIELD_IDS, allowed_ids, NULL, "vLLM", NULL,
        "No other token is generated."),
    ROW("bad_words", FIELD_TEXTS, bad_words, NULL, "vLLM", NULL, "Texts that are not generated."),
    IGNORED("spaces_between_special_tokens", "vLLM", "Texts are those of the tokens, as they are."),
    IGNORED("detokenize", "vLLM", "Text costs nothing worth leaving it out."),
    ONLY("use_beam_search", "[false]", "vLLM", "Beams are not searched."),
    ONLY("best_of", "[1]", "OpenAI", "Choices are not drawn to be dropped."),
    ONLY("length_penalty", "[1]", "vLLM", "Of beams."),
    ONLY("early_stopping", "[false]", "vLLM", "Of beams."),
    ONLY("guided_json", "[]", "vLLM", "Texts are not bound to a grammar."),
    ONLY("guided_regex", "[]", "vLLM", "Texts are not bound to a grammar."),
    ONLY("guided_choice", "[]", "vLLM", "Use /nepit/v1/choose."),
    ONLY("guided_grammar", "[]", "vLLM", "Texts are not bound to a grammar."),
    ONLY("structured_outputs", "[]", "vLLM", "Texts are not bound to a grammar."),
    ONLY("thinking_token_budget", "[]", "vLLM", "Tokens are not forced."),
    ONLY("logits_processors", "[[]]", "vLLM", "Code of others is not run."),
    LAST_ROW};

const struct field scoring_fields[] = {
    NUMBERS("prompt_logprobs", FIELD_COUNT, prompt_logprobs, -1, COUNT_MAX, "null", "vLLM", "top",
            "For every token of the prompt its log-probability and those of so many likeliest "
            "ones; 0: its own alone; -1: of the whole vocabulary."),
    ROW("prompt_logprob_token_ids", FIELD_CANDIDATES, candidates, NULL, "vLLM", "candidate_ids",
        "Candidates scored at every row: one list for all rows, or a list per row (ragged, -1 "
        "pads). For several prompts with lists per row, one more level. A list may be base64 of a "
        ".npy."),
    NUMBERS("prompt_logprob_start", FIELD_INT, start, 0, 1e15, "null", "vLLM", "start",
            "The first row; row r scores token r+1. For a context of C tokens it is C-1."),
    ROW("prompt_logprob_tail", FIELD_FLAG, tail, "false", "nepit", "tail",
        "Adds log(1 - sum of the candidates' probabilities) per row."),
    ROW("prompt_logprob_mass", FIELD_FLAG, mass, "false", "nepit", NULL,
        "Adds log(1 - sum of the likeliest tokens' probabilities) per row of prompt_logprobs."),
    NAMES("prompt_logprob_format", score_format, score_format_names, "\"base64\"", "nepit",
          "How the candidates' scores are told: base64 of a .npy file, or lists of numbers."),
    NUMBERS("score_temperature", FIELD_ABOVE0, score_temperature, 0, FLT_MAX, "null", "nepit", NULL,
            "Divides logits before the softmax of scored rows; null: 1."),
    NUMBERS("prompt_logprobs_temperature", FIELD_ABOVE0, score_temperature, 0, FLT_MAX, "null",
            "vLLM", "score_temperature", "The same as score_temperature."),
    NAMES("logprobs_mode", logprobs_mode, server_modes, NULL, "vLLM",
          "Log-probabilities or logits, before (raw) or after penalties, masks and temperature; "
          "the last two concern generated tokens alone."),
    LAST_ROW};

const struct field running_fields[] = {
    NUMBERS("priority", FIELD_INT, priority, INT32_MIN, INT32_MAX, "0", "vLLM", NULL,
            "Lower numbers go first; within a number requests share evenly."),
    ROW("cache_salt", FIELD_WORD, cache_salt, NULL, "vLLM", NULL,
        "Only requests with the same salt share what is cached."),
    ROW("skip_reading_prefix_cache", FIELD_FLAG, skip_cache, "false", "vLLM", NULL,
        "Computes everything anew. The numbers are the same."),
    NUMBERS("timeout_ms", FIELD_INT, timeout_ms, 1, 9e12, "null", "nepit", NULL,
            "Ends the request with 408 after so many milliseconds."),
    ONLY("kv_transfer_params", "[{}]", "vLLM", "Keys and values stay here."),
    ONLY("extra_args", "[{}]", "vLLM", "There are no further arguments."),
    ONLY("vllm_xargs", "[{}]", "vLLM", "There are no further arguments."),
    ONLY("lora_request", "[]", "vLLM", "There are no adapters."),
    IGNORED("data_parallel_rank", "vLLM", "There is one engine."),
    LAST_ROW};

const struct field identity_fields[] = {
    ROW("model", FIELD_WORD, model, NULL, "OpenAI", NULL,
        "The served model's name; null: what is served; another: 404."),
    ROW("request_id", FIELD_WORD, request_id, NULL, "vLLM", NULL, "Told back, and logged."),
    ROW("fingerprint", FIELD_WORD, fingerprint, NULL, "nepit", NULL,
        "The system_fingerprint that is expected, or its first part: refused if the model is "
        "another."),
    IGNORED("user", "OpenAI", "Who asks."),
    IGNORED("metadata", "OpenAI", "Whatever the client keeps there."),
    LAST_ROW};

static const struct field stream_options[] = {
    ROW("include_usage", FIELD_FLAG, include_usage, "false", "OpenAI", NULL,
        "A last event tells the number of tokens."),
    ROW("continuous_usage_stats", FIELD_FLAG, continuous_usage, "false", "vLLM", NULL,
        "Every event tells it."),
    IGNORED("include_obfuscation", "OpenAI", "Nothing is added to events."), LAST_ROW};
static const struct field *const stream_option_groups[] = {stream_options, NULL};
const struct field stream_fields[] = {
    ROW("stream", FIELD_FLAG, stream, "false", "OpenAI", NULL, "Answers as server-sent events."),
    OBJECT("stream_options", stream_option_groups, "OpenAI", "Only with stream."), LAST_ROW};

const struct field special_fields[] = {
    ROW("add_special_tokens", FIELD_CHOICE, add_special, NULL, "vLLM", "add_special",
        "Whether BOS and EOS are added to a text as the tokenizer does."),
    ROW("parse_special", FIELD_CHOICE, parse_special, NULL, "llama.cpp", NULL,
        "Whether the text of a special token is that token; true by default."),
    NUMBERS("truncate_prompt_tokens", FIELD_INT, truncate, -1, COUNT_MAX, "null", "vLLM", NULL,
            "Keeps the last so many tokens of a prompt; -1: as many as fit."),
    LAST_ROW};

/* What stands in a place that no row of a route fills. */
static const struct field absent_fields[] = {
    NUMBERS("", FIELD_INT, max_tokens, 0, 0, "null", NULL, NULL, NULL),
    NUMBERS("", FIELD_INT, max_completion_tokens, 0, 0, "null", NULL, NULL, NULL),
    NUMBERS("", FIELD_INT, logprobs, 0, 0, "null", NULL, NULL, NULL),
    NUMBERS("", FIELD_INT, top_logprobs, 0, 0, "null", NULL, NULL, NULL),
    NUMBERS("", FIELD_INT, window, 0, 0, "null", NULL, NULL, NULL),
    NUMBERS("", FIELD_INT, stride, 0, 0, "null", NULL, NULL, NULL),
    LAST_ROW};
const struct field *const default_groups[] = {
    drawing_fields,  scoring_fields, running_fields, stream_fields,
    identity_fields, special_fields, absent_fields,  NULL};
