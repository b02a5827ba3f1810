"""Every error Specwatch raises on purpose, as a tree whose branches are what the reader does next.

SpecwatchError
├── UsageError        the command or configuration is wrong: fix it (exit code 2)
│   ├── ConfigError   a key, type, unit or secret in a YAML file
│   ├── RefusedError  whoever configures Specwatch has not allowed it: ask them
│   └── PromptError   a prompt file that cannot be read or is refused
├── TargetError       the server under test is at fault or out of reach
└── StoreError        our own database is out of reach, older or newer than this program

The message is written for the person who reads it: what is wrong, where, and what to do. No traceback follows it.
"""


class SpecwatchError(Exception):
    """Root of all errors with a message for people; `exit_code` is what the command line exits with."""

    exit_code = 2


class UsageError(SpecwatchError):
    """The command line or a file given to it must be changed."""


class ConfigError(UsageError):
    """A configuration file must be changed; the message names file, key, value and what is allowed."""


class RefusedError(UsageError):
    """Asked for what the configuration does not allow; the message names the key that would."""


class PromptError(UsageError):
    """A prompt file must be changed; the message names file and line."""


class TargetError(SpecwatchError):
    """The replica cannot be measured; `reason` is the stable word stored as the invalid reason."""

    exit_code = 13

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class StoreError(SpecwatchError):
    """The database must be reached, upgraded, or read by a newer Specwatch."""

    exit_code = 3
