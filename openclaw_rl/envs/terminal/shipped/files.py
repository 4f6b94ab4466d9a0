"""Families of tasks with files in a shell: several commands each, and answers that are written into a file."""

from __future__ import annotations

from openclaw_rl.envs.terminal.shipped.draft import FOLDER, GONE, Draft
from openclaw_rl.envs.terminal.shipped.words import TaskWords


def write_line(words: TaskWords) -> Draft:
    name, text = words.file(), " ".join(words.words(4))
    return Draft(
        kind="write_line",
        instruction=f"Write the file {name} with one line: {text}",
        before={},
        after={name: f"{text}\n"},
        command=f"echo '{text}' > {name}",
    )


def nested_folders(words: TaskWords) -> Draft:
    outer, inner, name = words.folder(), words.folder(), words.file()
    return Draft(
        kind="nested_folders",
        instruction=f"Make the directory {outer} with a directory {inner} in it, and an empty file {name} in that one.",
        before={},
        after={outer: FOLDER, f"{outer}/{inner}": FOLDER, f"{outer}/{inner}/{name}": ""},
        command=f"mkdir -p {outer}/{inner} && touch {outer}/{inner}/{name}",
    )


def copy_all(words: TaskWords) -> Draft:
    folder, extension = words.folder(), words.extension()
    nouns = words.nouns(4)
    copied = {f"{noun}.{extension}": words.lines(1, 3) for noun in nouns[:3]}
    other = {f"{nouns[3]}.sh": words.lines(1, 3)}
    return Draft(
        kind="copy_all",
        instruction=f"Copy every file that ends in .{extension} into the directory {folder}, which is already there.",
        before={**copied, **other, folder: FOLDER},
        after={f"{folder}/{name}": text for name, text in copied.items()},
        command=f"cp *.{extension} {folder}/",
    )


def rename_extension(words: TaskWords) -> Draft:
    old, new = words.extensions(2)
    texts = {noun: words.lines(1, 3) for noun in words.nouns(3)}
    return Draft(
        kind="rename_extension",
        instruction=f"Give every file that ends in .{old} the ending .{new} instead.",
        before={f"{noun}.{old}": text for noun, text in texts.items()},
        after={f"{noun}.{old}": GONE for noun in texts} | {f"{noun}.{new}": text for noun, text in texts.items()},
        command=f'for f in *.{old}; do mv "$f" "${{f%.{old}}}.{new}"; done',
    )


def delete_empty(words: TaskWords) -> Draft:
    names = words.files(5)
    number = words.random.randint(2, 3)
    return Draft(
        kind="delete_empty",
        instruction="Delete the files that are empty, and no others.",
        before={name: "" if at < number else words.lines(1, 3) for at, name in enumerate(names)},
        after=dict.fromkeys(names[:number], GONE),
        command="find . -type f -empty -delete",
    )


def append_line(words: TaskWords) -> Draft:
    name, before, text = words.file(), words.lines(2, 5), " ".join(words.words(3))
    return Draft(
        kind="append_line",
        instruction=f"Add this line at the end of {name}: {text}",
        before={name: before},
        after={name: f"{before}{text}\n"},
        command=f"echo '{text}' >> {name}",
    )


def count_lines(words: TaskWords) -> Draft:
    name, text = words.file(), words.lines(3, 30)
    return _answer(
        "count_lines", f"How many lines does {name} have?", {name: text}, len(text.splitlines()), f"wc -l < {name}"
    )


def count_words(words: TaskWords) -> Draft:
    name, text = words.file(), words.lines(3, 12)
    return _answer("count_words", f"How many words are in {name}?", {name: text}, len(text.split()), f"wc -w < {name}")


def count_matches(words: TaskWords) -> Draft:
    name, text = words.file(), words.lines(8, 25)
    word = words.one_of(text.split())
    number = sum(word in line for line in text.splitlines())
    question = f"How many lines of {name} contain the word {word}?"
    return _answer("count_matches", question, {name: text}, number, f"grep -c {word} {name}")


def largest(words: TaskWords) -> Draft:
    return _by_size(words, "largest", "head")


