"""A recurrent policy over widths, trained by its policy gradient (REINFORCE). Float64, on the CPU.

    name        shape                     meaning
    widths      (k, n)                    k draws z, one width per hidden group
    rewards     (k,)                      r(z), what they were worth
    logits      (k, n, most width + 1)    of π(z_i | z_1 … z_{i-1}); -∞ for a width above its group's bound, or above
                                          what the budget leaves after z_1 … z_{i-1}
    values      (k, n)                    V_i, a critic's guess of r(z) before z_i is chosen
    advantages  (k, n) or (k, 1)          (r(z) - baseline) / scale

    π(z) = Π_i π(z_i | z_1 … z_{i-1})          J = E r(z)
    ∇J   = E Σ_i (r(z) - b_i) ∇ log π(z_i | z_1 … z_{i-1})

The baseline b_i only changes the variance, as long as it does not depend on z_i or what follows it. The critic reads
the state of the LSTM *before* z_i is chosen; a moving mean only knows earlier draws.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from bocl.search.lattice import Allowed, room
from bocl.search.one_thread import one_thread
from bocl.search.settings import ControllerName
from bocl.widths import Widths

LAYERS, UNITS = 2, 100  # of the LSTM
WINDOW = 32  # latest draws, whose rewards give the moving mean and spread
LEAST_SPREAD = 1e-6  # smaller differences of rewards say nothing


@dataclass(frozen=True)
class ControllerSettings:
    """How a controller learns.

    rate         Adam's step size for the policy
    critic_rate  Adam's step size for a linear critic, the baseline of raw rewards; None: rewards are standardised by
                 the mean and spread of the latest draws
    batch        draws per update
    entropy      weight of the policy's entropy, which keeps it from settling too early
    """

    rate: float
    critic_rate: float | None
    batch: int
    entropy: float


#: The values of RCL's authors, and those that did best on simulated rewards (replication/README.md).
CONTROLLERS: dict[ControllerName, ControllerSettings] = {
    "as-released": ControllerSettings(rate=1e-3, critic_rate=5e-3, batch=1, entropy=0.0),
    "tuned": ControllerSettings(rate=2e-2, critic_rate=None, batch=4, entropy=0.05),
}


class Policy(nn.Module):
    """π and V: an LSTM with one step per hidden group, a linear layer from its state to logits, another to a value.

    A step reads which group it is for, and which share of its bound the previous group was given.
    """

    def __init__(self, bounds: Widths, allowed: Allowed, seed: int) -> None:
        super().__init__()
        groups, actions = len(bounds), max(bounds) + 1
        self.bounds, self.allowed = torch.tensor(bounds), allowed
        with torch.device("meta"):  # so that nothing is drawn from the global generator
            self.lstm = nn.LSTM(groups + 1, UNITS, LAYERS, batch_first=True, dtype=torch.float64)
            self.actor = nn.Linear(UNITS, actions, dtype=torch.float64)
            self.critic = nn.Linear(UNITS, 1, dtype=torch.float64)
        self.to_empty(device="cpu")
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(UNITS**-0.5), UNITS**-0.5, generator=generator)

    def forward(self, widths: Tensor) -> tuple[Categorical, Tensor]:
        """Return π(z_i | z_1 … z_{i-1}) as k × n distributions, and V (k, n)."""
        states, _ = self.lstm(self._inputs(widths))
        room = torch.stack([self._room(widths, group) for group in range(len(self.bounds))], dim=1)
        return self._choices(states, room), self.critic(states.detach()).squeeze(-1)

    @torch.no_grad()
    def draw(self, generator: torch.Generator) -> Widths:
        """Draw z from π, group by group."""
        widths = torch.zeros(1, len(self.bounds), dtype=torch.int64)
        state = None
        for group in range(len(self.bounds)):
            step = self._inputs(widths)[:, group : group + 1]
            output, state = self.lstm(step, state)
            chances = self._choices(output, self._room(widths, group).unsqueeze(1)).probs[0, 0]
            widths[0, group] = torch.multinomial(chances, 1, generator=generator)
        return tuple(widths[0].tolist())

    def _inputs(self, widths: Tensor) -> Tensor:
        """Return (k, n, n + 1): which group i is (one-hot), and z_{i-1} / bound_{i-1}."""
        count, groups = widths.shape
        shares = (widths / self.bounds.clamp(min=1)).double().roll(1, dims=1)
        shares[:, 0] = 0
        return torch.cat([torch.eye(groups, dtype=torch.float64).expand(count, -1, -1), shares.unsqueeze(-1)], dim=-1)

    def _room(self, widths: Tensor, group: int) -> Tensor:
        """Return (k,): the most units that the group may be given after z_1 … z_{i-1}, if later groups get 0."""
        before = widths.numpy().copy()
        before[:, group:] = 0
        return torch.from_numpy(room(before, group, tuple(self.bounds.tolist()), self.allowed))

    def _choices(self, states: Tensor, room: Tensor) -> Categorical:
        logits = self.actor(states)  # (k, groups, actions)
        forbidden = torch.arange(logits.shape[-1]) > room.unsqueeze(-1)
        return Categorical(logits=logits.masked_fill(forbidden, -torch.inf), validate_args=False)


class Controller:
    """A policy, and what it takes to improve it."""

    def __init__(self, bounds: Widths, allowed: Allowed, settings: ControllerSettings, *, seed: int) -> None:
        self.settings = settings
        self.policy = Policy(bounds, allowed, seed)
        self._generator = torch.Generator().manual_seed(seed)
        self._rewards: deque[float] = deque(maxlen=WINDOW)
        actor = [*self.policy.lstm.parameters(), *self.policy.actor.parameters()]
        critic = list(self.policy.critic.parameters())
        rates = [(actor, settings.rate), (critic, settings.critic_rate or 0.0)]
        self._optimiser = torch.optim.Adam([{"params": part, "lr": rate} for part, rate in rates])

    def draw(self) -> Widths:
        """Draw widths from the policy."""
        with one_thread():
            return self.policy.draw(self._generator)

    def likeliest(self, points: Sequence[Widths]) -> Widths:
        """Return the point to which the policy gives the highest probability."""
        with one_thread(), torch.no_grad():
            widths = torch.tensor(points)
            choices, _ = self.policy(widths)
            return points[int(choices.log_prob(widths).sum(1).argmax())]

    def entropy(self, draws: Sequence[Widths]) -> float:
        """Return Σ_i H(π(z_i | …)), averaged over draws of the policy, in nats."""
        with one_thread(), torch.no_grad():
            choices, _ = self.policy(torch.tensor(draws))
            return float(choices.entropy().sum(1).mean())

    def learn(self, draws: Sequence[Widths], rewards: Sequence[float]) -> None:
        """Take one step up the policy gradient estimated from draws of the policy."""
        with one_thread():
            self._optimiser.zero_grad()
            torch.autograd.backward(self.loss(draws, rewards))
            self._optimiser.step()
        self._rewards.extend(rewards)

    def loss(self, draws: Sequence[Widths], rewards: Sequence[float]) -> Tensor:
        """Return the loss whose gradient is minus the estimate of ∇J, plus the critic's error, less the entropy bonus.

        The critic reads detached states, so its error only trains the critic.
        """
        widths, worth = torch.tensor(draws), torch.tensor(rewards, dtype=torch.float64)
        choices, values = self.policy(widths)
        errors = worth.unsqueeze(1) - values
        advantages = self._standardised(worth) if self.settings.critic_rate is None else errors.detach()
        gain = (advantages * choices.log_prob(widths)).sum(1) + self.settings.entropy * choices.entropy().sum(1)
        loss: Tensor = errors.square().mean() - gain.mean()
        return loss

    def _standardised(self, rewards: Tensor) -> Tensor:
        """Return (r - mean) / spread, (k, 1), of the latest draws before these, or of these if there are none."""
        latest = torch.tensor(list(self._rewards), dtype=torch.float64) if self._rewards else rewards
        return ((rewards - latest.mean()) / latest.std(correction=0).clamp(min=LEAST_SPREAD)).unsqueeze(1)
