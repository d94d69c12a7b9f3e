"""`benchmark_cli new`: a pair that can be verified and run as it is, and the lines that its author then changes."""

import re
import shlex
from pathlib import Path
from string import Template
from typing import Annotated, Literal

import typer

from common.python.base.paths import CHECKOUT_ONLY, installed
from common.python.base.toolkit import ROOT
from common.python.corpus.targets import CHAPTERS, Folder, TargetError, nearest, parse, quoted
from tools.cli.options import RootOption

NAME = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*")
HARNESS = re.compile(r"from common\.python\.\w+ import (.+)\n")
TEMPLATES = Path(__file__).with_name("pair_templates")  # a file each of what is written
MOST_LETTERS = 60  # of a name: the line that imports its workload stays under 120 characters

Kind = Literal["torch", "triton", "cuda"]
NAMED = "Folder and name, as in ./kernels:my_pair or ch07:my_pair."
NewPairArgument = Annotated[str, typer.Argument(metavar="PAIR", help=NAMED)]
KindOption = Annotated[Kind, typer.Option(help="What the optimized side is written in.")]


def new(pair: NewPairArgument, kind: KindOption = "torch", root: RootOption = ROOT) -> None:
    """Write a pair that runs, to be made your own.

    For example `benchmark_cli new ./kernels:my_pair --kind triton`. Its files say what to change, it what to run then.
    """
    key, files = plan(root, pair, kind)
    write(root, files)
    typer.echo(told(key, files))


def plan(root: Path, text: str, kind: Kind) -> tuple[str, dict[Path, str]]:
    """The key of the pair that `./kernels:my_pair` names; its files, named from the root or in full, with their text.

    Raises TargetError where it is no such name, or names what exists.
    """
    folder, place, name = _address(root, text)
    own = re.compile(rf"(baseline|optimized|peer)_{name}(__\w+)?\.(py|cu)")
    if taken := sorted(path.name for path in folder.path.glob("*") if own.fullmatch(path.name)):
        raise TargetError(f"{place}:{name} exists ({place}/{taken[0]}): choose another name")
    files = dict[Path, str]()
    sides = (("baseline", "baseline.py"), ("optimized", f"{kind}.py"), ("optimized", f"{kind}.cu"))
    for role, path in ((role, TEMPLATES / f"{template}.template") for role, template in sides):
        if not path.exists():
            continue
        code = Template(path.read_text()).substitute(baseline=folder.module(f"baseline_{name}"))
        file = (folder.package or folder.path) / Path(f"{role}_{name}{path.suffixes[0]}")
        files[file] = code if folder.package else _by_one_import(code)
    return f"{place}:{name}", files


def _by_one_import(code: str) -> str:
    """The same, with all that it imports of the harness imported from `benchmark_harness`."""
    names = sorted(", ".join(HARNESS.findall(code)).split(", "), key=lambda name: (name.islower(), name))
    first = HARNESS.sub(f"from benchmark_harness import {', '.join(names)}\n", code, count=1)
    return HARNESS.sub("", first)


def _address(root: Path, text: str) -> tuple[Folder, str, str]:
    """The folder, how it is written, and the pair's name, all such as there may be."""
    chapter, colon, name = text.strip().partition(":")
    own = "/" in chapter or "." in chapter
    if not colon or not (own or re.fullmatch(r"ch\d{1,4}", chapter)):
        right = "write its folder and name, as in ./kernels:my_pair, or its chapter's, as in ch07:my_pair"
        raise TargetError(f"{quoted(text)} names no new pair: {right}")
    folder = parse(chapter, root).folder or Folder(root)
    chapter = chapter.rstrip("/") if own else folder.name
    if folder.package and installed(root):
        raise TargetError(f"a new pair goes into its chapter's folder: {CHECKOUT_ONLY}")
    if folder.package and not folder.path.is_dir():
        there = [known for known in CHAPTERS if (root / known).is_dir()]
        raise TargetError(f"{chapter} does not exist in {root}{nearest(chapter, there)}")
    if not NAME.fullmatch(name) or len(name) > MOST_LETTERS:
        right = f"small letters and digits, words joined by one underscore, at most {MOST_LETTERS} characters"
        near = "_".join(re.findall(r"[a-z0-9]+", name.lower()))[:MOST_LETTERS].rstrip("_")
        hint = f"; did you mean {chapter}:{near}?" if near else ""
        raise TargetError(f"{quoted(name)} is no name of a pair: {right}{hint}")
    return folder, chapter, name


def write(root: Path, files: dict[Path, str]) -> None:
    """Write a pair's files. Raises OSError, and FileExistsError rather than overwrite one."""
    for path, text in files.items():
        (root / path).parent.mkdir(exist_ok=True)
        with (root / path).open("x", encoding="utf-8") as file:
            file.write(text)


def told(key: str, files: dict[Path, str]) -> str:
    """What to say of a pair just written, and of what its author does next."""
    chapter, _, name = key.rpartition(":")
    known = {"files": ", ".join(map(str, files)), "pair": shlex.quote(key), "chapter": chapter, "name": name}
    text = Template((TEMPLATES / "told.template").read_text()).substitute(known)
    always, in_a_chapter = text.strip().split("\n\n")
    return f"{always}\n{in_a_chapter}" if chapter in CHAPTERS else always
