/*
 * metrics.c - counters as Prometheus reads them (text format 0.0.4). Names mirror vLLM's, with
 * nepit: in front, so that boards need one word changed.
 */
#include "metrics.h"
#include "inside.h"

static const double seconds[N_BUCKETS] = {0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                          1,     2.5,   5,    10,    30,   60,  120,  300};
static const double sizes[N_BUCKETS] = {256,     1024,    4096,    16384,   65536,    262144,
                                        1048576, 2097152, 4194304, 8388608, 16777216, 33554432,
                                        1 << 26, 1 << 27, 1 << 28, 1 << 30};
static const char *const outcome_names[N_OUTCOMES] = {"stop", "length", "abort", "error", "scored"};

static void add(struct histogram *histogram, const double *bounds, double value)
{
    int bucket = 0;
    while (bucket < N_BUCKETS && value > bounds[bucket]) bucket++;
    histogram->counts[bucket]++;
    histogram->sum += value;
    histogram->n++;
}

static enum outcome outcome_of(const struct exchange *exchange)
{
    if (exchange->aborted) return ENDED_ABORT;
    if (exchange->status >= 400 || exchange->error[0]) return ENDED_ERROR;
    for (size_t i = 0; i < exchange->n_requests; i++)
        for (size_t k = 0; k < exchange->results[i].n_choices; k++)
            return exchange->results[i].choices[k].finish == NP_FINISH_LENGTH ? ENDED_LENGTH
                                                                              : ENDED_STOP;
    return ENDED_SCORED;
}

void metrics_add(struct metrics *metrics, const struct exchange *exchange)
{
    uint64_t now_ns = clock_ns();
    if (exchange->status > 0 && exchange->status < 600) metrics->statuses[exchange->status]++;
    if (!exchange->counted) return;
    metrics->outcomes[outcome_of(exchange)]++;
    metrics->n_prompt_tokens += exchange->n_prompt_tokens;
    metrics->n_generated_tokens += exchange->n_generated;
    metrics->n_cached_tokens += exchange->n_cached;
    add(&metrics->whole_s, seconds, (double)(now_ns - exchange->began_ns) * 1e-9);
    add(&metrics->answer_bytes, sizes, (double)exchange->n_out_bytes);
    if (exchange->first_token_ns)
        add(&metrics->first_token_s, seconds,
            (double)(exchange->first_token_ns - exchange->began_ns) * 1e-9);
    if (exchange->submitted_ns && exchange->read_ns)
        add(&metrics->queue_s, seconds,
            (double)(exchange->submitted_ns - exchange->read_ns) * 1e-9);
}

static void describe(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP nepit:%s %s\n# TYPE nepit:%s %s\n", name, help, name, type);
}

static void put(struct buf *out, const char *name, const char *type, const char *help, double value)
{
    char text[32];
    describe(out, name, type, help);
    format_double(value, text);
    buf_printf(out, "nepit:%s %s\n", name, text);
}

static void put_histogram(struct buf *out, const char *name, const char *help, const double *bounds,
                          const struct histogram *histogram)
{
    uint64_t below = 0;
    char text[32];
    describe(out, name, "histogram", help);
    for (int i = 0; i < N_BUCKETS; i++) {
        below += histogram->counts[i];
        format_double(bounds[i], text);
        buf_printf(out, "nepit:%s_bucket{le=\"%s\"} %llu\n", name, text, (unsigned long long)below);
    }
    buf_printf(out, "nepit:%s_bucket{le=\"+Inf\"} %llu\n", name, (unsigned long long)histogram->n);
    format_double(histogram->sum, text);
    buf_printf(out, "nepit:%s_sum %s\nnepit:%s_count %llu\n", name, text, name,
               (unsigned long long)histogram->n);
}

static void put_engine(struct buf *out, np_engine *engine)
{
    np_stats stats = np_engine_stats(engine);
    double pages = stats.n_pages ? (double)stats.n_pages : 1;
    put(out, "num_requests_running", "gauge", "Sequences in the engine's steps.",
        (double)stats.n_running);
    put(out, "num_requests_waiting", "gauge", "Sequences that wait for a page.",
        (double)stats.n_waiting);
    put(out, "kv_cache_usage_perc", "gauge", "Part of the key/value pages that requests use (0-1).",
        (double)(stats.n_pages - stats.n_cached_pages) / pages);
    put(out, "prefix_cache_queries_total", "counter", "Tokens of sequences taken.",
        (double)stats.n_tokens);
    put(out, "computed_tokens_total", "counter", "Tokens that went through the model.",
        (double)stats.n_computed);
    put(out, "steps_total", "counter", "Steps of the engine.", (double)stats.n_steps);
    put(out, "num_preemptions_total", "counter", "Sequences that gave their pages back.",
        (double)stats.n_preempted);
    put(out, "evicted_pages_total", "counter", "Pages that the cache dropped.",
        (double)stats.n_evicted_pages);
    put(out, "engine_busy_seconds_total", "counter", "Time in the model and the head.",
        stats.busy_s);
}

void metrics_write(struct server *server, struct buf *out)
{
    pthread_mutex_lock(&server->lock);
    struct metrics copy = server->metrics;
    double n_running = server->n_running, n_clients = server->n_clients;
    pthread_mutex_unlock(&server->lock);
    if (server->state == SERVER_READY) put_engine(out, server->engine);
    put(out, "http_requests_open", "gauge", "Requests that are read, computed or answered.",
        n_running);
    put(out, "http_connections", "gauge", "Open connections.", n_clients);
    put(out, "prompt_tokens_total", "counter", "Tokens of prompts.", (double)copy.n_prompt_tokens);
    put(out, "prefix_cache_hits_total", "counter", "Tokens that were shared or cached.",
        (double)copy.n_cached_tokens);
    put(out, "generation_tokens_total", "counter", "Tokens generated.",
        (double)copy.n_generated_tokens);
    describe(out, "request_success_total", "counter", "Requests by how they ended.");
    for (int i = 0; i < N_OUTCOMES; i++)
        buf_printf(out, "nepit:request_success_total{finished_reason=\"%s\"} %llu\n",
                   outcome_names[i], (unsigned long long)copy.outcomes[i]);
    describe(out, "http_responses_total", "counter", "Answers by status.");
    for (int i = 0; i < 600; i++)
        if (copy.statuses[i])
            buf_printf(out, "nepit:http_responses_total{code=\"%d\"} %llu\n", i,
                       (unsigned long long)copy.statuses[i]);
    put_histogram(out, "time_to_first_token_seconds", "From the first header on.", seconds,
                  &copy.first_token_s);
    put_histogram(out, "e2e_request_latency_seconds", "From the first header to the last byte.",
                  seconds, &copy.whole_s);
    put_histogram(out, "request_queue_time_seconds", "From the last byte to the engine.", seconds,
                  &copy.queue_s);
    put_histogram(out, "answer_bytes", "Sizes of answers.", sizes, &copy.answer_bytes);
}
