"""Configs shipped with bocl: one TOML file each, its first line says what it is for."""
