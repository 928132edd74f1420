"""A run folder: the files of one run, each read with care, for it may come from anywhere."""

from __future__ import annotations

import math
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from pacbayes import processes
from pacbayes.certificates import Certificate, ClassCertificate
from pacbayes.data import available
from pacbayes.data.catalogue import image_scaling
from pacbayes.data.folders import is_there, parted
from pacbayes.data.scaling import Scaling
from pacbayes.errors import InvalidInput, MissingData, PacBayesError, RunError
from pacbayes.files import alone_in, in_shell, read_plain_file, sha256, strict_json, write_atomically, write_json
from pacbayes.networks import StochasticNetwork
from pacbayes.runs.config import STAGES, Config
from pacbayes.runs.data import SplitData, same_data, training_data
from pacbayes.runs.evaluation import Evaluation
from pacbayes.runs.history import Chain, chain_start, read_chain, read_epochs
from pacbayes.runs.networks import new_network, parameters_of
from pacbayes.runs.weights import read_weights
from pacbayes.training import Epoch

# How many folders above a run its data are looked for in.
_ABOVE = 3
_NOT_EVALUATED = "evaluation.json is missing, so nothing says whether some of the data are copies of others"

# The files of a run, and the most bytes that each may have: whoever sent the folder cannot make it cost more.
FILES = {
    "config.toml": 2**16,
    "data.json": 2**24,
    "history.jsonl": 2**26,
    "prior.safetensors": 2**30,
    "posterior.safetensors": 2**30,
    "single.safetensors": 2**30,
    "journal.jsonl": 2**24,
    "certificate.json": 2**20,
    "classes.json": 2**26,
    "evaluation.json": 2**16,
    "report.html": 2**26,
    "signature.json": 2**16,
}


def _leads_nowhere(data: str) -> bool:
    """Whether data are named by a relative path to nothing."""
    path, _ = parted(data)
    published = not data or data in dict(available())
    return not (published or path.startswith(("~", "/")) or is_there(Path(path)))


