/*
 * template_case.c - upper, lower and title case, as Python's.
 *
 * Surprise: a character whose other case is more than one character, or depends on what stands
 * around it (the sharp s, the final sigma, ligatures), is refused. Chat templates change the case
 * of roles and field names; none is known to need those.
 */
#include "text/template_run.h"
#include "text/unicode.h"

#include <utf8proc.h>

static uint8_t category(uint32_t c)
{
    return unicode_info(c) & UNICODE_CLASS_MASK;
}

bool text_is_letter(uint32_t c)
{
    uint8_t kind = category(c);
    return kind == UC_LL || kind == UC_LM || kind == UC_LO || kind == UC_LT || kind == UC_LU ||
           kind == UC_LONG_S || kind == UC_KELVIN;
}

bool text_is_cased(uint32_t c, bool upper)
{
    uint8_t kind = category(c);
    if (upper) return kind == UC_LU || kind == UC_KELVIN;
    return kind == UC_LL || kind == UC_LONG_S;
}

/* What has no simple other case (SpecialCasing.txt). */
static bool is_special(uint32_t c, bool upper)
{
    static const uint32_t uppers[][2] = {
        {0xDF, 0xDF},   {0x149, 0x149},   {0x1F0, 0x1F0},   {0x390, 0x390},   {0x3B0, 0x3B0},
        {0x587, 0x587}, {0x1E96, 0x1E9A}, {0x1F50, 0x1F56}, {0x1F80, 0x1FFC}, {0xFB00, 0xFB17}};
    if (!upper) return c == 0x130 || c == 0x3A3;
    for (size_t i = 0; i < sizeof uppers / sizeof *uppers; i++)
        if (c >= uppers[i][0] && c <= uppers[i][1]) return true;
    return false;
}

static np_status push_case(struct run *run, struct output *out, const struct text *text, size_t at,
                           size_t length, uint32_t c, bool upper, bool title)
{
    char bytes[4];
    if (c >= 0x80 && is_special(c, upper))
        return RUN_ERROR(run, NP_EUNSUPPORTED, "the other case of U+%04X is not supported",
                         (unsigned)c);
    utf8proc_int32_t point = (utf8proc_int32_t)c;
    uint32_t other = (uint32_t)(!upper  ? utf8proc_tolower(point)
                                : title ? utf8proc_totitle(point)
                                        : utf8proc_toupper(point));
    if (other == c) return output_slice(run, out, text, at, at + length);
    size_t start = 0, i = 0;
    while (i + 1 < text->n_runs && start + text->runs[i].n_bytes <= at)
        start += text->runs[i++].n_bytes;
    return output_push(run, out, bytes, utf8_write(other, bytes), text->runs[i].source);
}

/* Behind what the filter |title begins a word. */
static bool parts_words(uint32_t c)
{
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || text_is_space(c);
}

np_status text_case(struct run *run, const struct text *text, enum text_case wanted,
                    struct value *out)
{
    struct output output;
    bool first = true;
    uint32_t c;
    np_status status = run_step(run, text->n_bytes / 16);
    output_init(&output);
    for (size_t at = 0, length; at < text->n_bytes && !status; at += length) {
        length = text_read(text, at, &c);
        bool upper = wanted == CASE_UPPER || (wanted != CASE_LOWER && first);
        bool title = wanted == CASE_TITLE || wanted == CASE_CAPITALIZE;
        status = push_case(run, &output, text, at, length, c, upper, title);
        if (wanted == CASE_TITLE)
            first = !text_is_cased(c, true) && !text_is_cased(c, false) && category(c) != UC_LT;
        else
            first = wanted == CASE_WORDS && parts_words(c);
    }
    if (!status) status = output_take(run, &output, out);
    output_free(&output);
    return status;
}
