"""The rules of a skill folder as checks: every finding names the rule, the place, and what to do."""

from __future__ import annotations

import re
from pathlib import Path

from skillgen.kernel import yaml as card_yaml
from skillgen.skillpack import data as skill_data
from skillgen.skillpack.skill import CARD, MOST, Finding, Rule, Skill

FOLDERS = {"agents", "references", "scripts", "assets", "evals", "tests", "tools", "config"}
PAGES = {"SKILL.md", "README.md"}
KEYS = {"name", "description", "license", "allowed-tools", "metadata", "compatibility"}
SECTIONS = ("Purpose", "Prerequisites", "Instructions", "Examples", "Limitations", "Troubleshooting")
VAGUE = ("various", "general", "things", "stuff", "etc")
NO_VERBS = {"a", "an", "the", "this", "that", "these", "it", "its", "you", "your", "we", "our", "there", "if", "when"}
MACHINE_MADE = {"BENCHMARK.md", "skill.oms.sig"}
LINES, CHARACTERS, TOKENS, CHARACTERS_PER_TOKEN = 500, 20_000, 3_000, 4
LINK = re.compile(r"\]\(([^)#\s]++)[^)]*+\)")  # possessive: what does not close costs no search


def check(folder: Path) -> list[Finding]:
    """Every finding on one skill folder, in the order of the rules."""
    skill = Skill(folder.resolve())
    for rule in (*RULES, *skill_data.RULES):
        rule(skill)
    return skill.found


def folders(place: Path) -> list[Path]:
    """The skill folder `place`, or every folder in it."""
    if (place / "SKILL.md").is_file():
        return [place]
    return sorted(path for path in place.iterdir() if path.is_dir() and path.name[0] not in "._")


def place(skill: Skill) -> None:
    if wrong := skill.read("SKILL.md")[1] or ("" if skill.text else "it is empty"):
        skill.say("place", f"write SKILL.md: {wrong}")
    if skill.folder.parent.name != "skills":
        skill.say("place", f"move the folder to skills/{skill.name}", ".")


def root(skill: Skill) -> None:
    for path in sorted(skill.folder.iterdir()):
        allowed = FOLDERS if path.is_dir() else PAGES
        if path.name not in allowed and path.name not in MACHINE_MADE and path.name != "__pycache__":
            skill.say("root", f"remove it, or move it into one of {', '.join(sorted(FOLDERS))}", path.name)


def frontmatter(skill: Skill) -> None:
    if not skill.head:
        wrong = card_yaml.load(skill.parts[0])[1]
        skill.say("frontmatter", f"begin with YAML between two lines of ---{wrong and f': {wrong}'}", line=1)
    for key in sorted(map(str, skill.head.keys() - KEYS)):
        skill.say("frontmatter", f"remove {key}; allowed: {', '.join(sorted(KEYS))}", line=skill.line(f"{key}:"))
    for key in sorted(KEYS - {"metadata"}):
        if key in skill.head and not isinstance(skill.head[key], str):
            skill.say("frontmatter", f"make {key} one string", line=skill.line(f"{key}:"))


def name(skill: Skill) -> None:
    given = str(skill.head.get("name", ""))
    if given != skill.name or len(given) > 64 or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", given):
        do = f"name it {skill.name}, like the folder: at most 64 of a-z, 0-9 and single hyphens"
        skill.say("name", do, line=skill.line("name:"))


def description(skill: Skill) -> None:
    text, line = str(skill.head.get("description", "")), skill.line("description:")
    if not 20 <= len(text) <= 200:
        skill.say("description", f"say it in 20 to 200 characters; these are {len(text)}", line=line)
    for words in ("Use when ", "Do not use for "):
        if words not in text:
            skill.say("description", f"add a sentence that begins with {words.strip()!r}", line=line)
    if vague := re.findall(rf"\b(?:{'|'.join(VAGUE)})\b", text):
        skill.say("description", f"say what is meant instead of {', '.join(vague)}", line=line)
    if not re.match(r"[A-Z][a-z]+s\b", text) or re.search(r"\b(?:I|you|your|we|our)\b", text):
        skill.say("description", "begin with a verb in the third person, and address nobody", line=line)


