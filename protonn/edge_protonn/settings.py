"""ProtoNNSettings: everything that a fit depends on besides the data."""

from dataclasses import dataclass

from edge_sdk.errors import ConfigError

HEADS = ("probability", "squared")
PROJECTIONS = ("none", "pca", "random", "given")
STARTS = ("per-class", "overall", "samples")


@dataclass(frozen=True)
class ProtoNNSettings:
    """Size, start and training of one set of prototypes."""

    n_prototypes: int = 64
    """m, at least 1. With the "per-class" start every class present gets at least one, so there may be a few more."""

    dim: int = 16
    """d̂, width of the projected space; the embedding's own width where `projection` is "none", and never above it."""

    head: str = "probability"
    """"probability": soft labels on the simplex and masses, trained on the log-loss, so that λ keeps its meaning;
    "squared": the paper's label vectors on the squared loss with hard thresholding."""

    projection: str = "pca"
    """How W starts: "pca", "random" (Gaussian, as in the paper), "given" (`fit(..., projection=...)`: a shared one),
    "none"."""

    learn_projection: bool = False
    """Train W too; else it stays as it started."""

    learn_labels: bool = False
    """Train the soft labels of the probability head too; else each prototype votes for its own class alone (1 byte in
    the file)."""

    learn_prototypes: bool = True
    """Train B and the masses; False leaves k-means' own and trains γ alone."""

    learn_gamma: bool = True
    """Train γ too, on its logarithm."""

    start: str = "per-class"
    """Where the prototypes start: k-means of each class, k-means of everything, or random samples."""

    gamma: float | None = None
    """γ at the start; None: the median rule 2.5 / median ‖b_j - Wx_i‖."""

    epochs: int = 60
    """Passes over the entries; 0 leaves everything at its start (the k-means prototypes)."""

    batch: int = 128
    """Entries in a mini-batch."""

    learning_rate: float = 0.02
    """Adam's step at the beginning, in units of the projected entries' own spread; it falls to 0 along half a
    cosine."""

    jitter: float = 0.0
    """Gaussian noise on every mini-batch, in units of each dimension's spread within the classes; against learning a
    few hundred entries by heart ("probability" head; 1 to 1.5 is good)."""

    sparsity: float = 1.0
    """Share of the numbers of each of W, B and Z that hard thresholding keeps after every step ("squared" head
    only)."""

    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, known in (("head", HEADS), ("projection", PROJECTIONS), ("start", STARTS)):
            if getattr(self, name) not in known:
                raise ConfigError(f"{name} is one of {', '.join(known)}, got {getattr(self, name)!r}")
        for name, least in (("n_prototypes", 1), ("dim", 1), ("epochs", 0), ("batch", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not 0.0 < self.sparsity <= 1.0:
            raise ConfigError(f"sparsity is the share that is kept, in (0, 1], got {self.sparsity}")
        if self.sparsity < 1.0 and self.head != "squared":
            raise ConfigError('sparsity below 1 goes with head="squared"; the probability head stays dense')
        if self.jitter < 0.0:
            raise ConfigError(f"jitter must not be negative, got {self.jitter}")
        if self.learning_rate <= 0.0 or (self.gamma is not None and self.gamma <= 0.0):
            raise ConfigError(f"learning_rate and gamma must be above 0, got {self.learning_rate} and {self.gamma}")
