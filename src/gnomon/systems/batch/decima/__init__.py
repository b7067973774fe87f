"""Training of the scheduling network: rollouts and policy gradients."""
