"""Checks of the warehouse: the files of the lake."""

import contextlib
import shutil
import stat
import time
import uuid
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from frostline import filemode
from frostline.catalog import lake_files, seams
from frostline.errors import CorruptionError, FrostlineError
from frostline.lake import checksums as lakesums
from frostline.lake import expected, paths, store
from frostline.lake import warehouse as lake_warehouse
from frostline.model.tables import Table
from frostline.observe.doctor.database import judge_skew
from frostline.observe.doctor.patient import Patient, Unknowable, Verdict, fault, ok, warning
from frostline.pipeline.verify_metadata import Metadata

_CONTENT = b"frostline doctor\n"
_LEAST_FREE = 0.1


@dataclass(frozen=True)
class Probe:
    """A file that was written and read back."""

    location: str
    content: bytes
    changed_at: float
    """When the store says that it was written."""


def warehouse(patient: Patient) -> Verdict:
    """Whether it is this database's, and a file can be written, read and deleted there."""
    location = paths.warehouse_location(patient.settings.warehouse)
    try:
        _require_marker(patient)
    except Unknowable as missing:
        return _listed(location, str(missing))
    with _probed(location) as probe:
        pass
    if probe.content != _CONTENT:
        return fault(f"{location} gave back something else than was written", "check its disk: dmesg")
    if paths.size_bytes(probe.location) is not None:
        return fault(f"{probe.location} cannot be deleted", f"rm {probe.location.removeprefix('file://')}")
    local = paths.local_path(location)
    if local is not None and patient.settings.file_mask == filemode.OWNER_ONLY and others_may_enter(local):
        return warning(f"others on this machine may read {local}", f"chmod -R go= {local}")
    return ok(f"{location} is this database's, and can be written, read and deleted from")


def _require_marker(patient: Patient) -> None:
    """Nothing is written to a warehouse that is not this database's, or that is not known to be."""
    connection = patient.postgres
    if not patient.has_catalog:
        raise Unknowable("needs the catalog")
    lake_warehouse.require(connection, patient.settings.warehouse)


def _listed(location: str, missing: str) -> Verdict:
    """What can be said without writing."""
    with store.reachable(f"use the warehouse {location}"):
        entries = len(paths.names_in(location))
    return ok(f"{location} can be listed and has {entries} entries; whether it may be written to {missing}")


def others_may_enter(folder: Path) -> bool:
    """Whether any user of the machine gets into the folder; it and all above it have to let everybody in."""
    reached = folder.resolve()
    return reached.exists() and all(parent.stat().st_mode & stat.S_IXOTH for parent in (reached, *reached.parents))


def warehouse_clock(patient: Patient) -> Verdict:
    """Whether the store's clock goes as ours does: files are judged by their age."""
    _require_marker(patient)
    before = time.time()
    with _probed(paths.warehouse_location(patient.settings.warehouse)) as probe:
        after = time.time()
    return judge_skew("the warehouse", probe.changed_at, before, after)


def warehouse_space(patient: Patient) -> Verdict:
    """Whether there is room on a disk of this machine."""
    local = paths.local_path(paths.warehouse_location(patient.settings.warehouse))
    if local is None:
        raise Unknowable("the warehouse is not on a disk of this machine")
    usage = shutil.disk_usage(_nearest(local))
    return judge_space(str(local), usage.free, usage.total)


def judge_space(where: str, free_bytes: int, total_bytes: int) -> Verdict:
    """Whether a disk has room left."""
    share = free_bytes / total_bytes if total_bytes else 1.0
    detail = f"{share:.0%} of the disk is free, {free_bytes / 1e9:.1f} GB"
    return ok(detail) if share >= _LEAST_FREE else warning(f"only {detail}", f"df -h {where}")


def sampled_files(patient: Patient) -> Verdict:
    """Whether the lake's files are there and sound: of each table its metadata and one data file."""
    looked = 0
    tiered = [table for table in patient.tables if table.has_lake]
    for table in tiered:
        try:
            looked += _sampled(patient, table)
        except (OSError, FrostlineError) as error:
            return fault(f"{table.name}: {' '.join(map(str, error.args))}", patient.command(f"verify {table.name}"))
    return ok(f"{looked} files of {len(tiered)} tables were read" if looked else "nothing is in the lake yet")


def _sampled(patient: Patient, table: Table) -> int:
    """How many files were read; CorruptionError when one is damaged."""
    expected.add(lake_files.metadata_checksums(patient.postgres, table))
    metadata = Metadata.of(table, seams.get(patient.postgres, table))
    if metadata.fault is not None:
        raise CorruptionError(f"{metadata.fault.where} {metadata.fault.what}")
    data = lake_files.recorded(patient.postgres, table)[-1:]
    for file in data:
        lakesums.check(file, table.name)
    return len(metadata.locations) + len(data)


@contextlib.contextmanager
def _probed(location: str) -> Generator[Probe]:
    """A file with a name that nobody has, read back; it and the folders that had to be made are gone afterwards."""
    probe = f"{location}/.frostline-doctor-{uuid.uuid4().hex}"
    made = _missing_folders(location)
    with store.reachable(f"use the warehouse {location}"):
        try:
            paths.make_parent(probe)
            with paths.file_io(probe).new_output(probe).create() as file:
                file.write(_CONTENT)
            with paths.open_input(probe) as file:
                content = bytes(file.read())
            yield Probe(probe, content, paths.changed_at(probe))
        finally:
            paths.delete(probe)
            for folder in made:
                with contextlib.suppress(OSError):  # somebody else uses it by now
                    folder.rmdir()


def _missing_folders(location: str) -> list[Path]:
    """The folders of a local warehouse that are not there yet, the deepest first."""
    local = paths.local_path(location)
    return [folder for folder in (local, *local.parents) if not folder.exists()] if local else []


def _nearest(path: Path) -> Path:
    """The path, or the folder above it that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())
