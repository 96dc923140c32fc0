/*
 * test_template.c - every construct of chat templates, and what is refused, by name and line. The
 * texts of the table are those of jinja2 (tests/text/test_templates.py asks it for many more).
 */
#include "test_template_make.h"

static const char messages[] = "[{\"role\":\"system\",\"content\":\" "
                               "Sys\\n\"},{\"role\":\"user\",\"content\":\"H\\u00e9y <b>\"},"
                               "{\"role\":\"assistant\",\"content\":\"ok\",\"n\":1.5}]";
static const char variables[] = "{\"d\":{\"a\":1,\"b\":[1,2,\"x\"],\"items\":7},\"t\":\"x "
                                "\\u00e9\\n'q' \\\"d\\\"\",\"l\":[3,1,2],"
                                "\"e\":[],\"z\":null,\"f\":0.1,\"big\":1e16}";

static const struct {
    const char *template, *text;
} rows[] = {
    {"{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.r"
     "evindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }} {% endfo"
     "r %}",
     "1032TrueFalse31 2121FalseFalse31 3210FalseTrue31 "},
    {"{% for x in l %}{{ loop.previtem|default('-') }}{{ x }}{{ loop.nextitem|default('-')"
     " }}{{ loop.cycle('a','b') }}{% else %}no{% endfor %}{% for x in e %}x{% else %}none{"
     "% endfor %}",
     "-31a312b12-anone"},
    {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for (a, (b, c)) in [[1,[2,"
     "3]]] %}{{ a+b+c }}{% endfor %}",
     "a=1;b=[1, 2, 'x'];items=7;6"},
    {"{% for x in [1,2,3,4] if x is even %}{{ loop.length }}{{ x }}{% endfor %}{% for x in"
     " 'h\303\251' %}[{{ x }}]{% endfor %}",
     "2224[h][\303\251]"},
    {"{% for x in [1,2,3,4] %}{% if x == 2 %}{% continue %}{% elif x == 4 %}{% break %}{% "
     "else %}{{ x }}{% endif %}{% endfor %}",
     "13"},
    {"{% set x = 1 %}{% for i in l %}{{ x }}{% set x = i %}{% endfor %}{{ x }}{% if true %"
     "}{% set x = 9 %}{% endif %}{{ x }}",
     "11119"},
    {"{% set ns = namespace(n=0, s='') %}{% for i in l %}{% set ns.n = ns.n + i %}{% set n"
     "s.s = ns.s ~ i %}{% endfor %}{{ ns.n }}{{ ns.s }}",
     "6312"},
    {"{% set a, b = 1, 'q' %}{{ a }}{{ b }}{% set c %}<{{ a }}>{% set a = 5 %}{% endset %}"
     "{{ c }}{{ a }}",
     "1q<1>1"},
    {"{% macro f(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}{{ f(1, c=3"
     ") }}{{ f() }}{{ f(b=7, a=8) }}|{{ f('y')|upper }}",
     "12x1232x87x|Y2X"},
    {"{% macro g(n) %}{{ n }}{% if n %}{{ g(n - 1) }}{% endif %}{% endmacro %}{{ g(4) }}", "43210"},
    {"{{ missing }}|{{ missing is defined }}|{{ 'n' if missing else 'm' }}|{{ d.q }}|{{ d["
     "'q'] }}|{{ l[9] }}|{{ not missing }}",
     "|False|m||||True"},
    {"{{ 1 + 2 * 3 - 4 // 3 }} {{ 7 % 3 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2.5 *"
     " 2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1 / 3 }} {{ 'ab' * 2 }} {{ [1] + [2] }}",
     "6 1 -4 2 3.5 5.0 3.0 0.5 0.3333333333333333 abab [1, 2]"},
    {"{{ 1 ~ 'a' ~ none ~ true }} {{ 'a' + 'b' }} {{ +3 }} {{ -(2) }} {{ - -2 }}",
     "1aNoneTrue ab 3 -2 2"},
    {"{{ 1 < 2 <= 2 }} {{ 3 > 2 > 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ ["
     "1,2] < [1,3] }} {{ (1,) == [1] }} {{ {'a':1} == {'a':1.0} }} {{ none == none }} {{ 1"
     " != 2 }}",
     "True False True True True True False True True True"},
    {"{{ '\303\251' in t }} {{ 2 in l }} {{ 'a' in d }} {{ 9 not in l }} {{ 'x' in missing"
     " }} {{ not 1 in l }}",
     "True True True True False False"},
    {"{{ true and 0 or 'x' }} {{ '' or none }} {{ 1 and 2 }} {{ not '' }} {{ 'a' if e else"
     " 'b' }}|{{ 'a' if e }}|",
     "x None 2 True b||"},
    {"{{ messages[1:]|length }} {{ messages[-1].role }} {{ messages[::-1][0]['role'] }} {{"
     " t[0] }}{{ t[-1] }} {{ t[2:3] }} {{ 'abcdef'[1:5:2] }} {{ 'abcdef'[::-2] }} {{ l[:1]"
     " }} {{ (1,2,3)[1:] }}",
     "2 assistant assistant x\" \303\251 bd fdb [3] (2, 3)"},
    {"{{ [1, 'a', none, true, 1.5, {'k': [2]}, (1,), ()] }} {{ \"it's\" }} {{ [\"it's\", '"
     "q\"', \"b\\n\\t\\\\\303\251\\x07\", \"'\\\"\"] }}",
     "[1, 'a', None, True, 1.5, {'k': [2]}, (1,), ()] it's [\"it's\", 'q\"', 'b\\n\\t\\\\"
     "\303\251\\x07', '\\'\"']"},
    {"{{ f }} {{ big }} {{ 1e-05 }} {{ 100.0 }} {{ 1e300 }} {{ 0.1 + 0.2 }}",
     "0.1 1e+16 1e-05 100.0 1e+300 0.30000000000000004"},
    {"{{ '\\n\\t\\\\\\'\\\"\\x41\\u00e9\\U0001F600\\101' }} {{ 'a' 'b' \"c\" }} {{ '\\q' }"
     "}",
     "\n\t\\'\"A\303\251\360\237\230\200A abc \\q"},
    {"{{ d|tojson }} {{ t|tojson }} {{ [f, big, none, true, '\303\251\\u2028<&>']|tojson }"
     "} {{ '/\\x08\\x0c\\x1f\\x7f'|tojson }}",
     "{\"a\": 1, \"b\": [1, 2, \"x\"], \"items\": 7} \"x \303\251\\n'q' \\\"d\\\"\" [0.1, "
     "1e+16, null, true, \"\303\251\342\200\250<&>\"] \"/\\b\\f\\u001f\177\""},
    {"{{ d|tojson(indent=2) }}{{ {}|tojson(indent=2) }}{{ [[]]|tojson(indent=4) }}{{ {'b':"
     "1,'a':2}|tojson(sort_keys=true) }}{{ ['\303\251']|tojson(ensure_ascii=true) }}{{ [1,"
     "2]|tojson(separators=(',',':')) }}",
     "{\n  \"a\": 1,\n  \"b\": [\n    1,\n    2,\n    \"x\"\n  ],\n  \"items\": 7\n}{}[\n "
     "   []\n]{\"a\": 2, \"b\": 1}[\"\\u00e9\"][1,2]"},
    {"{{ messages|map(attribute='role')|join(', ') }} {{ messages|selectattr('role','equal"
     "to','user')|map(attribute='content')|first }} {{ messages|rejectattr('n')|list|lengt"
     "h }} {{ l|select('gt', 1)|list }} {{ l|reject('odd')|list }} {{ l|map('string')|join"
     " }}",
     "system, user, assistant H\303\251y <b> 2 [3, 2] [2] 312"},
    {"{{ l|sort }} {{ l|sort(reverse=true) }} {{ ['b','A','a']|sort }} {{ ['b','A','a']|un"
     "ique|list }} {{ l|reverse|list }} {{ 'abc'|reverse }} {{ d|dictsort }} {{ d|items|li"
     "st }} {{ d|list }}",
     "[1, 2, 3] [3, 2, 1] ['A', 'a', 'b'] ['b', 'A'] [2, 1, 3] cba [('a', 1), ('b', [1, 2,"
     " 'x']), ('items', 7)] [('a', 1), ('b', [1, 2, 'x']), ('items', 7)] ['a', 'b', 'items"
     "']"},
    {"{{ '  x '|trim }}|{{ 'xxaxx'|trim('x') }}|{{ 'aBc d\303\251'|upper }}|{{ 'ABC'|lower"
     " }}|{{ 'hello world-x'|title }}|{{ \"it's\".title() }}|{{ 'hELLO'|capitalize }}|{{ 5"
     "|string + 'x' }}|{{ 'aXbX'|replace('X', '-') }}|{{ 'aXbX'|replace('X', '-', 1) }}",
     "x|a|ABC D\303\211|abc|Hello World-X|It'S|Hello|5x|a-b-|a-bX"},
    {"{{ 'a\\nb\\n\\nc'|indent }}|{{ 'a\\nb'|indent(2, true) }}|{{ 'a\\n\\nb'|indent('> ',"
     " blank=true) }}",
     "a\n    b\n\n    c|  a\n  b|a\n> \n> b"},
    {"{{ '42'|int }} {{ '4.9'|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ '1.5'|float }} {{ 3"
     ".7|int }} {{ -3|abs }} {{ missing|default('D') }} {{ ''|default('D', true) }} {{ ''|"
     "d('D') }} {{ l|first }}{{ l|last }} {{ missing|length }} {{ 'h\303\251\303\251'|leng"
     "th }} {{ d|count }}",
     "42 4 0 7 1.5 3 3 D D  32 0 3 3"},
    {"{{ ' a b  c '.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a"
     ",b,c'.rsplit(',', 1) }} {{ ' a b c'.split(none, 1) }} {{ 'a\\nb\\r\\nc\\n'.splitline"
     "s() }} {{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition"
     "('x') }} {{ 'abc'.rpartition('x') }}",
     "['a', 'b', 'c'] ['a', 'b', '', 'c'] ['a', 'b,c'] ['a,b', 'c'] ['a', 'b c'] ['a', 'b'"
     ", 'c'] ('a', '-', 'b-c') ('a-b', '-', 'c') ('abc', '', '') ('', '', 'abc')"},
    {"{{ '  x'.lstrip() }}|{{ 'x  '.rstrip() }}|{{ ' x '.strip() }}|{{ 'abcx'.strip('ax') "
     "}}|{{ 'abc'.startswith('ab') }}|{{ 'abc'.endswith(('x','c')) }}|{{ 'aXa'.replace('a'"
     ", 'b') }}|{{ 'ab'.replace('', '-') }}|{{ 'abcabc'.find('c') }}|{{ 'abcabc'.rfind('c'"
     ") }}|{{ '\303\251a'.find('a') }}|{{ 'x'.find('y') }}|{{ 'aaa'.count('a') }}|{{ '-'.j"
     "oin(['a','b']) }}|{{ 'unhappy'.removeprefix('un') }}|{{ 'a.py'.removesuffix('.py') }"
     "}",
     "x|x|x|bc|True|True|bXb|-a-b-|2|5|1|-1|3|a-b|happy|a"},
    {"{{ '12'.isdigit() }}{{ 'a'.isalpha() }}{{ ' '.isspace() }}{{ ''.isspace() }}{{ 'AB'."
     "isupper() }}{{ 'aB'.islower() }}{{ 'a1'.isalnum() }}",
     "TrueTrueTrueFalseTrueFalseTrue"},
    {"{{ d.get('a') }}{{ d.get('q') }}{{ d.get('q', 5) }}{{ d.keys()|list }}{{ d.values()|"
     "list }}{{ d['items'] }}{{ d.items is callable }}{{ d.items is defined }}{{ l.index(1"
     ") }}{{ l.count(3) }}",
     "1None5['a', 'b', 'items'][1, [1, 2, 'x'], 7]7TrueTrue11"},
    {"{{ 1 is number }}{{ true is number }}{{ 1 is integer }}{{ true is integer }}{{ 1.0 i"
     "s float }}{{ '' is string }}{{ d is mapping }}{{ l is mapping }}{{ l is sequence }}{"
     "{ d is iterable }}{{ 1 is iterable }}{{ none is none }}{{ true is true }}{{ 1 is tru"
     "e }}{{ false is false }}{{ missing is undefined }}{{ missing is iterable }}{{ 3 is o"
     "dd }}{{ 4 is even }}{{ 6 is divisibleby 3 }}{{ 1 is eq 1 }}{{ 1 is in l }}{{ 'a' is "
     "lower }}{{ 'A' is upper }}{{ 1 is not none }}{{ none is sameas none }}{{ true is boo"
     "lean }}{{ 2 is gt 1 }}{{ 1 is ne 1 }}",
     "TrueTrueTrueFalseTrueTrueTrueFalseTrueTrueFalseTrueTrueFalseTrueTrueTrueTrueTrueTrue"
     "TrueTrueTrueTrueTrueTrueTrueTrueFalse"},
    {"{{ range(4)|list }} {{ range(1, 4)|list }} {{ range(5, 0, -2)|list }} {{ dict(a=1, b"
     "=2) }} {{ dict({'x': 1}, y=2) }}",
     "[0, 1, 2, 3] [1, 2, 3] [5, 3, 1] {'a': 1, 'b': 2} {'x': 1, 'y': 2}"},
    {"{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}{{ tools is none }}{{ docum"
     "ents is none }}{{ (1, 2)[0] }}{{ d.b.2 }}{{ [[1,[2]]].0.1.0 }}",
     "<s></s>FalseTrueTrue1x2"},
    {"{%- if l %} a {%- endif %} b {{- ' c ' -}} d\n{#- a comment -#}  x {# another #}\n  "
     "{% if true %}\n  y\n  {%+ if true %}z{% endif +%}\n\n  {% endif %}",
     " a b c dx   y\n  z\n\n"},
    {"{% raw %}{{ x }}{% if %}{% endraw %}|{% raw -%}  a {%- endraw %}", "{{ x }}{% if %}|a"},
    {"{% generation %}{% set q = 1 %}in{% endgeneration %}{{ q is defined }}", "inFalse"},
    {"{{ messages[1].content }}{{ messages[2].n }}{{ messages }}",
     "H\303\251y <b>1.5[{'role': 'system', 'content': ' Sys\\n'}, {'role': 'user', 'conten"
     "t': 'H\303\251y <b>'}, {'role': 'assistant', 'content': 'ok', 'n': 1.5}]"},
    {"{% for x in [1] %}{% continue %}{% endfor %}a{% for x in [1] %}{% break %}{% endfor %}b",
     "ab"},
};

static void every_construct(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct template_output out = rendered(rows[i].template, messages, variables, 0);
        if (strcmp(out.text, rows[i].text))
            fail_msg("%s\ngives %s\nnot %s", rows[i].template, out.text, rows[i].text);
        template_output_free(&out);
    }
}

static const struct {
    np_status status;
    const char *template, *says;
} refusals[] = {
    {NP_EUNSUPPORTED, "a\n{{ x|nope }}", "line 2: the filter |nope is not supported"},
    {NP_EUNSUPPORTED, "{{ x is\n nope }}", "line 2: the test \"is nope\" is not supported"},
    {NP_EUNSUPPORTED, "{{ x\n\n.nope() }}", "line 3: the method .nope() is not supported"},
    {NP_EUNSUPPORTED, "{% include 'x' %}", "the tag {% include %} is not supported"},
    {NP_EUNSUPPORTED, "{% call f() %}{% endcall %}", "the tag {% call %} is not supported"},
    {NP_EUNSUPPORTED, "{% for x in l recursive %}{% endfor %}", "a recursive loop"},
    {NP_EUNSUPPORTED, "{{ f(*x) }}", "arguments with * and **"},
    {NP_EUNSUPPORTED, "{{ cycler(1) }}", "the function cycler() is not supported"},
    {NP_EUNSUPPORTED, "{{ 2 ** 3 }}", "the operator **"},
    {NP_EUNSUPPORTED, "{% set x | trim %}{% endset %}", "a filter on a {% set %} block"},
    {NP_EUNSUPPORTED, "{{ 0x10 }}", "the number 0x is not supported"},
    {NP_EUNSUPPORTED, "{{ '\\N{BULLET}' }}", "an escape by name"},
    {NP_EUNSUPPORTED, "{{ '\\ud800' }}", "no character: U+D800"},
    {NP_EINPUT, "{{ 1 ", "line 1: a tag is not closed"},
    {NP_EINPUT, "{% if 1 %}x", "{% endif %} is expected"},
    {NP_EINPUT, "{% for x in l %}x", "{% endfor %} is expected"},
    {NP_EINPUT, "{% macro f() %}x", "{% endmacro %} is expected"},
    {NP_EINPUT, "x{% endif %}", "a tag that opens a block is expected, not at \"endif\""},
    {NP_EINPUT, "\n{# x", "line 2: a comment is not closed"},
    {NP_EINPUT, "{% raw %}x", "{% raw %} is not closed"},
    {NP_EINPUT, "{{ 'x }}", "a text is not closed"},
    {NP_EINPUT, "{{ '\\x4' }}", "too few digits"},
    {NP_EINPUT, "{{ (1] }}", "a bracket is closed that was not opened"},
    {NP_EINPUT, "{{ }}", "an expression is expected"},
    {NP_EINPUT, "{{ a b }}", "\"}}\" is expected, not at \"b\""},
    {NP_EINPUT, "{{ a ! b }}", "an unexpected character"},
    {NP_EINPUT, "{{ 99999999999999999999 }}", "above 63 bits"},
    {NP_EINPUT, "{{ 01 }}", "begins with 0"},
    {NP_EINPUT, "{{ f(a=1, 2) }}", "behind named ones"},
    {NP_EINPUT, "{{ x[] }}", "an index is expected"},
    {NP_EINPUT, "{{ x is string is string }}", "tests cannot be chained"},
    {NP_EINPUT, "{% %}", "the name of a tag is expected"},
    {NP_EINPUT, "{% for 1 in l %}{% endfor %}", "a name to set is expected"},
    {NP_EINPUT, "{% set true = 1 %}", "a constant cannot be set"},
    {NP_EINPUT, "{% set x.0 = 1 %}", "an element of a list cannot be set"},
    {NP_EINPUT, "{% for x of l %}{% endfor %}", "\"in\" is expected"},
    {NP_EINPUT, "{% break %}", "{% break %} outside of a loop"},
    {NP_EINPUT, "{% for x in l %}{% macro f() %}{% continue %}", "{% continue %} outside"},
    {NP_EINPUT, "\xff", "must be UTF-8"},
};

static void what_is_no_template_is_refused(void **state)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        refused(refusals[i].template, messages, variables, 0, refusals[i].status, refusals[i].says);
}

static const struct {
    np_status status;
    const char *template, *says;
} errors[] = {
    {NP_EINPUT, "\n\n{{ raise_exception('no ' + l[0]|string) }}",
     "line 3: the template says: no 3"},
    {NP_EINPUT, "{{ nobody.x }}", "nobody is undefined, and x of it is taken"},
    {NP_EINPUT, "{{ d.nobody['x'] }}", "nobody is undefined, and an element of it is taken"},
    {NP_EINPUT, "{{ nobody[1:] }}", "nobody is undefined, and a slice of it is taken"},
    {NP_EINPUT, "{{ nobody() }}", "nobody is undefined, and is called"},
    {NP_EINPUT, "{{ 1 + nobody }}", "nobody is undefined, and is an operand of +"},
    {NP_EINPUT, "{{ 'a' + 1 }}", "a text and an int are no operands of +"},
    {NP_EINPUT, "{{ 1 // 0 }}", "a division by zero"},
    {NP_EINPUT, "{{ 1 % 0 }}", "a division by zero"},
    {NP_EINPUT, "{{ 1.5 / 0 }}", "a division by zero"},
    {NP_EINPUT, "{{ 1 < 'a' }}", "an int and a text have no order, which < needs"},
    {NP_EINPUT, "{{ 1 in 'a' }}", "an int cannot be looked for in a text"},
    {NP_EINPUT, "{{ [1] in d }}", "a list cannot be a key"},
    {NP_EINPUT, "{% for x in 5 %}{% endfor %}", "an int has no elements"},
    {NP_EINPUT, "{% for x, y in [[1]] %}{% endfor %}", "1 values for 2 names"},
    {NP_EINPUT, "{{ z|length }}", "None has no length"},
    {NP_EINPUT, "{{ l[::0] }}", "a slice has the step 0"},
    {NP_EINPUT, "{{ l|tojson + nobody|tojson }}", "cannot be written as JSON"},
    {NP_EINPUT, "{{ l.append(1) }}", ".append() would change a list"},
    {NP_EINPUT, "{{ d.update({}) }}", ".update() would change a dict"},
    {NP_EINPUT, "{% set d.x = 1 %}",
     "only an attribute of a namespace can be set, and d is a dict"},
    {NP_EINPUT, "{% set n = namespace() %}{% set n._x = 1 %}", "must not begin with _"},
    {NP_EINPUT, "{{ 'a'.split('') }}", "by an empty text"},
    {NP_EINPUT, "{{ 'a'|replace('b') }}", "replace needs 2 arguments"},
    {NP_EINPUT, "{{ 'a'|trim('b', 'c') }}", "trim has 1 arguments, and 2 are given"},
    {NP_EINPUT, "{{ 'a'|trim(nope=1) }}", "trim has no argument nope"},
    {NP_EINPUT, "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "f() has other parameters"},
    {NP_EINPUT, "{% macro f(a) %}{% endmacro %}{{ f(1, a=2) }}", "f() has two values for a"},
    {NP_EINPUT, "{{ l() }}", "a list cannot be called"},
    {NP_EINPUT, "{{ l|selectattr('a')|list|length + l|map|length }}", "map needs a filter"},
    {NP_EUNSUPPORTED, "{{ l|map('nope')|list }}", "the filter nope is not supported"},
    {NP_EUNSUPPORTED, "{{ '%s' % 1 }}", "% with a text is not supported"},
    {NP_EUNSUPPORTED, "{{ '\xc3\x9f'|upper }}", "the other case of U+00DF"},
    {NP_EUNSUPPORTED, "{{ d.items }}", "a method as text is not supported"},
    {NP_ELIMIT, "{{ 9223372036854775807 + 1 }}", "a number is above 63 bits"},
    {NP_ELIMIT, "{{ -9223372036854775807 * 2 }}", "a number is above 63 bits"},
    {NP_ELIMIT, "{{ range(100001) }}", "range gives 100001 numbers; at most 100000"},
};

static void what_values_do_not_allow_is_an_error(void **state)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        refused(errors[i].template, messages, variables, 0, errors[i].status, errors[i].says);
}

static void an_iterator_is_empty_once_it_was_looped_over(void **state)
{
    static const char text[] =
        "{% set s = l|select('gt', 1) %}{{ s|list }}{{ s|list }}{{ 3 in s }}{{ s is iterable }}";
    struct template_output out = rendered(text, messages, variables, 0);
    assert_string_equal(out.text, "[3, 2][]FalseTrue");
    template_output_free(&out);
    refused("{{ l|select|length }}", messages, variables, 0, NP_EINPUT,
            "an iterator has no length");
    refused("{{ (l|select)[0:1] }}", messages, variables, 0, NP_EINPUT,
            "an iterator has no slices");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_construct),
        cmocka_unit_test(what_is_no_template_is_refused),
        cmocka_unit_test(what_values_do_not_allow_is_an_error),
        cmocka_unit_test(an_iterator_is_empty_once_it_was_looped_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
