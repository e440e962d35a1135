"""Configuration: nested dictionaries, layered and interpolated."""

from conf.build import build_config

__all__ = ["build_config"]