@dataclass(frozen=True)
class RunFolder:
    path: Path

    @property
    def config_file(self) -> Path:
        return self.path / "config.toml"

    @property
    def data_file(self) -> Path:
        return self.path / "data.json"

    @property
    def history_file(self) -> Path:
        return self.path / "history.jsonl"

    @property
    def certificate_file(self) -> Path:
        return self.path / "certificate.json"

    def weights_file(self, which: str) -> Path:
        return self.path / f"{which}.safetensors"

    def checkpoint_file(self, stage: str) -> Path:
        return self.path / f"checkpoint-{stage}.safetensors"

    def alone(self) -> AbstractContextManager[None]:
        """Keeps other processes from training or certifying here; those that torchrun started are one."""
        return alone_in(self.path) if processes.first() else nullcontext()

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, finished: bool = True) -> RunFolder:
        """An existing run; ``finished`` asks for its posterior."""
        run = cls(Path(path))
        if run.path.is_file():
            alone = "; 'pacbayes.Certificate.load(FILE).check()' in Python checks a certificate by itself"
            of_json = alone if run.path.suffix == ".json" else ""
            raise RunError(f"{path} is a file, not a run folder: give the folder that it is in{of_json}")
        if not run.config_file.is_file():
            raise RunError(f"{path} is not a run folder: it has no config.toml. Make one with 'pacbayes train --out'")
        if finished and not run.weights_file("posterior").is_file():
            raise RunError(
                f"the run in {path} is not finished: continue it with 'pacbayes train --resume --out {in_shell(path)}' "
                "or, if its training failed, begin anew with other settings and --overwrite"
            )
        return run

    @classmethod
    def create(cls, path: Path, config: Config, data: SplitData, *, overwrite: bool = False) -> RunFolder:
        """A new run folder with its configuration and its data's fingerprints.

        An existing run is only replaced on request.
        """
        run, content = cls(path), config.encoded()
        own = run.own_files()
        if run.config_file.is_file():
            if not overwrite:
                raise RunError(f"{path} holds a run already: name another folder, or use --resume or --overwrite")
            try:
                run.config()
            except PacBayesError as error:
                raise RunError(f"{path} is not replaced, for its config.toml is not that of a run: {error}") from None
        elif path.exists():
            # What a run leaves that was killed while its folder was made; all else is somebody's.
            leftovers = {path / f".{name}.partial" for name in ("data.json", "config.toml")}
            if run._made_data_file():
                leftovers.add(run.data_file)
            if not path.is_dir() or set(path.iterdir()) - leftovers:
                raise RunError(f"{path} exists and is not a run folder: name another, nothing was written")
        # The configuration last: a folder without one would not be known for a run.
        for old in sorted(own, key=lambda old: old == run.config_file):
            old.unlink(missing_ok=True)
        path.mkdir(parents=True, exist_ok=True)
        write_json(run.data_file, data.record())
        write_atomically(run.config_file, content)
        return run

    def read(self, name: str) -> bytes:
        """The content of a file of the run, which must be a plain file of a reasonable size."""
        return read_plain_file(self.path / name, FILES[name])

    def data(self, place: str | None = None, *, download: bool = True) -> SplitData:
        """The data of the run, from where they were or another place; refused if they are not those it began with."""
        try:
            data = training_data(self.config_with_data(place), download=download)
        except MissingData as error:
            if place is not None:
                raise
            raise MissingData(f"{error}. If the data are in another place now, --data says where") from None
        self.check_data(data)
        return data

    def data_record(self) -> dict[str, Any]:
        """What data.json holds."""
        content = self.read("data.json")
        try:
            record = strict_json(content)
            sizes = (*record["shape"], record["classes"])
            whole = 2 <= len(sizes) <= 9 and all(type(n) is int and 0 < n < 2**31 for n in sizes)
            named = all(
                type(names) is list and all(type(name) is str for name in names) and len(names) in (0, size)
                for names, size in (
                    (record.get("class_names", []), record["classes"]),
                    (record.get("feature_names", []), sizes[0]),
                )
            )
            scaling = record.get("scaling")
            pixels = scaling is None or Scaling.known(scaling)
            if whole and named and pixels and math.prod(sizes) < 2**40:
                return dict(record)
        except (ValueError, LookupError, TypeError):
            pass
        raise RunError(f"{self.data_file} is damaged: put the file back as it was, or train again")

    def _made_data_file(self) -> bool:
        """Whether there is a data.json, and a run has made it."""
        try:
            return "bound" in self.data_record()
        except (OSError, RunError):
            return False

    def class_names(self) -> list[str]:
        """What the labels are called: by their own names, or by their numbers."""
        record = self.data_record()
        return list(record.get("class_names") or map(str, range(record["classes"])))

    def scaling(self) -> Scaling | None:
        """What was made of the pixels of the run's data; None if they are no images, or nobody knows."""
        record = self.data_record()
        if "scaling" in record:
            return None if record["scaling"] is None else Scaling(**record["scaling"])
        return image_scaling(self.config_with_data().data)  # of an older run

    def check_data(self, data: SplitData) -> None:
        """Refuse other data than those the run was started with."""
        recorded = self.data_record()
        if not same_data(recorded, data.record()):
            raise RunError(f"the data are not those that the run in {self.path} was started with (see data.json)")

    def own_files(self) -> list[Path]:
        """The files in the folder that a run makes."""
        checkpoints = (f"checkpoint-{stage}.safetensors" for stage in STAGES)
        names = [*FILES, *checkpoints]
        return [path for name in names for path in (self.path / name, self.path / f".{name}.partial") if path.exists()]

    def remove_checkpoints(self) -> None:
        for stage in STAGES:
            self.checkpoint_file(stage).unlink(missing_ok=True)

    def config(self) -> Config:
        return Config.parse(self.read("config.toml"), self.config_file)

    def config_with_data(self, place: str | None = None) -> Config:
        """The configuration, with the data at a place that is named, or where they are.

        If a relative path of it leads nowhere, the run's data are looked for beside its folder and a few folders above:
        the command may not be given where the run was made.
        """
        config = self.config().with_data_at(place)
        names = ("prior_data",) if place is not None else ("data", "prior_data")
        absent = {name: value for name in names if _leads_nowhere(value := getattr(config, name))}
        for folder in self.path.absolute().parents[:_ABOVE] if absent else ():
            found = config.with_options({name: str(folder / value) for name, value in absent.items()})
            if self._has_data(found):
                return found
        return config

    def _has_data(self, config: Config) -> bool:
        """Whether the data where this configuration says are those of the run."""
        try:
            self.check_data(training_data(config, download=False))
        except PacBayesError:
            return False
        return True

    def single(self, certificate: Certificate) -> dict[str, Tensor] | None:
        """The weights of the one network that the certificate is for, if it is for one."""
        if certificate.predictor != "single":
            return None
        content = self.read("single.safetensors")
        if sha256(content) != certificate.single_fingerprint:
            raise RunError(f"{self.weights_file('single')} is not the network that the certificate is for")
        return read_weights(content, "single.safetensors")

    def certificate(self) -> Certificate:
        """The certificate; its shape is checked here, its arithmetic by its own ``check``."""
        if not os.path.lexists(self.certificate_file):
            raise RunError(f"there is no certificate at {self.certificate_file}: make one with 'pacbayes certify'")
        return Certificate.from_json(self.read("certificate.json"), str(self.certificate_file))

    def classes(self) -> ClassCertificate:
        """The certificate of the classes, likewise."""
        return ClassCertificate.from_json(self.read("classes.json"), str(self.path / "classes.json"))

    def evaluation(self) -> Evaluation:
        """What was measured beside the certificate; nothing, and a doubt, where there is no such file."""
        path = self.path / "evaluation.json"
        if not os.path.lexists(path):
            return Evaluation(None, None, 0, 0, None, doubts=[_NOT_EVALUATED])
        return Evaluation.from_json(self.read(path.name), str(path))

    def epochs(self) -> dict[str, list[Epoch]]:
        """Those of each stage so far, whose lines are whole: another process may be writing the next one."""
        if not os.path.lexists(self.history_file):
            return {}
        whole, _, _ = self.read("history.jsonl").rpartition(b"\n")
        return read_epochs(whole)

    def history(self) -> Chain:
        """The history, whose chain holds from config.toml and data.json to its last line."""
        return read_chain(self.read("history.jsonl"), chain_start(self.read("config.toml"), self.read("data.json")))

    def weights(self, which: str) -> dict[str, Tensor]:
        """The tensors of a weight file."""
        name = f"{which}.safetensors"
        return read_weights(self.read(name), name)

    def network(self, device: str | None = None) -> StochasticNetwork:
        """The trained network: posterior and prior from their files, on the run's device or another."""
        config, record = self.config(), self.data_record()
        if device is not None:
            config = config.with_options({"device": device})
        shape, classes = tuple(record["shape"]), record["classes"]
        files = {which: self.read(f"{which}.safetensors") for which in ("prior", "posterior")}
        if self.history().prior_fingerprint != sha256(files["prior"]):
            raise RunError(f"{self.path}: prior.safetensors is not the prior that the posterior was trained from")
        # Nothing as large as the network is made before the files are known to hold as much.
        needed = (8 if config.drawn == "all" else 4) * parameters_of(config, shape, classes)
        for which, content in files.items():
            if len(content) < needed:
                raise RunError(
                    f"{self.weights_file(which)} holds {len(content)} bytes, and the network of config.toml and "
                    f"data.json needs {needed}"
                )
        net = new_network(config, shape, classes)
        try:
            for which, content in files.items():
                net.load_state(read_weights(content, f"{which}.safetensors"), which)
        except InvalidInput as error:
            raise RunError(f"{self.path}: {error}") from None
        if net.fixed_part_changed():
            raise RunError(f"{self.path}: what is fixed in posterior.safetensors is not that of prior.safetensors")
        net.objective = config.posterior.objective
        return net
