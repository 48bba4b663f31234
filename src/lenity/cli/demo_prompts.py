"""The demo's prompts: a few kinds of work, written for this project."""

from __future__ import annotations

_LEAFLET = (
    "The harbour library opens at nine on weekdays and at ten on Saturdays. Books may be kept for "
    "three weeks and renewed twice unless another reader is waiting. Films may be kept for one "
    "week and cannot be renewed. Late books cost ten cents a day, late films fifty cents a day. "
    "Children under twelve pay nothing. The reading room on the second floor is quiet; the garden "
    "is not. A lost card costs two euros and is replaced at once at the desk near the stairs."
)
_TABLE = (
    "name = maple, height = 18, unit = metre, leaf = broad\n"
    "name = spruce, height = 31, unit = metre, leaf = needle\n"
    "name = birch, height = 15, unit = metre, leaf = broad\n"
    "name = larch, height = 27, unit = metre, leaf = needle\n"
    "name = alder, height = 20, unit = metre, leaf = broad\n"
    "name = yew, height = 12, unit = metre, leaf = needle\n"
)

PROMPTS = {
    "leaflet": "Explain these rules to a new reader one by one, with a reason for each.\n\n"
    f"{_LEAFLET}",
    "chat": "My sister is learning to ride a bicycle and is afraid of falling. What would you "
    "tell her, step by step?",
    "maths": "A baker sells 14 loaves in the morning and 9 in the afternoon, at 3 coins each. "
    "Explain step by step how many coins the baker earns.",
    "code": "Write a Python function that returns the longest word of a sentence, with a "
    "docstring and two examples.",
    "list": "List ten things to pack for a week in the mountains, each with one short reason.",
    "letter": "Write a polite letter to a neighbour whose dog barks at night.",
}
"""Prompts of the main table; an answer to any is longer than what the demo decodes."""

COPYING = {
    "leaflet": f"Repeat this text word for word.\n\n{_LEAFLET}",
    "table": f"Repeat these lines exactly, all six of them.\n\n{_TABLE}",
}
"""Prompts whose answers stand in the prompt: what prompt lookup is good at."""
