"""The network that forecasts."""
