/*
 * test_server.c - the server within the process: every allocation of a request fails once. Whatever
 * happens then, it is an answer in HTTP or a closed connection, and the next request is right.
 */
#include "generating.h"
#include "server/server.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

struct served {
    struct server *server;
    np_model *model;
    np_engine *engine;
    int port;
};

static void serve(struct served *served)
{
    struct server_options options = {.port = -1, .n_workers = 2};
    np_error err;
    assert_int_equal(server_open(&options, &served->server, &err), NP_OK);
    served->model = open_model(TINY("llama-tied-f32.gguf"));
    served->engine = open_engine(served->model, 1, 64);
    size_t n_context = (size_t)np_model_info(served->model).n_context;
    server_ready(served->server, served->model, served->engine, n_context, "0");
    served->port = (int)strtol(strrchr(server_address(served->server), (int)':') + 1, NULL, 10);
}

static void end(struct served *served)
{
    server_stop(served->server);
    server_wait(served->server);
    server_close(served->server);
    np_engine_close(served->engine);
    np_model_close(served->model);
}

/* Sends a request of its own connection; what came back until the other side closed, with a zero
 * byte behind. */
static size_t ask(const struct served *served, const char *path, const char *body, char *answer,
                  size_t n_bytes)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)served->port)};
    struct timeval patience = {.tv_sec = 60};
    char request[2048];
    size_t n = 0;
    ssize_t got;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    int n_request = snprintf(request, sizeof request,
                             "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                             "X-Request-Id: one\r\nContent-Length: %zu\r\n\r\n%s",
                             path, strlen(body), body);
    assert_true(n_request > 0 && (size_t)n_request < sizeof request);
    (void)!write(fd, request, (size_t)n_request);
    while (n + 1 < n_bytes && (got = read(fd, answer + n, n_bytes - 1 - n)) > 0) n += (size_t)got;
    answer[n] = 0;
    close(fd);
    return n;
}

/* From the first choice on, without what the cache decides. A stream's events have their times: it
 * is whole, and says of no error. */
static bool is_right(const char *found, const char *right)
{
    const char *from = strstr(right, "\"choices\""), *to = strstr(right, "\"usage\"");
    const char *start = strstr(found, "\"choices\"");
    if (!strstr(found, "HTTP/1.1 200") || strstr(found, "\"error\"")) return false;
    if (strstr(right, "data: ")) return strstr(found, "data: [DONE]") != NULL;
    assert_true(from && to && start);
    assert_memory_equal(start, from, (size_t)(to - from));
    return true;
}

static void every_allocation_fails_once(void **state)
{
    static const struct {
        const char *path, *body;
    } asked[] = {
        {"/inference/v1/generate",
         "{\"token_ids\":[7,3,9,4],\"sampling_params\":{\"max_tokens\":2,\"temperature\":0,"
         "\"prompt_logprobs\":1,\"prompt_logprob_token_ids\":[[1],[2,3],[4]],\"logprobs\":1}}"},
        {"/inference/v1/generate",
         "{\"token_ids\":[7,3,9,4],\"stream\":true,\"sampling_params\":{\"max_tokens\":3,"
         "\"temperature\":0,\"prompt_logprobs\":0}}"},
        {"/v1/completions",
         "{\"prompt\":[[7,3,9],[4,1]],\"max_tokens\":2,\"temperature\":0,\"logprobs\":1,"
         "\"echo\":true,\"stop\":[\"zzz\"],\"logit_bias\":{\"5\":1}}"}};
    static char right[1 << 16], found[1 << 16];
    struct served served;
    serve(&served);
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        ask(&served, asked[i].path, asked[i].body, right, sizeof right);
        assert_non_null(strstr(right, "HTTP/1.1 200"));
        uint64_t before = alloc_count();
        ask(&served, asked[i].path, asked[i].body, found, sizeof found);
        uint64_t n_allocations = alloc_count() - before + 8;
        size_t n_refused = 0;
        for (uint64_t n = 1; n <= n_allocations; n++) {
            alloc_fail_after(n);
            size_t n_bytes = ask(&served, asked[i].path, asked[i].body, found, sizeof found);
            alloc_fail_after(0);
            if (n_bytes) assert_memory_equal(found, "HTTP/1.1 ", 9);
            n_refused += !is_right(found, right);
            ask(&served, asked[i].path, asked[i].body, found, sizeof found);
            assert_true(is_right(found, right));
        }
        assert_true(n_refused > n_allocations / 4);
    }
    end(&served);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_fails_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
