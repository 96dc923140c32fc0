"""The official client, unchanged, in both stream modes: C092. Numbers are the command's."""

import pytest
from test_chat import CHAT, USER, chat, check_content
from test_completions import IDS, TEXT, check_legacy, scored

openai = pytest.importorskip("openai")


@pytest.fixture(scope="module")
def client(tiny):
    with openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def model(client):
    (model,) = client.models.list()
    return model.id


def legacy(choice):
    """As a dict; what the client's types do not know stays as it came."""
    return choice.logprobs.model_dump()


def test_C092_completions(client, model, library):
    answer = client.completions.create(
        model=model, prompt=TEXT, max_tokens=3, logprobs=2, echo=True, temperature=0
    )
    (choice,) = answer.choices
    assert choice.text.startswith(TEXT) and choice.finish_reason == "length"
    assert choice.logprobs.token_logprobs[0] is None
    line = scored(library, 2, token_ids=legacy(choice)["token_ids"])
    check_legacy(legacy(choice), line, 2)
    assert choice.logprobs.token_logprobs == line["logprobs"]
    assert answer.usage.completion_tokens == 3
    assert answer.usage.prompt_tokens == len(line["token_ids"]) - 3


def test_C092_completions_of_ids_without_tokens(client, model, library):
    answer = client.completions.create(
        model=model,
        prompt=[IDS, IDS[:3]],
        max_tokens=0,
        logprobs=0,
        echo=True,
        extra_body={"prompt_logprobs": 1, "return_token_ids": True},
    )
    for choice, ids in zip(answer.choices, (IDS, IDS[:3]), strict=True):
        check_legacy(legacy(choice), scored(library, token_ids=ids), 0)
        assert choice.prompt_token_ids == ids and len(choice.prompt_logprobs) == len(ids)


def test_C092_streamed_completions(client, model):
    asked = {"model": model, "prompt": TEXT, "max_tokens": 4, "logprobs": 1, "echo": True}
    asked |= {"seed": 5, "temperature": 1}
    (plain,) = client.completions.create(**asked).choices
    columns, text, usage, finish = {}, "", None, None
    options = {"include_usage": True}
    for event in client.completions.create(**asked, stream=True, stream_options=options):
        usage = event.usage
        for choice in event.choices:
            text += choice.text
            finish = choice.finish_reason
            for name, value in legacy(choice).items() if choice.logprobs else ():
                columns[name] = columns.get(name, []) + value
    assert text == plain.text and columns == legacy(plain) and finish == plain.finish_reason
    assert usage.completion_tokens == 4


def test_C092_chat(client, model, library):
    body = chat(USER)
    answer = client.chat.completions.create(
        model=model,
        messages=body.pop("messages"),
        max_completion_tokens=4,
        logprobs=True,
        top_logprobs=3,
        seed=2,
        extra_body=body,
    )
    (choice,) = answer.choices
    line = scored(library, 3, token_ids=answer.prompt_token_ids + choice.token_ids)
    content = [entry.model_dump() for entry in choice.logprobs.content]
    assert len(content) == 4
    check_content(content, line, len(answer.prompt_token_ids), 3)
    assert choice.message.role == "assistant" and choice.message.tool_calls is None


def test_C092_streamed_chat(client, model):
    asked = {"model": model, "messages": [USER], "max_tokens": 5, "logprobs": True, "seed": 3}
    asked |= {"top_logprobs": 2, "extra_body": {"chat_template": CHAT}}
    (plain,) = client.chat.completions.create(**asked).choices
    text, content, finish = "", [], None
    for event in client.chat.completions.create(**asked, stream=True):
        (choice,) = event.choices
        text += choice.delta.content or ""
        finish = choice.finish_reason
        if choice.logprobs:
            content += choice.logprobs.content
    assert text == plain.message.content and finish == plain.finish_reason
    assert content == plain.logprobs.content


def test_C092_the_clients_own_stream_helper(client, model):
    """It puts the events together itself, and takes an answer that was cut short for an error."""
    asked = {"model": model, "messages": [USER], "max_tokens": 5, "logprobs": True, "seed": 3}
    more = {"chat_template": CHAT, "return_token_ids": True}
    (cut,) = client.chat.completions.create(**asked, extra_body=more).choices
    asked["extra_body"] = {**more, "stop_token_ids": cut.token_ids[-1:]}
    (plain,) = client.chat.completions.create(**asked).choices
    with client.chat.completions.stream(**asked) as stream:
        for _ in stream:
            pass
        (choice,) = stream.get_final_completion().choices
    assert choice.message.content == plain.message.content
    assert choice.logprobs.content == plain.logprobs.content


def test_errors_are_the_clients_own(client, model):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=model, prompt=[5, 999])
    assert caught.value.param == "prompt[1]" and caught.value.status_code == 400
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="another", prompt="a")
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model=model, messages=[USER], top_logprobs=3)


def test_the_asynchronous_client(tiny, model):
    import asyncio

    async def ask():
        async with openai.AsyncOpenAI(base_url=f"{tiny.url}/v1", api_key="none") as client:
            asked = {"model": model, "prompt": IDS, "max_tokens": 2, "temperature": 0}
            many = (client.completions.create(**asked) for _ in range(8))
            answers = await asyncio.gather(*many)
            return {answer.choices[0].text for answer in answers}

    assert len(asyncio.run(ask())) == 1
