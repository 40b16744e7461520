"""Speed, beside a peer in the same run. Figures are ratios: machines are noisy."""
