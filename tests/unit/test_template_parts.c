/*
 * test_template_parts.c - where bytes come from, what is continued, limits, failing allocations,
 * templates cut anywhere; and chats at the door of the library.
 */
#include "test_template_make.h"
#include "tinymodel.h"

#define ONE(content) "[{\"role\":\"user\",\"content\":" content "}]"
static const char chatml[] =
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + "
    "'\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/* ---- where bytes come from --------------------------------------------------------------------
 */

/* What is the caller's, as D; all else as a dot. */
static void check_sources(const char *source, const char *messages, const char *variables,
                          const char *marks)
{
    struct template_output out = rendered(source, messages, variables, 0);
    assert_int_equal(out.n_bytes, strlen(marks));
    for (size_t i = 0; i < out.n_bytes; i++)
        if ((marks[i] == 'D') != out.is_data[i]) fail_msg("%s\n%s: byte %zu", source, out.text, i);
    template_output_free(&out);
}

static void every_byte_knows_whether_it_is_data_C161(void **state)
{
    static const char *const rows[][2] = {
        {"ab{{ x }}c", "..DDDDDDD."},
        {"{{ 'a' + x + 'b' }}", ".DDDDDDD."},
        {"{{ x|trim }}.", "DDDDD."},
        {"{{ ('<' ~ x ~ '>')|trim }}", ".DDDDDDD."},
        {"{{ ('--' + x + '--')[1:6] }}", ".DDDD"},
        {"{{ (x + 'ab')[::-1] }}", "..DDDDDDD"},
        {"{{ ('q' + x)|upper }}", ".DDDDDDD"},
        {"{{ x.replace('a', 'zz') }}", "D..DDDDD"},
        {"{{ 'zaz'.replace('a', x) }}", ".DDDDDDD."},
        {"{{ '-'.join(x.split()) }}", "DD.DD"},
        {"{{ [x, 'b']|join(', ') }}", "DDDDDDD..."},
        {"{{ ('<b>' + x).split('>')[0] }}", ".."},
        {"{{ 1 }}{{ [bos_token] }}", "DDD...DD"},
        {"{{ {'k': bos_token}|tojson }}", "DD.DDDD...DD"},
        {"{{ bos_token }}{{ messages[0].role }}", "......."},
        {"{{ messages[1].role }}", "DDDDDDDDDD"},
        {"{% set y %}<{{ x }}>{% endset %}{{ y }}", ".DDDDDDD."},
        {"{% macro f(a) %}[{{ a }}]{% endmacro %}{{ f(x) }}{{ f('x') }}", ".DDDDDDD...."},
        {"{{ ('a' + x)|indent(2, true) }}", "...DDDDDDD"},
        {"{{ 'ab'|list|join(x) }}", ".DDDDDDD."},
        {"{{ d|items|first|join('=') }}", "D.D"},
        {"{% for c in 'a' + x[:2] %}{{ c }}{% endfor %}", ".DD"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_sources(rows[i][0],
                      "[{\"role\":\"user\",\"content\":\"\"},{\"role\":\"<|im_end|>\"}]",
                      "{\"x\":\" ab cd \",\"d\":{\"k\":\"v\"}}", rows[i][1]);
}

static void check_content(const char *source, const char *messages, const char *content)
{
    struct template_output out = rendered(source, messages, NULL, 0);
    size_t n = out.content_end - out.content_begin;
    assert_true(out.content_begin <= out.content_end && out.content_end <= out.n_bytes);
    if (n != strlen(content) || memcmp(out.text + out.content_begin, content, n))
        fail_msg("\"%.*s\" is not \"%s\"", (int)n, out.text + out.content_begin, content);
    template_output_free(&out);
}

static void the_last_content_has_a_place(void **state)
{
    check_content(chatml, ONE("\"hey\""), "hey");
    check_content(chatml,
                  "[{\"role\":\"user\",\"content\":\"same\"},"
                  "{\"role\":\"assistant\",\"content\":\"same\"}]",
                  "same");
    check_content("{{ messages[-1].content|trim }}!", ONE("\"  hey \""), "hey");
    check_content("{{ messages[-1].content[0].text }}-{{ messages[-1].content[1].text }}.",
                  ONE("[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]"),
                  "a-b");
    check_content("nothing of it", ONE("\"hey\""), "");
    check_content(chatml, ONE("\"\""), "");
}

/* ---- continue_final_message -------------------------------------------------------------------
 */

static void check_continued(const char *source, const char *messages, const char *text)
{
    struct template_output out = rendered(source, messages, NULL, CONTINUE);
    assert_string_equal(out.text, text);
    template_output_free(&out);
}

static void the_last_message_is_continued(void **state)
{
    check_continued(chatml, ONE("\"hey \""), "<|im_start|>user\nhey ");
    check_continued(chatml, ONE("\"\""), "<|im_start|>user\n");
    check_continued("{{ '[' + messages[0].content|trim + ']' }}", ONE("\" hey \""), "[hey");
    check_continued("{% for p in messages[0].content %}{{ p.text }};{% endfor %}",
                    ONE("[{\"text\":\"a\"},{\"text\":\"b\"},{\"type\":\"image\"}]"), "a;b");
    check_continued("{{ messages[0].content }}|{{ messages[0].content[:1] }}", ONE("\"hey\""),
                    "hey");
    check_continued(chatml, ONE("\"CONTINUE_FINAL_MESSAGE_TAG x\""),
                    "<|im_start|>user\nCONTINUE_FINAL_MESSAGE_TAG x");
    static const char where[] = "continue_final_message";
    refused(chatml, ONE("\"a\""), NULL, CONTINUE | PROMPT, NP_EINPUT, where);
    refused("content", ONE("\"a\""), NULL, CONTINUE, NP_EINPUT, where);
    refused("{{ messages[0]['cont' + 'ent'] }}", ONE("\"a\""), NULL, CONTINUE, NP_EINPUT, where);
    refused("{{ messages[0].content|upper }}", ONE("\"a\""), NULL, CONTINUE, NP_EINPUT, where);
    refused("{{ messages[0].content[1:] }}", ONE("\"ab\""), NULL, CONTINUE, NP_EINPUT, where);
    refused(chatml, ONE("5"), NULL, CONTINUE, NP_EINPUT, where);
    refused(chatml, ONE("[{\"type\":\"image\"}]"), NULL, CONTINUE, NP_EINPUT, where);
    refused(chatml, "[{\"role\":\"user\"}]", NULL, CONTINUE, NP_EINPUT, where);
}

static void what_is_given_is_checked(void **state)
{
    refused("", "[", NULL, 0, NP_EINPUT, "messages");
    refused("", "[]", NULL, 0, NP_EINPUT, "at least one message");
    refused("", "{}", NULL, 0, NP_EINPUT, "at least one message");
    refused("", "[{}, 5]", NULL, 0, NP_EINPUT, "messages[1]");
    refused("", "[{}]", "[]", 0, NP_EINPUT, "variables");
    refused("", "[{}]", "{", 0, NP_EINPUT, "variables");
    refused("", "[{}]", "{\"messages\":1}", 0, NP_EINPUT, "messages is given apart");
    refused("", "[{\"content\":99999999999999999999}]", NULL, 0, NP_EINPUT, "messages");
    struct template_output out =
        rendered("{{ messages[0] }}{{ messages[1].thinking }}",
                 "[{\"a\":null,\"b\":1},{\"reasoning\":\"r\",\"thinking\":null}]", NULL, 0);
    assert_string_equal(out.text, "{'b': 1}r");
    template_output_free(&out);
}

/* ---- limits -----------------------------------------------------------------------------------
 */

static char *repeated(const char *before, const char *text, size_t n, const char *behind)
{
    struct buf buf;
    buf_init(&buf, (size_t)1 << 30);
    buf_puts(&buf, before);
    for (size_t i = 0; i < n; i++) buf_puts(&buf, text);
    buf_puts(&buf, behind);
    assert_false(buf.failed);
    return buf_take(&buf, NULL);
}

static void check_limit(char *source, const char *says)
{
    refused(source, ONE("\"x\""), NULL, 0, NP_ELIMIT, says);
    mem_free(source);
}

static void every_limit_has_its_error(void **state)
{
    check_limit(repeated("", "x", TEMPLATE_MAX_SOURCE_BYTES + 1, ""), "at most 524288 are allowed");
    check_limit(repeated("{{ ", "(", 101, "1"), "brackets are nested more than 100 deep");
    check_limit(repeated("{{ ", "not ", 200, "1 }}"), "nested more than 100 deep");
    check_limit(repeated("{{ ", "- ", 200, "1 }}"), "nested more than 100 deep");
    check_limit(repeated("", "{% if 1 %}", 101, ""), "nested more than 100 deep");
    check_limit(repeated("{{ 1 ", "if 1 else 1 ", 200, "}}"), "nested more than 100 deep");
    check_limit(repeated("{{ 1", " + 1", 400, " }}"), "nested more than 300 deep");
    check_limit(repeated("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "", 0, ""),
                "nested more than 300 deep");
    check_limit(repeated("{% set n = namespace(x=[]) %}{% for i in range(400) %}"
                         "{% set n.x = [n.x] %}{% endfor %}{{ n.x }}",
                         "", 0, ""),
                "nested more than 300 deep");
    check_limit(repeated("{% for a in range(100000) %}{% if 1", " and 1", 60,
                         " %}{% for b in range(3) %}{% endfor %}{% endif %}{% endfor %}"),
                "takes more than 10000000 steps");
    check_limit(repeated("{% set n = namespace(x='ab') %}{% for i in range(40) %}"
                         "{% set n.x = n.x + n.x %}{% endfor %}",
                         "", 0, ""),
                "a text is longer than 67108864 bytes");
    check_limit(repeated("{% set x = 'a' * 50000000 %}{{ x }}{{ x }}", "", 0, ""), "");
    check_limit(repeated("{% set n = namespace(x=[1] * 1000) %}{% for i in range(100000) %}"
                         "{% set y = n.x + n.x %}{% endfor %}",
                         "", 0, ""),
                "need more than 536870912 bytes");
    check_limit(repeated("{{ [1, 2] * 9223372036854775807 }}", "", 0, ""), "steps");
    check_limit(repeated("{{ 'a\nb'|indent(1000000) }}", "", 0, ""), "indent by more than 32");
}

/* ---- failing allocations, cut templates -------------------------------------------------------
 */

static const char rich[] =
    "{%- macro f(a, b='x') -%}{{ a ~ b }}{%- endmacro %}\n"
    "{% set ns = namespace(n=0) %}{% set a, b = [1, 2] %}{% set c %}<{{ a }}>{% endset %}\n"
    "{% for m in messages if m.content is defined %}\n"
    "  {%- set ns.n = ns.n + 1 %}{# why #}\n"
    "  {% if loop.first and not m.role == 'x' %}{{ bos_token + m.role|upper }}{% elif b > 3 %}y\n"
    "  {% else %}{{ m['content'][1:] | trim }}{% endif %}{{ f(m.content, b=ns.n) }}\n"
    "  {% for k, v in m.items() %}{{ k.split('o')[0] + v|string }}{% else %}-{% endfor %}\n"
    "  {% if ns.n == 2 %}{% break %}{% else %}{% continue %}{% endif %}\n"
    "{% endfor %}{% raw %}{{ x }}{% endraw %}{% generation %}{{ c }}{% endgeneration %}\n"
    "{{ messages | map(attribute='role') | join(', ') }}{{ messages[::-1] | tojson(indent=2) }}\n"
    "{{ [1.5, none, {'k': (1, 2)}] }}{{ 'a' 'b\\u00e9' if 1 < 2 <= 3 else 0 }}{{ range(3)|sort }}";
static const char some[] = "[{\"role\":\"user\",\"content\":\" h\\u00e9y \"},"
                           "{\"role\":\"tool\",\"reasoning\":\"r\",\"content\":\"x\"}]";

static void no_memory_anywhere(void **state)
{
    for (uint64_t n = 1;; n++) {
        struct template_output out;
        np_error err;
        alloc_fail_after(n);
        np_status status =
            render_with(rich, strlen(rich), some, "{\"t\":[1]}", CONTINUE * (n & 1), &out, &err);
        alloc_fail_after(0);
        assert_true(status == NP_ENOMEM || status == NP_OK);
        template_output_free(&out);
        if (status == NP_OK && n > 20) break;
    }
}

static void a_template_cut_anywhere(void **state)
{
    for (size_t n = 0; n <= strlen(rich); n++) {
        char *copy = mem_alloc(n + 1, 1); /* so that a sanitizer sees a byte too far */
        struct template_output out;
        np_error err;
        assert_non_null(copy);
        memcpy(copy, rich, n);
        char *exact = mem_resize(copy, n ? n : 1);
        np_status status = render_with(exact, n, some, NULL, 0, &out, &err);
        assert_true(status == NP_OK || status == NP_EINPUT || status == NP_EUNSUPPORTED);
        template_output_free(&out);
        mem_free(exact);
    }
}

/* ---- ids --------------------------------------------------------------------------------------
 */

static const struct spec tokens = {
    .added = "{\"id\":300,\"content\":\"<|im_start|>\",\"special\":true,\"normalized\":false},"
             "{\"id\":301,\"content\":\"<|im_end|>\",\"special\":true,\"normalized\":true},"
             "{\"id\":302,\"content\":\"<tool>\",\"special\":false,\"normalized\":false}",
    .normalizer = "{\"type\":\"NFC\"}"};

static void c161_special_tokens_only_outside_of_literal_bytes(void **state)
{
    static const char text[] = "<|im_end|>e\xcc\x81<|im_end|><tool><|im_start|>";
    unsigned char literal[sizeof text] = {0};
    struct tokenizer *tokenizer = opened(&tokens, NULL);
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        struct encoding encoding;
        size_t n_special = 0, n_tools = 0;
        memset(literal, 0, sizeof literal);
        literal[i] = 1;
        assert_int_equal(tokenizer_encode_parts(tokenizer, text, literal, sizeof text - 1, false,
                                                true, &encoding, NULL),
                         NP_OK);
        for (size_t k = 0; k < encoding.n_tokens; k++) {
            n_special += tokenizer_is_special(tokenizer, encoding.tokens[k].id);
            n_tools += encoding.tokens[k].id == 302;
        }
        bool outside = (i >= 10 && i < 13) || (i >= 23 && i < 29); /* "e\xcc\x81", "<tool>" */
        assert_int_equal(n_special, outside ? 3 : 2);
        assert_int_equal(n_tools, 1);
        encoding_free(&encoding);
    }
    tokenizer_close(tokenizer);
}

static np_chat chat_of(const char *messages, const char *source)
{
    np_chat chat = {.messages = {messages, strlen(messages)}};
    if (source) chat.chat_template = (np_string){source, strlen(source)};
    return chat;
}

static size_t count_id(const np_tokens *ids, int32_t id)
{
    size_t n = 0;
    for (size_t i = 0; i < ids->n_tokens; i++) n += ids->token_ids[i] == id;
    return n;
}

/* C161: of the tiny models' tokens, 300 is <|im_end|> and 298 <|endoftext|>. */
static void c161_markers_in_a_message_stay_text(void **state)
{
    np_model *model = open_model(TINY("llama-tied-f32"));
    np_chat chat = chat_of(ONE("\"a<|im_end|>b\""), chatml);
    np_chat_text text;
    for (int parse = NP_DEFAULT; parse <= NP_NO; parse++) {
        chat.parse_special = (np_choice)parse;
        assert_int_equal(np_chat_render(model, &chat, &text, NULL), NP_OK);
        assert_int_equal(count_id(&text.tokens, 300), parse == NP_YES ? 2 : 1);
        assert_int_equal(text.n_bytes, strlen(text.text));
        assert_memory_equal(text.text + text.content_begin, "a<|im_end|>b", 12);
        assert_int_equal(text.tokens.end[text.tokens.n_tokens - 1], text.n_bytes);
        np_chat_text_free(&text);
    }
    np_model_close(model);
}

static void c071_one_bos(void **state)
{
    struct folder folder = folder_make();
    char command[512];
    snprintf(command, sizeof command, "cp %s/* %s/ && chmod u+w %s/*", TINY("llama-tied-f32"),
             folder.path, folder.path);
    assert_int_equal(system(command), 0);
    folder_write_text(&folder, "tokenizer_config.json",
                      "{\"bos_token\":\"<|endoftext|>\",\"eos_token\":{\"content\":\"<|im_end|>\"},"
                      "\"add_bos_token\":true,\"tokenizer_class\":\"T\",\"pad_token\":null,"
                      "\"chat_template\":[{\"name\":\"default\",\"template\":\"{{ bos_token }}x\"},"
                      "{\"name\":\"tool_use\",\"template\":\"with tools\"}]}");
    np_model *model = open_model(folder.path);
    np_tokenizer_info info = np_model_tokenizer(model);
    assert_string_equal(info.bos_token, "<|endoftext|>");
    assert_string_equal(info.eos_token, "<|im_end|>");
    assert_string_equal(info.tokenizer_class, "T");
    assert_string_equal(info.chat_template, "{{ bos_token }}x");
    assert_null(info.pad_token);
    assert_true(np_model_info(model).has_chat_template);
    static const char *const sources[] = {NULL, "{{ bos_token }}x", "x"};
    static const size_t n_bos[3][3] = {{1, 1, 1}, {1, 1, 1}, {0, 1, 0}};
    for (int i = 0; i < 3; i++)
        for (int add = NP_DEFAULT; add <= NP_NO; add++) {
            np_chat chat = chat_of(ONE("\"a\""), sources[i]);
            np_chat_text text;
            chat.add_special = (np_choice)add;
            assert_int_equal(np_chat_render(model, &chat, &text, NULL), NP_OK);
            assert_int_equal(count_id(&text.tokens, 298), n_bos[i][add]);
            np_chat_text_free(&text);
        }
    np_chat chat = chat_of(ONE("\"a\""), NULL);
    np_chat_text text;
    chat.variables = (np_string){"{\"tools\":[]}", 12};
    assert_int_equal(np_chat_render(model, &chat, &text, NULL), NP_OK);
    assert_string_equal(text.text, "with tools");
    np_chat_text_free(&text);
    np_model_close(model);
    folder_write_text(&folder, "chat_template.jinja", "\n{{ x|nope }}");
    model = open_model(folder.path); /* it can still score */
    np_error err;
    chat.variables = (np_string){0};
    assert_int_equal(np_chat_render(model, &chat, &text, &err), NP_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "line 2: the filter |nope is not supported"));
    np_model_close(model);
    folder_remove(&folder);
}

static void chats_are_checked(void **state)
{
    np_model *model = open_model(TINY("llama-tied-f32"));
    np_chat chat = chat_of(ONE("\"a\""), NULL);
    np_chat_text text;
    np_error err;
    assert_int_equal(np_chat_render(model, &chat, &text, &err), NP_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "the model has no chat template"));
    chat = chat_of(ONE("\"a\""), chatml);
    assert_int_equal(np_chat_render(NULL, &chat, &text, &err), NP_EINPUT);
    assert_int_equal(np_chat_render(model, NULL, &text, &err), NP_EINPUT);
    assert_int_equal(np_chat_render(model, &chat, NULL, &err), NP_EINPUT);
    chat.add_special = (np_choice)7;
    assert_int_equal(np_chat_render(model, &chat, &text, &err), NP_EINPUT);
    chat = (np_chat){.messages = {NULL, 5}};
    assert_int_equal(np_chat_render(model, &chat, &text, &err), NP_EINPUT);
    chat = chat_of("", chatml);
    assert_int_equal(np_chat_render(model, &chat, &text, &err), NP_EINPUT);
    chat = chat_of(ONE("\"a\""), chatml);
    np_status status = NP_ENOMEM;
    for (uint64_t n = 1; status; n++) {
        alloc_fail_after(n);
        status = np_chat_render(model, &chat, &text, &err);
        alloc_fail_after(0);
        assert_true(status == NP_OK || status == NP_ENOMEM);
        np_chat_text_free(&text);
    }
    np_chat_text_free(NULL);
    np_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_knows_whether_it_is_data_C161),
        cmocka_unit_test(the_last_content_has_a_place),
        cmocka_unit_test(the_last_message_is_continued),
        cmocka_unit_test(what_is_given_is_checked),
        cmocka_unit_test(every_limit_has_its_error),
        cmocka_unit_test(no_memory_anywhere),
        cmocka_unit_test(a_template_cut_anywhere),
        cmocka_unit_test(c161_special_tokens_only_outside_of_literal_bytes),
        cmocka_unit_test(c161_markers_in_a_message_stay_text),
        cmocka_unit_test(c071_one_bos),
        cmocka_unit_test(chats_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
