"""Settings of a topic, each with the place that gives its value."""

from ...config.topic import places
from ..handlers.base import Services
from .access import Query


async def settings(services: Services, query: Query) -> dict[str, object]:
    """Return all settings of a topic: name, value in force, and `topic`, `broker` or `default`."""
    overrides = services.logs.topic(query.text("topic")).overrides
    found = places(services.settings.topic_defaults, overrides)
    return {
        "settings": [
            {"name": name, "value": values[0][0], "source": values[0][1], "default": values[-1][0]}
            for name, values in found.items()
        ]
    }
