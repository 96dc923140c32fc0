"""POST /tokenize, POST /detokenize, GET /tokenizer_info: C134."""

import pytest
from clirun import MODELS, nepit

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MESSAGES = [{"role": "user", "content": "at <|im_end|>"}]


def tokens(server, **body):
    return server.post("/tokenize", body).json["tokens"]


@pytest.mark.parametrize("text", ["hello at", "", "é 漢 \U0001f600", "a<|im_end|>b", "\x00\n"])
def test_C134_tokenize_is_what_the_command_says(tiny, text):
    answer = tiny.post("/tokenize", {"prompt": text, "return_token_strs": True}).json
    if "\x00" not in text:
        ids = nepit("tokenize", "--json", "--", text).json["token_ids"]
        assert answer["tokens"] == ids
    assert answer["count"] == len(answer["tokens"]) and answer["max_model_len"] == 512
    assert len(answer["token_strs"]) == answer["count"]
    assert tiny.post("/tokenize", {"prompt": text}).json["token_strs"] is None
    assert tiny.post("/detokenize", {"tokens": answer["tokens"]}).json == {"prompt": text}


def test_C134_ids_agree_with_scoring(tiny):
    text = "hello at the end é"
    body = {"prompt": text, "max_tokens": 0, "return_token_ids": True}
    (choice,) = tiny.post("/v1/completions", body).json["choices"]
    assert choice["prompt_token_ids"] == tokens(tiny, prompt=text)
    chat = {"messages": MESSAGES, "chat_template": CHAT}
    asked = {**chat, "max_tokens": 0, "return_token_ids": True}
    answer = tiny.post("/v1/chat/completions", asked).json
    assert answer["prompt_token_ids"] == tokens(tiny, **chat)


def test_C134_special_tokens(tiny):
    assert tokens(tiny, prompt="<|im_end|>") == [300]
    literally = tokens(tiny, prompt="<|im_end|>", parse_special=False)
    assert 300 not in literally and len(literally) > 1
    assert tokens(tiny, prompt="at", add_special_tokens=False) == [281]
    assert tokens(tiny, prompt="at", add_special_tokens=True) == [281]  # this model adds none


def test_C134_messages(tiny):
    chat = {"messages": MESSAGES, "chat_template": CHAT}
    plain = tiny.post("/detokenize", {"tokens": tokens(tiny, **chat)}).json["prompt"]
    begin = "<|im_start|>user\nat <|im_end|><|im_end|>\n"
    assert plain == begin + "<|im_start|>assistant\n"
    closed = tokens(tiny, **chat, add_generation_prompt=False)
    assert tiny.post("/detokenize", {"tokens": closed}).json["prompt"] == begin
    open_ended = tokens(tiny, **chat, continue_final_message=True)
    text = tiny.post("/detokenize", {"tokens": open_ended}).json["prompt"]
    assert text == "<|im_start|>user\nat <|im_end|>"


def test_C161_markers_in_messages_are_text_unless_asked(tiny):
    chat = {"messages": MESSAGES, "chat_template": CHAT}
    assert tokens(tiny, **chat).count(300) == 1
    assert tokens(tiny, **chat, parse_special_in_content=True).count(300) == 2


def test_C134_info(tiny, demo):
    info = tiny.get("/tokenizer_info").json
    assert info["bos_token"] == info["eos_token"] == "<|endoftext|>"
    assert (info["bos_token_id"], info["eos_token_id"], info["vocab_size"]) == (298, 298, 301)
    assert info["pad_token"] is None and info["add_bos_token"] is False
    assert info["chat_template"] is None and "tokenizer_class" in info
    assert "<|im_start|>" in demo.get("/tokenizer_info").json["chat_template"]


def test_errors_name_their_fields(tiny):
    tiny.refused("/tokenize", {}, "prompt")
    tiny.refused("/tokenize", {"prompt": "a", "messages": MESSAGES}, "prompt")
    tiny.refused("/tokenize", {"prompt": ["a"]}, "prompt")
    tiny.refused("/tokenize", {"messages": []}, "messages")
    tiny.refused("/tokenize", {"messages": MESSAGES}, "chat_template")
    tiny.refused("/tokenize", {"messages": ["a"], "chat_template": CHAT}, "messages[0]")
    tiny.refused("/detokenize", {}, "tokens")
    assert tiny.post("/detokenize", {"tokens": []}).json == {"prompt": ""}
    for bad in (301, -1, 2**31, 2**63, 1.5, "a", True):
        tiny.refused("/detokenize", {"tokens": [1, bad]}, "tokens[1]")


def test_a_model_without_a_tokenizer_says_so(serve):
    with serve(model=MODELS / "llama-head10-bf16") as server:
        server.refused("/tokenize", {"prompt": "a"}, "prompt")
        server.refused("/detokenize", {"tokens": [1]}, "tokens")
        server.refused("/v1/chat/completions", {"messages": MESSAGES}, "messages")
        assert server.get("/tokenizer_info", status=400).error["message"]
