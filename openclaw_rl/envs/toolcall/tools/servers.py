"""A server of a tools JSON -> its tools. A command runs in a box of its own, which shows what the command names.

Folders that the command names are copies: a server may write to them, every attempt begins with the same, and yours
stay as they are. Files are shown with the folder that they lie in, read-only, and so is the folder of the tools JSON.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from openclaw_rl.envs.sandbox.box import BoxSpec, Sandbox
from openclaw_rl.envs.toolcall.boxes import shown_for
from openclaw_rl.envs.toolcall.mcp.boxed import BoxWire
from openclaw_rl.envs.toolcall.mcp.client import McpTools
from openclaw_rl.envs.toolcall.mcp.http import HttpWire
from openclaw_rl.envs.toolcall.mcp.wire import McpWire
from openclaw_rl.envs.toolcall.tools.functions import FOLDER
from openclaw_rl.envs.toolcall.tools.tools_file import ServerEntry
from openclaw_rl.errors import TaskError

_IN_EVERY_BOX = "/usr/local/bin:/usr/bin:/bin"


def server_tools(name: str, entry: ServerEntry, folder: Path, sandbox: Sandbox) -> McpTools:
    """`folder` is that of the tools JSON."""
    return McpTools(_wire(entry, folder, sandbox), name=f"the MCP server {name}", timeout_s=entry.timeout_s)


def _wire(entry: ServerEntry, folder: Path, sandbox: Sandbox) -> McpWire:
    if entry.url is not None:
        return HttpWire(entry.url, headers=entry.headers)
    assert entry.command is not None
    program = _found(entry.command)
    read_only = {FOLDER: folder, **shown_for(Path(program))}
    trees: dict[str, Path] = {}
    words = entry.args if str(Path(program).parent.parent) in read_only else (program, *entry.args)
    for path in map(Path, words):
        if path.is_absolute() and path.is_dir() and len(path.parts) > 2:
            trees[str(path)] = path
        elif path.is_absolute() and path.is_file() and not path.is_relative_to("/usr"):
            read_only[str(path.parent)] = _of_its_own(path)
    spec = BoxSpec(
        read_only=read_only,
        trees=trees,
        workdir=FOLDER,
        env=entry.env,
        network="full" if entry.network else "none",
    )
    return BoxWire(sandbox, spec, [program, *entry.args])


def _found(command: str) -> str:
    """A program by its name, as every box has it, or else where this machine has it."""
    if "/" in command or shutil.which(command, path=_IN_EVERY_BOX):
        return command
    return shutil.which(command) or command


def _of_its_own(file: Path) -> Path:
    folder = file.parent
    if folder == Path.home() or len(folder.parts) <= 2:
        raise TaskError(
            f"{file} lies right in {folder}, all of which a box would show; put it into a folder of its own"
        )
    return folder
