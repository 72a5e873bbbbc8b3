"""Theory in numbers: DCWP's error bounds and weight ratio, AVP's definitions, and what the large-learning-rate study
says about confident mistakes. See docs/theory.md for what came out."""

from spurless.theory.avp import Units as Units
from spurless.theory.avp import activation_variability as activation_variability
from spurless.theory.avp import expected_posterior as expected_posterior
from spurless.theory.avp import information_gain_ratio as information_gain_ratio
from spurless.theory.avp import rank_correlation as rank_correlation
from spurless.theory.avp import spurious_correlation as spurious_correlation
from spurless.theory.avp import spurious_ratio as spurious_ratio
from spurless.theory.avp import units_on_gaussians as units_on_gaussians
from spurless.theory.dcwp import Flow as Flow
from spurless.theory.dcwp import Trained as Trained
from spurless.theory.dcwp import debiasing_phi as debiasing_phi
from spurless.theory.dcwp import error_bound as error_bound
from spurless.theory.dcwp import gradient_flow as gradient_flow
from spurless.theory.dcwp import invariant_bounds as invariant_bounds
from spurless.theory.dcwp import margin as margin
from spurless.theory.dcwp import pruned_error as pruned_error
from spurless.theory.dcwp import spurious_floor as spurious_floor
from spurless.theory.dcwp import trained_ratio as trained_ratio
from spurless.theory.large_lr import Decomposed as Decomposed
from spurless.theory.large_lr import Margins as Margins
from spurless.theory.large_lr import gradient_ratio as gradient_ratio
from spurless.theory.large_lr import growth_rate as growth_rate
from spurless.theory.large_lr import loss_ratio as loss_ratio
from spurless.theory.large_lr import margins as margins
