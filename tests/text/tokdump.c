/*
 * tokdump.c - the tokenizer as a filter, for test_parity.py.
 *
 *     tokdump MODEL [no-special] [time]
 *
 * stdin: records of u32 length and that many bytes. stdout, for each: u32 n, i32 ids[n], u32
 * begin[n], u32 end[n]; or u32 UINT32_MAX, u32 length and an error line. "time" writes the
 * processor seconds spent to stderr.
 */
#include "base/arena.h"
#include "text/tokenizer.h"
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void put(uint32_t value)
{
    fwrite(&value, 4, 1, stdout);
}

static void put_encoding(const struct encoding *encoding)
{
    put((uint32_t)encoding->n_tokens);
    for (size_t i = 0; i < encoding->n_tokens; i++) put((uint32_t)encoding->tokens[i].id);
    for (size_t i = 0; i < encoding->n_tokens; i++) put((uint32_t)encoding->tokens[i].begin);
    for (size_t i = 0; i < encoding->n_tokens; i++) put((uint32_t)encoding->tokens[i].end);
}

static void put_error(const np_error *err)
{
    char line[640];
    np_error_line(err, line, sizeof line);
    put(UINT32_MAX);
    put((uint32_t)strlen(line));
    fwrite(line, 1, strlen(line), stdout);
}

static bool has(int argc, char **argv, const char *word)
{
    for (int i = 2; i < argc; i++)
        if (!strcmp(argv[i], word)) return true;
    return false;
}

int main(int argc, char **argv)
{
    np_error err = {0};
    char line[640];
    struct modelfile *file = NULL;
    struct tokenizer *tokenizer = NULL;
    double begin = now(), spent = 0;
    np_status status = argc < 2 ? NP_EINPUT : modelfile_open(argv[1], &file, &err);
    double opened = now();
    if (!status) status = tokenizer_open(file, &tokenizer, &err);
    if (status || !tokenizer) {
        fprintf(stderr, "tokdump: %s\n",
                status ? np_error_line(&err, line, sizeof line) : "no tokenizer");
        modelfile_close(file);
        return 1;
    }
    if (has(argc, argv, "time"))
        fprintf(stderr, "file %.3f tokenizer %.3f\n", opened - begin, now() - opened);
    bool parse_special = !has(argc, argv, "no-special");
    uint32_t n;
    while (fread(&n, 4, 1, stdin) == 1) {
        char *text = mem_alloc((size_t)n + 1, 1);
        struct encoding encoding;
        if (!text || fread(text, 1, n, stdin) != n) return 1;
        begin = now();
        status = tokenizer_encode(tokenizer, text, n, true, parse_special, &encoding, &err);
        spent += now() - begin;
        if (status)
            put_error(&err);
        else
            put_encoding(&encoding);
        encoding_free(&encoding);
        mem_free(text);
    }
    if (has(argc, argv, "time")) fprintf(stderr, "encode %.4f\n", spent);
    tokenizer_close(tokenizer);
    modelfile_close(file);
    return fflush(stdout) ? 1 : 0;
}