def metadata(skill: Skill) -> None:
    given, line = skill.head.get("metadata"), skill.line("metadata:")
    if not isinstance(given, dict):
        skill.say("metadata", "add metadata with author, tags and version", line=line)
        return
    for key, value in given.items():
        if not re.fullmatch(r"[a-z]+(-[a-z]+)*", str(key)) or not isinstance(value, str):
            skill.say(
                "metadata", f"give {key} a kebab-case key and a string as its value", line=skill.line(f"  {key}:")
            )
    if not re.fullmatch(r"[^<]+ <[^@\s]+@[^@\s]+>", str(given.get("author", ""))):
        skill.say("metadata", "write author as Name <mail>", line=skill.line("  author:"))
    for key in ("tags", "version"):
        if not given.get(key):
            skill.say("metadata", f"add {key}", line=line)


def sections(skill: Skill) -> None:
    for title in SECTIONS:
        if not skill.section(title).strip():
            skill.say("sections", f"write the section ## {title}", line=skill.line(f"## {title}"))
    steps = re.findall(r"^\d+\. +(\S+)", skill.section("Instructions"), re.MULTILINE)
    if not steps:
        skill.say("sections", "make Instructions a numbered list", line=skill.line("## Instructions"))
    for number, word in enumerate(steps, 1):
        if word.strip("`*,").lower() in NO_VERBS or not word.strip("`*")[:1].isupper():
            line = skill.line(f"{number}. {word}")
            skill.say("sections", f"begin step {number} of Instructions with a verb, not with {word!r}", line=line)


def scripts(skill: Skill) -> None:
    if (skill.folder / "scripts").is_dir():
        if "|" not in skill.section("Available Scripts"):
            skill.say("scripts", "list the scripts in a table under ## Available Scripts")
        if "run_script" not in skill.text:
            skill.say("scripts", "say how to call them with run_script")


def length(skill: Skill) -> None:
    lines, characters = len(skill.text.splitlines()), len(skill.text)
    if lines > LINES or characters > CHARACTERS:
        do = f"move depth into references/: {lines} lines and {characters} characters, of {LINES} and {CHARACTERS}"
        skill.say("length", do)
    elif characters / CHARACTERS_PER_TOKEN > TOKENS:
        do = f"move depth into references/: about {characters // CHARACTERS_PER_TOKEN} tokens, better under {TOKENS}"
        skill.say("length", do, level="warning")


def references(skill: Skill) -> None:
    folder = skill.folder / "references"
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        shown = path.relative_to(skill.folder).as_posix()
        if path.is_dir():
            continue
        if path.suffix != ".md" or sum(map(str.isalpha, path.stem)) < 4:
            skill.say("references", "name it as a .md file with four letters or more", shown)
        if f"]({shown}" not in skill.text:
            skill.say("references", "link it from SKILL.md: nobody finds it otherwise", shown)
        text, wrong = skill.read(shown)
        if wrong:
            skill.say("references", f"make it a page: {wrong}", shown)
        for number, line in enumerate(text.splitlines(), 1):
            if any(target.endswith(".md") for target in LINK.findall(line)):
                skill.say("references", "link no other page from a reference", shown, number)


def links(skill: Skill) -> None:
    for number, line in enumerate(skill.text.splitlines(), 1):
        for target in LINK.findall(line):
            if target != CARD and "://" not in target and not card_yaml.within(skill.folder, target):
                skill.say("links", f"{target[:MOST]} is not in the folder: correct the link", line=number)


def machine_made(skill: Skill) -> None:
    for path in sorted(skill.folder.rglob("*")):
        shown = path.relative_to(skill.folder).as_posix()
        if path.name in MACHINE_MADE:
            skill.say("machine-made", "only the publisher's evaluator and signer write it: remove it", shown)
        elif path.name == "__pycache__":
            skill.say("machine-made", "remove it: a stray folder breaks a signature", shown)


RULES: tuple[Rule, ...] = (
    place,
    root,
    frontmatter,
    name,
    description,
    metadata,
    sections,
    scripts,
    length,
    references,
    links,
    machine_made,
)
