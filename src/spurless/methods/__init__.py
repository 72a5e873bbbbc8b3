"""The registry of methods and of group inferences, one line each. This file imports nothing heavy."""

from typing import NamedTuple


class Entry(NamedTuple):
    where: str  # module:class, below spurless.methods or its group_inference
    what: str
    labels: str  # Method.bias_labels, repeated here so that listing needs no torch; a test compares the two


METHODS: dict[str, Entry] = {
    "erm": Entry("erm:ERM", "plain training, the baseline", "none"),
    "crossfit": Entry("crossfit:CrossFit", "ours: take away what is easy, unless there is no shortcut", "none"),
    "jtt": Entry("jtt:JTT", "train again with the errors of a first model repeated", "selection"),
    "pgd": Entry("pgd:PGD", "resample by the gradient norm of a biased network", "none"),
    "dpr": Entry("dpr:DPR", "resample by how surely a biased network disagrees with the label", "none"),
    "la": Entry("la:LA", "adjust the logits by what a bias predicts (MAT, uLA, LC, or true bias labels)", "none"),
    "lff": Entry("lff:LfF", "weight samples by how a biased network fails beside a debiased one", "none"),
    "disent": Entry("disent:DisEnt", "two encoders, one for the bias, and swapped bias features", "none"),
    "ga": Entry("ga:GA", "epoch-ensemble mining, then balanced gradients of easy and hard samples", "none"),
    "bias_adv": Entry(
        "bias_adv:BiasAdv", "adversarial samples against a biased network, on top of ERM, JTT or LfF", "none"
    ),
    "group_dro": Entry("group_dro:GroupDRO", "train for the group with the highest loss", "training"),
    "rs": Entry("rs:RS", "draw groups, or classes, equally often", "training"),
    "gc_dro": Entry("gc_dro:GCDRO", "train for the worst samples of the worst groups", "training"),
    "dfr": Entry("dfr:DFR", "retrain the last layer on held-out samples, balanced by group", "validation"),
    "afr": Entry(
        "afr:AFR", "retrain the last layer on held-out samples that the network does not believe", "selection"
    ),
    "evals": Entry("evals:EVaLS", "retrain the last layer on held-out samples of high and low loss", "none"),
    "end": Entry(
        "end:EnD", "push apart features that share the bias, pull together those that share the class", "training"
    ),
    "rebias": Entry("rebias:ReBias", "features independent of those of a network that sees small patches only", "none"),
    "irm": Entry("irm:IRM", "one classifier that is best in every environment", "training"),
    "eiil": Entry("eiil:EIIL", "infer environments that break plain training, then train for the worst", "selection"),
    "xrm": Entry("xrm:XRM", "twins relabel each other's half; then train for the worst group", "selection"),
    "cnc": Entry("cnc:CnC", "contrast samples of a class that a plain model tells apart", "selection"),
    "george": Entry(
        "george:GEORGE", "cluster the features of each class, then train for the worst cluster", "selection"
    ),
    "bpa": Entry("bpa:BPA", "weigh clusters of features by their size and loss", "none"),
    "dcwp": Entry("dcwp:DCWP", "find an unbiased subnetwork by contrastive weight pruning", "none"),
    "mrm": Entry("mrm:MRM", "find a subnetwork by plain training of its mask, and retrain it from the start", "none"),
    "avp": Entry("avp:AVP", "prune weights whose unit hardly varies", "none"),
    "random_prune": Entry("random_prune:RandomPrune", "prune at random, with the same budget as avp", "none"),
    "magnitude_prune": Entry("magnitude_prune:MagnitudePrune", "prune the smallest weights", "none"),
}

# Where methods take groups from: method.groups.
INFERENCES: dict[str, Entry] = {
    "known": Entry("known:Known", "class and bias attributes", "training"),
    "gce": Entry("errors:GceErrors", "what a network trained with GCE gets wrong", "none"),
    "erm": Entry("errors:ErmErrors", "what a plain network gets wrong after an epoch", "none"),
    "jtt": Entry("errors:EarlyErrors", "what a plain network gets wrong after a fifth of the length", "none"),
    "ecs": Entry("scores:EpochEnsemble", "epoch-ensemble scores of two networks above a threshold", "none"),
    "ecs_simple": Entry("scores:SimpleEnsemble", "epoch-ensemble scores of one network above a threshold", "none"),
    "gradient": Entry("scores:GradientNorms", "the largest head gradients of a biased network", "none"),
    "loss": Entry("scores:Losses", "the largest losses of a biased network", "none"),
    "eiil": Entry("eiil:Environments", "the two environments that break a plain network most", "none"),
    "cnc": Entry("predictions:Predictions", "what a plain network predicts", "none"),
    "george": Entry("clusters:George", "clusters of features, as many as their silhouettes ask for", "none"),
    "bpa": Entry("clusters:Directions", "clusters of the directions of features", "none"),
    "xrm": Entry("xrm:Twins", "what either of two networks, each trained on a half, gets wrong", "none"),
}
