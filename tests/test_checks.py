"""Each check of the house catches a violation made for it, and passes a tree without one."""
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BANNED = {
    "strcpy": "strcpy(a, b)",
    "strcat": "strcat(a, b)",
    "sprintf": 'sprintf(a, "%s", b)',
    "vsprintf": 'vsprintf(a, "%s", list)',
    "strtok": "strtok(a, b)",
    "atoi": "atoi(b)",
    "atol": "atol(b)",
    "atof": "atof(b)",
    "gets": "gets(a)",
    "alloca": "alloca(7)",
}


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def make_tree(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def run_check(name, root):
    command = [sys.executable, ROOT / "tools" / f"{name}.py", root]
    return subprocess.run(command, capture_output=True, text=True)


HEADERS = {
    "include/nepit.h": "",
    "src/base/buf.h": "",
    "src/tensor/tensor.h": "",
    "src/tensor/kernels.h": "",
    "src/format/modelfile.h": "",
    "src/text/tokenizer.h": "",
    "src/model/model.h": "",
    "src/score/plan.h": "",
    "src/engine/engine.h": "",
    "src/api/handles.h": "",
    "server/server.h": "",
    "cli/commands.h": "",
}


@pytest.mark.parametrize(
    "place, include",
    [
        ("src/base/a.c", "tensor/tensor.h"),
        ("src/tensor/a.c", "format/modelfile.h"),
        ("src/tensor/a.c", "nepit.h"),
        ("src/format/a.c", "tensor/kernels.h"),
        ("src/text/a.c", "model/model.h"),
        ("src/score/a.c", "model/model.h"),
        ("src/model/a.c", "score/plan.h"),
        ("src/engine/a.c", "text/tokenizer.h"),
        ("src/engine/a.c", "api/handles.h"),
        ("server/a.c", "engine/engine.h"),
        ("server/a.c", "cli/commands.h"),
        ("cli/a.c", "text/tokenizer.h"),
        ("src/newroom/a.c", "base/buf.h"),
        ("src/score/a.c", "../model/model.h"),
        ("src/score/a.c", "../../../outside.h"),
        ("src/score/a.c", "score/absent.h"),
    ],
)
def test_layers_catch_a_wrong_arrow(tmp_path, place, include):
    make_tree(tmp_path, {**HEADERS, place: f'\n#include "{include}"\n'})
    result = run_check("check_layers", tmp_path)
    assert result.returncode == 1
    assert f"{place}:2:" in result.stdout


@pytest.mark.parametrize(
    "place, header",
    [("src/score/a.c", "jansson.h"), ("cli/a.c", "pcre2.h"), ("src/api/a.c", "cmocka.h")],
)
def test_layers_catch_a_wrong_library(tmp_path, place, header):
    make_tree(tmp_path, {place: f"#include <stdio.h>\n#include <{header}>\n"})
    result = run_check("check_layers", tmp_path)
    assert result.returncode == 1
    assert f"{place}:2:" in result.stdout


def test_layers_catch_two_rooms_under_test(tmp_path):
    text = '#include "base/buf.h"\n#include "format/modelfile.h"\n#include "score/plan.h"\n'
    make_tree(tmp_path, {**HEADERS, "fuzz/a.c": text})
    result = run_check("check_layers", tmp_path)
    assert result.returncode == 1
    assert "fuzz/a.c:3:" in result.stdout


def test_layers_pass_the_allowed_arrows(tmp_path):
    files = {
        "src/base/error.h": '#include "nepit.h"\n',
        "src/format/a.c": '#include "format/modelfile.h"\n#include "tensor/tensor.h"\n',
        "src/engine/a.c": '#include "model/model.h"\n#include "score/plan.h"\n',
        "src/api/a.c": '#include "engine/engine.h"\n#include "text/tokenizer.h"\n',
        "cli/a.c": '#include "commands.h"\n#include "nepit.h"\n#include "server/server.h"\n',
        "tests/unit/a.c": '#include "score/plan.h"\n#include <cmocka.h>\n',
        "fuzz/a.c": '#include "base/buf.h"\n#include "format/modelfile.h"\n',
    }
    result = run_check("check_layers", make_tree(tmp_path, {**HEADERS, **files}))
    assert result.returncode == 0, result.stdout


def lines_of_code(n):
    return "".join(f"    x += {i};\n" for i in range(n))


BRANCHES = "".join(f"    if (x == {i}) x++;\n" for i in range(15))
VIOLATIONS = {
    "a long file": ("src/base/a.c", "int x;\n" * 601, "601 lines"),
    "a long face": ("src/base/a.h", "int x;\n" * 151, "151 lines"),
    "a long public header": ("include/nepit.h", "\n" * 601, "601 lines"),
    "a wide line": ("src/base/a.c", f"/* {'x' * 98} */\n", "columns"),
    "a long top comment": ("src/base/a.c", "/*\n" + " * x\n" * 14 + " */\n", "top comment"),
    "a long function": (
        "src/base/a.c",
        "int f(int x)\n{\n" + lines_of_code(80) + "    return x;\n}\n",
        "lines",
    ),
    "a complex function": (
        "src/base/a.c",
        "int f(int x)\n{\n" + BRANCHES + "    return x;\n}\n",
        "complexity 16",
    ),
    "a long Python function": ("tools/a.py", "def f(x):\n" + "    x = 1\n" * 80, "81 lines"),
}


@pytest.mark.parametrize("place, text, expected", VIOLATIONS.values(), ids=VIOLATIONS)
def test_sizes_catch(tmp_path, place, text, expected):
    result = run_check("check_sizes", make_tree(tmp_path, {place: text}))
    assert result.returncode == 1
    assert place in result.stdout and expected in result.stdout


def test_sizes_catch_a_name_used_twice(tmp_path):
    tree = make_tree(tmp_path, {"src/base/list.c": "", "src/text/list.c": ""})
    result = run_check("check_sizes", tree)
    assert result.returncode == 1
    assert "list.c is not unique" in result.stdout


def test_sizes_pass_what_is_at_the_limit(tmp_path):
    function = "int f(int x)\n{\n" + lines_of_code(76) + "    return x;\n}\n"
    files = {
        "src/base/a.c": function + "int x;\n" * (600 - function.count("\n")),
        "src/base/b.h": "int x;\n" * 150,
        "src/base/table.c": "/* Made by tools/x.py; do not edit. */\n" + "int x;\n" * 700,
        "tests/unit/c.h": "int x;\n" * 400,
    }
    result = run_check("check_sizes", make_tree(tmp_path, files))
    assert result.returncode == 0, result.stdout


def test_exports_compare():
    compare = load("check_exports").compare
    assert not list(compare({"np_a", "np_b"}, {"np_a", "np_b"}))
    assert list(compare({"np_a", "buf_push"}, {"np_a"})) == [
        "exported, but not ours to export: buf_push"
    ]
    assert list(compare({"np_a", "np_b"}, {"np_a"})) == ["exported, but not in nepit.h: np_b"]
    assert list(compare({"np_a"}, {"np_a", "np_b"})) == ["in nepit.h, but not exported: np_b"]


def test_exports_read_a_library(tmp_path):
    text = "int np_a(void) { return 0; } int leak(void) { return 1; }"
    source = make_tree(tmp_path, {"a.c": text}) / "a.c"
    library = tmp_path / "liba.so"
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True)
    assert load("check_exports").exported_names(library) == {"np_a", "leak"}


