"""The paper's way, for tests that are about it: all earlier tasks are read, and units have a price."""

from __future__ import annotations

from bocl.methods.reward import USUAL_ALPHA, RewardSettings
from bocl.networks.growth import PAPERS_WAY

PAPER_GROWTH = PAPERS_WAY
PAPER_REWARD = RewardSettings(USUAL_ALPHA)
