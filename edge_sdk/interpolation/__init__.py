"""The blend λ_m·p_knn + (1-λ_m)·p_global, and how its settings are chosen.

Formulas: "Personalized Federated Learning through Local Memorization" (Marfoq et al., ICML 2022), equations for p_knn
and the mixture. What is chosen is chosen leave-one-out: each entry is predicted from the others, never from itself (an
entry that finds itself at distance 0 drives λ_m to 1 on anything, random labels included).
"""

from edge_sdk.interpolation.kernel import KERNELS, kernel_weights, knn_probabilities
from edge_sdk.interpolation.left_out import LeftOut, leave_one_out
from edge_sdk.interpolation.mixture import blend, log_loss, mixture_weights, winners
from edge_sdk.interpolation.online import OnlineWeight
from edge_sdk.interpolation.settings import EXPERTS, LARGEST_TUNED_WEIGHT, SHRINKAGE_ENTRIES, Interpolation, shrink
from edge_sdk.interpolation.tuning import CRITERIA, LEFT_OUT_K, tune, tune_datastore

__all__ = [
    "CRITERIA",
    "EXPERTS",
    "KERNELS",
    "LARGEST_TUNED_WEIGHT",
    "LEFT_OUT_K",
    "SHRINKAGE_ENTRIES",
    "Interpolation",
    "LeftOut",
    "OnlineWeight",
    "blend",
    "kernel_weights",
    "knn_probabilities",
    "leave_one_out",
    "log_loss",
    "mixture_weights",
    "shrink",
    "tune",
    "tune_datastore",
    "winners",
]
