"""Low-rank growth: a trained module of any kind stays as it is, and every task adds factors to some of its layers."""
