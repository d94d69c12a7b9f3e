"""How long requests are: mixes with a long tail, the same on every machine, whose means are published ones.

A mix is the lognormal's quantiles at (i + 1/2) / count, so it has no sampling noise of its own and the work in it does
not change from draw to draw; only the order of the requests is random.
"""

from math import exp, log
from statistics import NormalDist

# Mean tokens of an answer ("Output") in two public data sets, by the legend of figure 11 of Kwon et al., "Efficient
# Memory Management for Large Language Model Serving with PagedAttention", SOSP 2023 (arXiv 2309.06180), as others have
# transcribed it; their ratio is the 5.8 that the paper's text states. The lognormal is this project's choice.
SHAREGPT_ANSWER, ALPACA_ANSWER = 337.99, 58.45
# Sigma of the lognormal through median and 90th percentile of the answers in LMSys-Chat-1M, 139 and 484 tokens: Vidur
# (arXiv 2405.05465), as told in github.com/microsoft/vidur, vidur/config_optimizer/analyzer/dashboard/intro_page.py.
SPREAD = 0.9735


def length_mix(count: int, mean: float, longest: int, spread: float) -> list[int]:
    """`count` lengths of a lognormal distribution with this mean and sigma, in rising order, each in 1..longest.

    The mean of a lognormal is exp(mu + sigma^2 / 2). Cutting at `longest` lowers it: 32 of Alpaca's answers, cut at
    128, have a mean of 49.1.
    """
    middle = NormalDist(log(mean) - spread**2 / 2, spread)
    quantiles = (exp(middle.inv_cdf((i + 0.5) / count)) for i in range(count))
    return [min(max(round(length), 1), longest) for length in quantiles]
