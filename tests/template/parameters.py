"""Writes the table of the template's parameters between the markers of a Markdown file.

python tests/template/parameters.py --write README.md
"""

import argparse
import sys
from pathlib import Path

from cloudformation import load

BEGIN, END = "<!-- parameters -->", "<!-- /parameters -->"


def table():
    """The parameters, a table per group."""
    template = load("template.yaml")
    lines = []
    for group in template["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]:
        lines += ["", f"**{group['Label']['default']}**", "", "| parameter | default | meaning |", "|---|---|---|"]
        for name in group["Parameters"]:
            parameter = template["Parameters"][name]
            default = f"`{parameter['Default']}`" if parameter["Default"] != "" else "empty"
            meaning = parameter["Description"].strip()
            if "AllowedValues" in parameter:
                meaning += " One of " + ", ".join(f"`{value}`" for value in parameter["AllowedValues"]) + "."
            lines.append(f"| `{name}` | {default} | {meaning.replace('|', chr(92) + '|')} |")
    return "\n".join(lines).strip() + "\n"


def written(text):
    """`text` with the table between its markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"found no {BEGIN} and {END} to write between")
    return f"{before}{BEGIN}\n{table()}{END}{after}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="the file to change; without it the table is printed"
    )
    file = parser.parse_args().write
    if file is None:
        print(table(), end="")
        return
    try:
        file.write_text(written(file.read_text()))
    except (OSError, ValueError) as error:
        sys.exit(f"writing the parameters into {file}: {error}")


if __name__ == "__main__":
    main()
