"""The paper's way, for the tests that are about it: all earlier tasks are read, units have a price, bounds are given."""

from __future__ import annotations

from bocl.methods.reward import USUAL_ALPHA, RewardSettings
from bocl.networks.growth import GrowthSettings

PAPER_GROWTH = GrowthSettings("all", "full", gates="sample")
PAPER_REWARD = RewardSettings(USUAL_ALPHA)
PAPER_BOUNDS = 29
