"""Theory in numbers: DCWP's error bounds and weight ratio, AVP's definitions, and what the large-learning-rate study
says about confident mistakes. See docs/theory.md for what came out."""

from studies.theory.avp import Units as Units
from studies.theory.avp import activation_variability as activation_variability
from studies.theory.avp import expected_posterior as expected_posterior
from studies.theory.avp import information_gain_ratio as information_gain_ratio
from studies.theory.avp import rank_correlation as rank_correlation
from studies.theory.avp import spurious_correlation as spurious_correlation
from studies.theory.avp import spurious_ratio as spurious_ratio
from studies.theory.avp import units_on_gaussians as units_on_gaussians
from studies.theory.dcwp import Flow as Flow
from studies.theory.dcwp import Trained as Trained
from studies.theory.dcwp import debiasing_phi as debiasing_phi
from studies.theory.dcwp import error_bound as error_bound
from studies.theory.dcwp import gradient_flow as gradient_flow
from studies.theory.dcwp import invariant_bounds as invariant_bounds
from studies.theory.dcwp import margin as margin
from studies.theory.dcwp import pruned_error as pruned_error
from studies.theory.dcwp import spurious_floor as spurious_floor
from studies.theory.dcwp import trained_ratio as trained_ratio
from studies.theory.large_lr import Decomposed as Decomposed
from studies.theory.large_lr import Margins as Margins
from studies.theory.large_lr import gradient_ratio as gradient_ratio
from studies.theory.large_lr import growth_rate as growth_rate
from studies.theory.large_lr import loss_ratio as loss_ratio
from studies.theory.large_lr import margins as margins
