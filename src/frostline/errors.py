"""Every error Frostline raises on purpose, cut by what to do next.

FrostlineError
+-- UsageError               fix the request
|   +-- ChangeRefused
|   +-- CheckRefused
|   +-- ColumnsChanged
|   +-- FailedTransaction
|   +-- FileTooLarge
|   +-- KeysRefused
|   +-- LakeTableExists
|   +-- MadeElsewhere
|   +-- NoSuchLakeTable
|   +-- NoSuchSavepoint
|   +-- NoSuchThing
|   +-- NotItsOwner
|   +-- NotOverRest
|   +-- NotServed
|   +-- NotText
|   +-- NullRefused
|   +-- OtherFormat
|   +-- PostgresRefused
|   +-- SyntaxRefused
|   +-- TooComplex
|   +-- UnboundParameter
|   +-- Unguarded
|   +-- UnknownName
|   |   +-- UnknownColumn
|   +-- ValueRefused
|   +-- WrongParameters
|   +-- WrongPassword
+-- ConflictError            somebody else changed it: reload, retry
|   +-- CommitLost
|   +-- CutExpired
|   +-- UpsertRace
+-- UnavailableError         something is down: retry later
|   +-- DiskFull
|   +-- OutOfMemory
|   +-- OwnSessionFailed
|   +-- SparkGaveUp
|   +-- TooManyClients
|   +-- UnreadableFile
+-- OutcomeUnknown           it may or may not have happened: look first
+-- CorruptionError          data is not what it was: stop, call a human
+-- Cancelled                the caller asked for it: nothing to do
+-- EngineFailure            DuckDB failed and nobody knows why: report it

The branches are defined here. Their leaves stand beside what raises them, where most only give it an SQLSTATE that
clients know; a test compares them with this drawing.
"""

from importlib import import_module
from typing import ClassVar


class FrostlineError(Exception):
    """Base of the tree. The message is one lower-case line with the offending value in it."""

    exit_code: ClassVar[int] = 1
    sqlstate: ClassVar[str] = "XX000"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        """What is wrong, without the hint."""
        self.hint = hint
        """What to do about it, if possible a command to run."""

    def __str__(self) -> str:
        """What is wrong, and what to do about it, on one line: a traceback in Python shows nothing else."""
        return f"{self.message}; hint: {'; '.join(self.hint.splitlines())}" if self.hint else self.message


class UsageError(FrostlineError):
    """The request cannot be done as it stands; nothing was changed."""

    exit_code = 2
    sqlstate = "22023"


class ConflictError(FrostlineError):
    """The state moved under the operation; nothing was changed by it."""

    exit_code = 3
    sqlstate = "40001"


class UnavailableError(FrostlineError):
    """A part that is needed does not answer; nothing was changed."""

    exit_code = 4
    sqlstate = "08006"


class OutcomeUnknown(FrostlineError):
    """The effect may have happened. Look before doing it again."""

    exit_code = 5
    sqlstate = "08007"


class CorruptionError(FrostlineError):
    """Stored data does not match its record. Nothing is deleted after this."""

    exit_code = 1
    sqlstate = "XX001"


def kind_of(error: FrostlineError) -> str:
    """The class of an error, for another process: `again` finds it there whatever has been imported."""
    return f"{type(error).__module__}:{type(error).__name__}"


def again(kind: str, message: str, hint: str | None) -> FrostlineError:
    """An error that another process had, as it was there."""
    module, _, name = kind.partition(":")
    return getattr(import_module(module), name)(message, hint=hint)


def message_of(error: BaseException) -> str:
    """The text of any error without its hint, for places that show the hint elsewhere, or on one line."""
    return error.message if isinstance(error, FrostlineError) else str(error)
