"""Whether a value that was read from a file has the form that the rest relies on.

A schema library would replace these few lines by longer tables; `jsonschema` brings a compiled part and takes 0.1 s to
load, `fastjsonschema` runs code that it writes.
"""

from __future__ import annotations

from typing import Any


def unlike(value: Any, form: Any, name: str = "") -> str:
    """The first place where a value has another form, by its keys; empty if there is none.

    A form is a type, a tuple of forms of which one has to fit, [form of every item], or {key: form}; there "*" stands
    for every key, a key that ends in "?" may be absent, and keys that are not named may hold anything. {} is empty.
    """
    here = name or "it"
    if isinstance(form, tuple):
        return "" if any(not unlike(value, one) for one in form) else here
    if isinstance(form, list):
        if not isinstance(value, list):
            return here
        return next(filter(None, (unlike(item, form[0], f"{name}[{n}]") for n, item in enumerate(value))), "")
    if isinstance(form, dict):
        if not isinstance(value, dict) or (not form and value):
            return here
        return _unlike_keys(value, form, name)
    # true and false are no numbers
    return "" if isinstance(value, form) and (form is bool or not isinstance(value, bool)) else here


def _unlike_keys(value: dict[Any, Any], form: dict[str, Any], name: str) -> str:
    if "*" in form:
        odd = next((str(key) for key in value if not isinstance(key, str)), "")
        if odd:
            return f"{name}.{odd}" if name else odd
        forms = dict.fromkeys(value, form["*"])
    else:
        forms = {key.removesuffix("?"): inner for key, inner in form.items()}
    for key, inner in forms.items():
        place = f"{name}.{key}" if name else key
        if key not in value:
            if f"{key}?" not in form:
                return place
        elif wrong := unlike(value[key], inner, place):
            return wrong
    return ""
