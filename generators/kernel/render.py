"""Render a template of ours; a name that the template does not get is an error."""

from __future__ import annotations

from typing import Any

from skillgen.kernel import resources


def render(template: str, **values: Any) -> str:
    """Render `templates/<template>`."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.path("templates")),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)


def sections(template: str, **values: Any) -> dict[str, str]:
    """Render a template of code that goes to several places: a line `#: name` opens each section."""
    parts = ("\n" + render(template, **values)).split("\n#: ")[1:]
    return {name: code for name, _, code in (part.partition("\n") for part in parts)}