def test_exports_need_a_header_that_stands_alone(tmp_path):
    header = make_tree(tmp_path, {"nepit.h": "size_t np_a(void);\n"}) / "nepit.h"
    assert len(list(load("check_exports").header_errors(header))) == 2


def test_format_catches_other_indentation(tmp_path):
    file = make_tree(tmp_path, {"a.c": "int f(void)\n{\n  return 1;\n}\n"}) / "a.c"
    command = [sys.executable, ROOT / "tools/check_format.py", file]
    assert subprocess.run(command, capture_output=True).returncode == 1
    subprocess.run([*command, "--fix"], check=True, capture_output=True)
    assert file.read_text() == "int f(void)\n{\n    return 1;\n}\n"


@pytest.mark.parametrize("call", BANNED.values(), ids=BANNED)
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_banned_function_is_a_compile_error(tmp_path, call, compiler):
    def compiles(statement):
        body = f"#include <stdarg.h>\nvoid f(char *a, char *b, va_list list) {{ {statement}; }}\n"
        source = make_tree(tmp_path, {"a.c": body}) / "a.c"
        banned = ROOT / "src/base/banned.h"
        command = [compiler, "-std=c11", "-fsyntax-only", "-w", "-include", banned]
        return subprocess.run([*command, source], capture_output=True).returncode == 0

    assert compiles("(void)a, (void)b, (void)list")
    assert not compiles(call)


def test_every_word_of_run_has_its_job():
    text = (ROOT / "run").read_text().replace("\\\n", "")
    words = re.search(r"^case \$word in\n(.*?)\)", text, re.S | re.M)[1].split("|")
    jobs = set(re.findall(r"^job_(\w+)\(\)", text, re.M))
    assert {word.replace("-", "_") for word in words} == jobs
    listed = set(re.findall(r"^\./run ([a-z-]+)", text, re.M))
    assert listed == set(words)
    makefile = (ROOT / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)", makefile, re.M)[1].split()
    assert set(words) - {"setup", "compile"} == set(targets)


JUNIT = """<testsuites><testsuite>
<testcase name="a"/><testcase name="b"><failure/></testcase>
<testcase name="c"><error/></testcase><testcase name="d"><skipped/></testcase>
</testsuite></testsuites>"""


CMOCKA = """<testsuites><testsuite>
<testcase name="unit"><failure/><system-out>[==========] Running 4 test(s).
[ RUN      ] one
[       OK ] one
[ RUN      ] two
[       OK ] two
[ RUN      ] three
[ RUN      ] four
</system-out><system-err>[  FAILED  ] three
[  SKIPPED ] four
[  FAILED  ] 1 test(s), listed below:
[  FAILED  ] three
</system-err></testcase>
<testcase name="crash"><failure/><system-out>[       OK ] five
</system-out></testcase>
</testsuite></testsuites>"""


@pytest.mark.parametrize(
    "text, expected",
    [(JUNIT, "1 passed, 2 failed, 1 skipped"), (CMOCKA, "3 passed, 2 failed, 1 skipped")],
)
def test_the_runner_counts(tmp_path, text, expected):
    runner = load("run_tests")
    path = make_tree(tmp_path, {"a.xml": text}) / "a.xml"
    assert str(runner.count_junit(path)) == expected


def test_the_runner_loses_no_crash(tmp_path):
    """A runner that ends badly without leaving its file is a failure; so is a failed check."""
    runner = load("run_tests")
    fails, works = [sys.executable, "-c", "exit(3)"], [sys.executable, "-c", ""]
    assert runner.run(runner.Step("crash", fails, str(tmp_path / "absent.xml"))).failed == 1
    assert runner.run(runner.Step("check", fails)).failed == 1
    assert runner.run(runner.Step("check", works)).passed == 1
    assert runner.run(runner.Step("tool", works, needs="no-such-program")).skipped == 1
