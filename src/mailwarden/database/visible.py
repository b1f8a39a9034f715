"""The condition that a statement has for the rows of its scope."""


def in_scope(column: str = "tenant", scope: str = "$1") -> str:
    """Return the condition that a tenant is in the scope, a parameter: NULL is every tenant."""
    return f"({scope}::uuid[] IS NULL OR {column} = ANY ({scope}))"
