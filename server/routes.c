/*
 * The table of routes.
 */
#include "routes.h"
#include "base/names.h"

#include <strings.h>

#define ALONE (ROUTE_OPEN | ROUTE_LOADING | ROUTE_INLINE)

const struct route routes[] = {
    {"POST", "/inference/v1/generate", 0, generate_groups, generate_prepare, generate_reply,
     generate_event, "Token ids in, token ids and their log-probabilities out."},
    {"POST", "/v1/completions", 0, completions_groups, completions_prepare, completions_reply,
     completions_event, "OpenAI's: text or ids in, text out; echo scores the prompt."},
    {"POST", "/v1/chat/completions", 0, chat_groups, chat_prepare, chat_reply, chat_event,
     "OpenAI's: messages in, a message out; or the last message is scored."},
    {"POST", "/tokenize", 0, tokenize_groups, tokenize_prepare, tokenize_reply, NULL,
     "A text or messages to token ids."},
    {"POST", "/detokenize", 0, detokenize_groups, detokenize_prepare, detokenize_reply, NULL,
     "Token ids to their text."},
    {"GET", "/tokenizer_info", 0, NULL, NULL, tokenizer_info_reply, NULL,
     "What the tokenizer calls its tokens, and the chat template."},
    {"GET", "/health", ALONE, NULL, NULL, health_reply, NULL,
     "200 when requests are answered, else 503 and why."},
    {"GET", "/health/", ALONE | ROUTE_HIDDEN, NULL, NULL, health_reply, NULL, NULL},
    {"GET", "/ping", ALONE, NULL, NULL, health_reply, NULL, "The same as /health."},
    {"POST", "/ping", ALONE, NULL, NULL, health_reply, NULL, "The same as /health."},
    {"GET", "/version", ALONE, NULL, NULL, version_reply, NULL,
     "Versions of nepit and of its arithmetic."},
    {"GET", "/v1/models", ROUTE_INLINE, NULL, NULL, models_reply, NULL,
     "The model that is served."},
    {"GET", "/metrics", ROUTE_INLINE | ROUTE_LOADING, NULL, NULL, metrics_reply, NULL,
     "Counters for Prometheus."},
    {"GET", "/openapi.json", ROUTE_OPEN, NULL, NULL, openapi_reply, NULL,
     "All of this as an OpenAPI 3.1 document."},
    {"GET", "/docs", ROUTE_OPEN, NULL, NULL, docs_reply, NULL, "All of this as a page."},
    {"POST", "/get_sequence_logprobs/", 0, sequences_groups, sequences_prepare, sequences_reply,
     NULL, "TRL's: the likeliest tokens at every position behind a prompt."},
    {"POST", "/get_sequence_logprobs", ROUTE_HIDDEN, sequences_groups, sequences_prepare,
     sequences_reply, NULL, NULL},
    {"GET", "/get_world_size/", ROUTE_INLINE | ROUTE_LOADING, NULL, NULL, world_size_reply, NULL,
     "TRL's: how many workers there are; one."},
    {"GET", "/get_world_size", ROUTE_INLINE | ROUTE_LOADING | ROUTE_HIDDEN, NULL, NULL,
     world_size_reply, NULL, NULL},
    {"POST", "/generate", 0, sglang_groups, sglang_prepare, sglang_reply, sglang_event,
     "SGLang's: a text or ids in, text and triples of log-probabilities out."},
    {"POST", "/generative_scoring", 0, scoring_groups, scoring_prepare, scoring_reply, NULL,
     "The probability of a label behind a query and each of several items."},
    {"POST", "/nepit/v1/score", ROUTE_STRICT, own_score_groups, own_score_prepare, own_score_reply,
     NULL, "The log-probability of every token of a text, and their sums."},
    {"POST", "/nepit/v1/gather", ROUTE_STRICT, own_gather_groups, own_gather_prepare,
     own_gather_reply, NULL, "Log-probabilities of candidates at every row: teacher scoring."},
    {"POST", "/nepit/v1/choose", ROUTE_STRICT, own_choose_groups, own_choose_prepare,
     own_choose_reply, NULL, "Which of several texts follows a context best, by every rule."},
    {"POST", "/nepit/v1/perplexity", ROUTE_STRICT, own_perplexity_groups, own_perplexity_prepare,
     own_perplexity_reply, NULL, "A long text by windows and strides."},
    {"POST", "/v1/score", ROUTE_HIDDEN, reranker_groups, reranker_prepare, NULL, NULL, NULL},
    {"POST", "/score", ROUTE_HIDDEN, reranker_groups, reranker_prepare, NULL, NULL, NULL},
    {"POST", "/completion", ROUTE_BARE, llamacpp_groups, llamacpp_prepare, llamacpp_reply,
     llamacpp_event, "llama.cpp's: a text, ids or both in, text and probabilities out."},
};
const size_t n_routes = sizeof routes / sizeof routes[0];

const struct route *route_find(const char *method, const char *path, char allowed[64])
{
    size_t n_used = 0;
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
    allowed[0] = 0;
    for (size_t i = 0; i < n_routes; i++) {
        if (strcmp(routes[i].path, path) != 0) continue;
        if (strcmp(routes[i].method, wanted) == 0) return &routes[i];
        n_used += (size_t)snprintf(allowed + n_used, 64 - n_used, "%s%s", n_used ? ", " : "",
                                   routes[i].method);
        if (n_used > 32) break;
    }
    return NULL;
}

const char *route_near(const char *path, char near[64])
{
    char allowed[64];
    snprintf(near, 64, "/v1%.50s", path); /* what clients are told as base_url ends so */
    (void)route_find("", near, allowed);
    if (allowed[0]) return near;
    return name_nearest(&routes[0].path, n_routes, sizeof routes[0], path);
}
