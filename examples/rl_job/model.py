"""A transformer of 100,000 parameters, trained from scratch; it generates with a cache of keys and values."""

from __future__ import annotations

import hashlib

import torch
from task import ANSWER_TOKENS, PROMPT_TOKENS, VOCABULARY
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, LAYERS = 64, 4, 2
LENGTH = PROMPT_TOKENS + ANSWER_TOKENS
Cache = list[tuple[Tensor, Tensor]]


class Block(nn.Module):
    """Attention and a feed-forward layer."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.forward_layer = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the layer's output for new positions, and the keys and values of all."""
        batch, new, _ = x.shape
        heads = self.attention(self.before(x)).view(batch, new, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        query, keys, values = heads[0], heads[1], heads[2]
        if past is not None:
            keys, values = torch.cat([past[0], keys], 2), torch.cat([past[1], values], 2)
        mixed = functional.scaled_dot_product_attention(query, keys, values, is_causal=past is None and new > 1)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, new, WIDTH))
        return x + self.forward_layer(self.between(x)), (keys, values)


class Policy(nn.Module):
    """Tokens to the logits of the next one."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.last, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> tuple[Tensor, Cache]:
        """Return logits (batch, new positions, vocabulary) and the cache; ``tokens`` are those after the cache."""
        begin = cache[0][0].shape[2] if cache else 0
        x = self.tokens(tokens) + self.places(torch.arange(begin, begin + tokens.shape[1]))
        kept: Cache = []
        for number, block in enumerate(self.blocks):
            x, one = block(x, cache[number] if cache else None)
            kept.append(one)
        return self.head(self.last(x)), kept


@torch.no_grad()
def generate(policy: Policy, prompts: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return sampled answers (batch, answer tokens) and the log-probability of each of their tokens."""
    logits, cache = policy(prompts)
    answers, logs_of = [], []
    for _ in range(ANSWER_TOKENS):
        logs = functional.log_softmax(logits[:, -1], -1)
        token = torch.multinomial(logs.exp(), 1, generator=generator)
        answers.append(token)
        logs_of.append(logs.gather(1, token))
        logits, cache = policy(token, cache)
    return torch.cat(answers, 1), torch.cat(logs_of, 1)


def log_probabilities(policy: nn.Module, prompts: Tensor, answers: Tensor) -> Tensor:
    """Return the log-probability of each token of the answers."""
    logits, _ = policy(torch.cat([prompts, answers[:, :-1]], 1))
    logs = functional.log_softmax(logits[:, PROMPT_TOKENS - 1 :], -1)
    return logs.gather(2, answers.unsqueeze(2)).squeeze(2)


def flat(policy: nn.Module) -> Tensor:
    """Return all parameters as one tensor."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in policy.parameters()])


def load_flat(policy: nn.Module, values: Tensor) -> None:
    """Set all parameters from one tensor."""
    begin = 0
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.copy_(values[begin : begin + parameter.numel()].view_as(parameter))
            begin += parameter.numel()


def fingerprint(policy: nn.Module) -> str:
    """Return a hash of the parameters, to the bit."""
    return hashlib.sha256(flat(policy).numpy().tobytes()).hexdigest()[:16]
