"""The migrations are one chain: two that follow the same one could not be run."""

from __future__ import annotations

from alembic.script import ScriptDirectory

from monitor.resources import resource_directory


def test_no_two_migrations_follow_the_same_one():
    chain = ScriptDirectory(str(resource_directory("migrations")))
    followed = [script.down_revision for script in chain.walk_revisions("base", "heads")]
    assert len(chain.get_heads()) == 1, "set down_revision of yours to the one that was last"
    assert len(set(followed)) == len(followed)
