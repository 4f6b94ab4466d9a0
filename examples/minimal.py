"""The whole way on one page: two turns, a reaction, a judgement, a sample, a step, and the new version answers.

    .venv/bin/python examples/minimal.py

The parts are those of `openclaw-rl up`, made by `openclaw_rl/wiring/`. There, four loops run side by side
(`openclaw_rl/pipeline.py`); here each is given its turn once, in the order of the data, so that you can watch. There is
no HTTP. The model is made on the spot: two layers of random weights, which really sample, train and are published.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

from openclaw_rl.config import load_config
from openclaw_rl.gateway.answer.exchange import Gateway
from openclaw_rl.gateway.sessions.identify import Identity
from openclaw_rl.judge.registry import make_judges
from openclaw_rl.tracking import Observers
from openclaw_rl.types import LOCAL_USER, Message, Request, Sampling, Step, TextDelta
from openclaw_rl.wiring.foundation import lay_foundation, open_store
from openclaw_rl.wiring.learning import (
    make_credit_loop,
    make_judge_loop,
    make_release,
    make_train_loop,
    make_trainer,
)
from openclaw_rl.wiring.serving import make_serving

SETTINGS = (
    "evaluation.judge=rules",  # reads reactions without a model
    "training.truncated=score",  # a random model never comes to an end; by default a cut answer teaches by hints alone
    "training.learning_rate=0.01",
    "training.exercises=0",
    # The gate compares a candidate with its parent and the base model. A random model has no language to lose.
    *("release.min_distinct=0", "release.max_repetition=1", "release.max_kl=100", "release.max_kl_prompt=100"),
    *("release.max_length=100", "release.max_off_topic=1", "release.capability_items=0", "release.answer_tokens=16"),
)


async def main(folder: Path) -> None:
    heading("1. The parts")
    model = make_tiny_model(folder / "model")
    chosen = (f"model.name={model}", f"store.data_dir={folder / 'data'}", *SETTINGS)
    config = load_config(env={"PATH": os.environ["PATH"]}, overrides=chosen).config
    foundation = await lay_foundation(config)  # the model's files, and its words <-> token ids
    async with await open_store(config.store) as store, asyncio.TaskGroup() as tasks:
        lessons = store.lessons  # the part of the store that the loops of learning share
        await lessons.run_with(foundation.model_id)
        serving = await make_serving(foundation, store, folder)  # the engine, a process of its own, and the gateway
        running = tasks.create_task(serving.host.run())
        trainer = make_trainer(foundation)  # another process, which starts with its first order
        assert trainer is not None, "there are weights to train"
        releasing = make_release(foundation, lessons, serving.host, serving.live, Observers(), trainer=trainer)
        await releasing.releaser.restore()  # nothing yet: the base model answers
        state = await serving.host.wait_ready()
        print(f"an engine on {state.device} with version {state.live_version}, a gateway, and a store in {folder.name}")

        heading("2. A request becomes a turn, on disk before its answer ends")
        question = Message(role="user", content="What is gravity?")
        answer = await ask(serving.gateway, [question])

        heading("3. The next request repeats the history, and tells what the person thought of the answer")
        reaction = Message(role="user", content="No, shorter please.")
        await ask(serving.gateway, [question, answer, reaction])
        (session,) = [outline.session for outline in await store.load_open()]
        first, second = await lessons.turns(session.id)
        ids = first.prompt_ids + first.completion.token_ids
        print(f"its prompt starts with all {len(ids)} ids of turn {first.id}: {second.prompt_ids[: len(ids)] == ids}")
        followed = await lessons.next_state(session.id, first.index)
        assert followed is not None
        print(f"what followed turn {first.id}: {followed.messages[0].content!r}")

        heading("4. A judge reads the reaction: a judgement")
        judges = make_judges(config, engine=serving.host.engine, renderer=foundation.renderer)
        await make_judge_loop(config, lessons, judges, serving.metrics).work()
        (judgement,) = await lessons.judgements(session.id)
        verdict = judgement.verdict
        print(f"{judgement.judge} on turn {judgement.turn_id}: score {verdict.score}, hints {list(verdict.hints)}")

        heading("5. Credit makes a sample of it: tokens, advantages, and the prompt that a teacher reads")
        await make_credit_loop(foundation, lessons, serving.host.engine, serving.metrics, Observers()).work()
        (credit,) = await lessons.credits(session.id)
        for sample in credit.samples:
            print(f"sample {sample.id} of {sample.line}: reward {sample.reward:+g}, {len(sample.advantages)} tokens")
            print(f"  advantages  {show(sample.advantages)}")
            print(f"  log-probs   {show(sample.logprobs or ())}")
            for candidate in sample.candidates:
                print(f"  the teacher reads {foundation.renderer.decode(candidate.suffix_ids)!r} before it answers")

        heading("6. One step on it, and its version: through the gate, proved on the engine, live")
        steps: list[Step] = []
        release = releasing.releaser.release
        training = make_train_loop(config, lessons, trainer, foundation.renderer, release=release, on_step=steps.append)
        await training.work(at_once=True)
        (step,) = steps
        (version,) = await lessons.versions(step.line)
        told = ", ".join(f"{name} {step.metrics[name]:.3f}" for name in ("loss/total", "gradient/norm", "reward/mean"))
        print(f"step {step.number} on {list(step.sample_ids)}: {told}")
        told = f"{version.state} {version.reason}".strip()
        print(f"version {version.label}, from v{version.parent}: {told}")

        heading("7. The new version answers")
        await ask(serving.gateway, [Message(role="user", content="And what is light?")])

        for judge in judges:
            await judge.close()
        await serving.gateway.background.drain()
        await trainer.close()
        await serving.host.stop()
        await running


async def ask(gateway: Gateway, messages: Sequence[Message]) -> Message:
    """What `gateway/api/` does for one HTTP request, without the HTTP."""
    request = Request(messages=tuple(messages), sampling=Sampling(max_tokens=24, temperature=0.7, seed=1))
    digest = hashlib.blake2b(repr(request).encode(), digest_size=16).hexdigest()  # tells a retry from a new request
    identity = Identity(client="examples/minimal.py", session_key=None, kind="main")  # `identify` reads it off headers

    # Find the session, and render the prompt: the exact ids of the turn before, and what is new.
    exchange = await gateway.begin(request, identity, user=LOCAL_USER, digest=digest, dialect="none")
    print(f"turn {exchange.turn_ids[0]}, {exchange.num_prompt_tokens} prompt tokens, answered by {exchange.version}")
    words = ""
    async with aclosing(exchange.pieces()) as pieces:
        async for _, piece in pieces:  # a client sees the words; ids and log-probs beside them are what training needs
            words += "".join(event.text for event in piece.events if isinstance(event, TextDelta))
    await exchange.commit()  # the law of the gateway: on disk, and only then may the client see the end
    await exchange.delivered()
    print(f"  {words!r}")
    return exchange.answers[0][0]


def make_tiny_model(folder: Path) -> Path:
    """A checkpoint as people download them, small and random. Its tokens are bytes, and those of the chat format."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, set_seed
    from transformers.utils.logging import disable_progress_bar

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    texts = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={text: index for index, text in enumerate(texts)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    set_seed(0)
    config = LlamaConfig(
        vocab_size=len(texts),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=1024,
        initializer_range=0.2,  # ten times the usual: answers that differ from prompt to prompt
        bos_token_id=1,
        eos_token_id=2,
    )
    disable_progress_bar()
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    template = (
        "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return folder


def show(values: Sequence[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values[:8]) + " …"


def heading(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(Path(name)))
