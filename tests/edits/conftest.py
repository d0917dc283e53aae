import pytest

pytest.register_assert_rewrite("edits.rewriting")
