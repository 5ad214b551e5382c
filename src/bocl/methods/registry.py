"""Methods by name."""

from __future__ import annotations

from bocl.methods.bocl import BOCL
from bocl.methods.den import DEN
from bocl.methods.ewc import EWC
from bocl.methods.fixed import Fixed
from bocl.methods.frozen import Frozen
from bocl.methods.gem import GEM
from bocl.methods.independent import Independent
from bocl.methods.joint import Joint
from bocl.methods.method import Method
from bocl.methods.pgn import PGN
from bocl.methods.rcl import RCL
from bocl.methods.sn import SN

METHODS: dict[str, type[Method]] = {
    kind.name: kind for kind in (BOCL, SN, EWC, GEM, PGN, DEN, RCL, Fixed, Frozen, Independent, Joint)
}
