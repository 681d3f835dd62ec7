"""Print the table, as matrix.md has it."""

from tests.torch_matrix import table

for line in table():
    print(line)  # noqa: T201