def sort_lines(words: TaskWords) -> Draft:
    name, new = words.files(2)
    lines = [f"{word}\n" for word in words.words(words.random.randint(5, 12))]
    return Draft(
        kind="sort_lines",
        instruction=f"Write the lines of {name}, sorted from a to z, into {new}. Leave {name} as it is.",
        before={name: "".join(lines)},
        after={new: "".join(sorted(lines))},
        command=f"LC_ALL=C sort {name} > {new}",
    )


def unique_lines(words: TaskWords) -> Draft:
    name, new = words.files(2)
    lines = [f"{word}\n" for word in words.words(words.random.randint(10, 20))]
    return Draft(
        kind="unique_lines",
        instruction=f"Write every different line of {name} once, sorted from a to z, into {new}.",
        before={name: "".join(lines)},
        after={new: "".join(sorted(set(lines)))},
        command=f"LC_ALL=C sort -u {name} > {new}",
    )


def join_files(words: TaskWords) -> Draft:
    first, second, new = words.files(3)
    texts = words.lines(1, 4), words.lines(1, 4)
    return Draft(
        kind="join_files",
        instruction=f"Write {first} and then {second} into one new file, {new}.",
        before=dict(zip((first, second), texts, strict=True)),
        after={new: "".join(texts)},
        command=f"cat {first} {second} > {new}",
    )


def replace_word(words: TaskWords) -> Draft:
    name, text = words.file(), words.lines(4, 10)
    old, new = words.one_of(text.split()), words.person()
    return Draft(
        kind="replace_word",
        instruction=f"Replace the word {old} by {new} everywhere in {name}.",
        before={name: text},
        after={name: text.replace(old, new)},
        command=f"sed -i 's/{old}/{new}/g' {name}",
    )


def extract_column(words: TaskWords) -> Draft:
    return _column(words, "extract_column", "csv", ",", "-d, ")


def sum_column(words: TaskWords) -> Draft:
    name = f"{words.noun()}.csv"
    rows = [(person, words.random.randint(1, 99)) for person in words.people(5)]
    text = "name,points\n" + "".join(f"{person},{points}\n" for person, points in rows)
    question = f"{name} has the columns name and points. What is the sum of all points?"
    total = sum(points for _, points in rows)
    return _answer(
        "sum_column", question, {name: text}, total, f"awk -F, 'NR > 1 {{ s += $2 }} END {{ print s }}' {name}"
    )


def smallest(words: TaskWords) -> Draft:
    return _by_size(words, "smallest", "tail")


def extract_tabbed(words: TaskWords) -> Draft:
    return _column(words, "extract_tabbed", "tsv", "\t", "")


def _answer(kind: str, question: str, before: dict[str, str], answer: object, command: str) -> Draft:
    return Draft(
        kind=kind,
        instruction=f"{question} Write the answer, and nothing else, into answer.txt.",
        before=before,
        after={"answer.txt": f"{answer}\n"},
        command=f"{command} > answer.txt",
    )


def _by_size(words: TaskWords, kind: str, end: str) -> Draft:
    sizes = words.random.sample(range(20, 400), 5)
    before = {name: "x" * (size - 1) + "\n" for name, size in zip(words.files(5), sizes, strict=True)}
    best = (max if kind == "largest" else min)(before, key=lambda name: len(before[name]))
    return _answer(
        kind,
        f"Which file of the working directory is the {kind}?",
        before,
        best,
        f"ls -S | grep -v answer.txt | {end} -1",
    )


def _column(words: TaskWords, kind: str, extension: str, separator: str, option: str) -> Draft:
    name, new = f"{words.noun()}.{extension}", "names.txt"
    rows = [(str(number), person, words.words(1)[0]) for number, person in enumerate(words.people(6), start=1)]
    return Draft(
        kind=kind,
        instruction=f"The columns of {name} are id, name and item. Write the names alone, one a line, into {new}.",
        before={name: "".join(separator.join(row) + "\n" for row in rows)},
        after={new: "".join(f"{person}\n" for _, person, _ in rows)},
        command=f"cut {option}-f2 {name} > {new}",
    )


FAMILIES = (
    *(write_line, nested_folders, copy_all, rename_extension, delete_empty, append_line, count_lines, count_words),
    *(count_matches, largest, sort_lines, unique_lines, join_files, replace_word, extract_column, sum_column),
)
HELD_OUT_FAMILIES = (smallest, extract_tabbed)
