"""Families of tasks that one short command does: what a model of 135 million parameters can begin to learn from."""

from __future__ import annotations

from openclaw_rl.envs.terminal.shipped.draft import FOLDER, GONE, Draft
from openclaw_rl.envs.terminal.shipped.words import TaskWords


def create(words: TaskWords) -> Draft:
    name = words.file()
    return Draft(
        kind="create",
        instruction=f"Create an empty file called {name}.",
        before={},
        after={name: ""},
        command=f"touch {name}",
    )


def mkdir(words: TaskWords) -> Draft:
    name = words.folder() + words.one_of(("", "", "_2", "_new"))
    return Draft(
        kind="mkdir",
        instruction=f"Make a directory called {name}.",
        before={},
        after={name: FOLDER},
        command=f"mkdir {name}",
    )


def copy(words: TaskWords) -> Draft:
    old, new = words.files(2)
    text = words.lines(1, 3)
    return Draft(
        kind="copy",
        instruction=f"Copy the file {old} to {new}.",
        before={old: text},
        after={new: text},
        command=f"cp {old} {new}",
    )


def rename(words: TaskWords) -> Draft:
    old, new = words.files(2)
    text = words.lines(1, 3)
    return Draft(
        kind="rename",
        instruction=f"Rename the file {old} to {new}.",
        before={old: text},
        after={old: GONE, new: text},
        command=f"mv {old} {new}",
    )


def delete(words: TaskWords) -> Draft:
    wanted, other = words.extensions(2)
    nouns = words.nouns(4)
    gone = [f"{noun}.{wanted}" for noun in nouns[:2]]
    return Draft(
        kind="delete",
        instruction=f"Delete all files that end in .{wanted}.",
        before=dict.fromkeys((*gone, *(f"{noun}.{other}" for noun in nouns[2:])), ""),
        after=dict.fromkeys(gone, GONE),
        command=f"rm *.{wanted}",
    )


def move_into(words: TaskWords) -> Draft:
    name, folder, text = words.file(), words.folder(), words.lines(1, 3)
    return Draft(
        kind="move_into",
        instruction=f"Move the file {name} into the directory {folder}.",
        before={name: text, folder: FOLDER},
        after={name: GONE, f"{folder}/{name}": text},
        command=f"mv {name} {folder}/",
    )


FAMILIES = (create, mkdir, copy, rename, delete)
HELD_OUT_FAMILIES = (move_into,)
"""Never trained on: they show whether what was learned reaches further."""
