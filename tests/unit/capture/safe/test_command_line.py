"""What a command line may show to somebody else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdoc.capture.safe.command_line import without_secrets
from hangdoc.model.masking import mask_text


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--wandb-token", "abc", "--lr", "1e-3"], ["--wandb-token", "…", "--lr", "1e-3"]),
        (["--hf_token=abc"], ["--hf_token=…"]),
        (["--api-key", "--lr"], ["--api-key", "--lr"]),
        (["env", "DB_PASSWORD=x", "python"], ["env", "DB_PASSWORD=…", "python"]),
        (["trainer.secret=x", "trainer.epochs=3"], ["trainer.secret=…", "trainer.epochs=3"]),
        (["--num-tokens", "300", "--tokenizer=gpt2"], ["--num-tokens", "300", "--tokenizer=gpt2"]),
        (["--max_tokens=3", "--eos-token-id", "2"], ["--max_tokens=3", "--eos-token-id", "2"]),
        (["hf_abcdefghijklmnopqrst"], ["…"]),
        (["hf_finetune_llama_lora.py"], ["hf_finetune_llama_lora.py"]),
        (["--store", "redis://me:pw@host:1/0"], ["--store", "redis://…@host:1/0"]),
        (["python", "-c", "login('x')", "a"], ["python", "-c", "…", "a"]),
        (["python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(5)"],) * 2,
        (["a\nb", "\x1b[1m"], ["a\\nb", "\\x1b[1m"]),
    ],
)
def test_secrets_are_hidden_and_nothing_else(words: list[str], shown: list[str]) -> None:
    assert without_secrets(words) == tuple(shown)


@given(st.lists(st.text(max_size=40), max_size=8))
def test_any_command_line(words: list[str]) -> None:
    shown = without_secrets(words)
    assert len(shown) == len(words)
    assert all(word.isprintable() and len(word) <= 6000 for word in shown)
    assert without_secrets(shown) == tuple(without_secrets(without_secrets(shown)))


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("loss: 0.3  tokens=512", "loss: 0.3  tokens=512"),
        ("wandb: api_key=abcdef  ok", "wandb: api_key=…  ok"),
        ("login hf_abcdefghijklmnopqrst", "login …"),
        ("  cloning https://me:pw@host/x", "  cloning https://…@host/x"),
        ("ValueError: token type 3", "ValueError: token type 3"),
    ],
)
def test_lines_of_logs(line: str, shown: str) -> None:
    assert mask_text(line) == shown
