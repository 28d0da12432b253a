"""What a report says in whole sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadtest.report import number_format as wording

WIRES = {
    "json": "tensors as JSON",
    "binary": "tensors as bytes",
    "v1": "rows as /v1 takes them",
    "gates": "questions for gates",
    "lesion": "questions for lesions",
    "mixed": "requests of all kinds",
}
SHAPES = {
    "constant": "",
    "ramp": ", rising from nothing to that",
    "spike": ", a quarter of that but for a spike in the middle",
    "soak": ", all the time",
    "step": ", in five equal steps up to that",
}
CLOSED = (
    "This was a closed loop: each user waits for an answer before the next request leaves. When the "
    "server slows down, less is asked of it, and the requests that would have come in the meantime are "
    "not in the figures (coordinated omission). The percentiles tell what this many users feel, not what "
    "visitors feel who come whether or not others have been served; for that, give a rate."
)
OPEN = (
    "This was an open loop: requests were due on a schedule drawn at random (a Poisson process), whether "
    "or not earlier answers had come, and a latency counts from the moment at which its request was due, "
    "even when it left later. A stall of the server is felt by every request that falls into it, and "
    "none is left out of the figures (no coordinated omission)."
)
SERVER_LIMITED = "More than that the server did not do within the SLO."
GENERATOR_LIMITED = (
    "What stood in the way of more was the generator, not the server: requests left late. The server's "
    "capacity is this or higher; use more --processes, or another machine for the load."
)
UNDONE = "The search was ended before it had found one."
NO_RATE = "No rate kept the SLO for as long as a capacity has to."
NO_RATE_GENERATOR = (
    f"{NO_RATE} But the generator could not keep the schedule either, so this says nothing about the "
    "server; use more --processes, or another machine for the load."
)


def loaded(load: Mapping[str, Any]) -> str:
    """What was sent, and how much."""
    loop = "an open loop" if load["loop"] == "open" else "a closed loop"
    if load["find_capacity"]:
        how = f"A search for the capacity, {wording.length(load['step_seconds'])} for each rate"
    elif load["rate"] is not None:
        how = f"{wording.number(load['rate'])} requests a second"
    else:
        how = f"{load['users']:,} user{'' if load['users'] == 1 else 's'}"
    if not load["find_capacity"]:
        how += f"{SHAPES[load['shape']]}, for {wording.length(load['duration'])}"
    whose = "; the rows are the user's own" if load["own_rows"] else ""
    return f"{how}, in {loop}: {WIRES[load['wire']]}, {wording.rows(load['rows'])} each{whose}."


def generated(found: Mapping[str, Any]) -> str:
    """Where the load came from."""
    machine, processes = found["machine"], found["load"]["processes"]
    cpus = f"{machine['cpus']} CPU{'' if machine['cpus'] == 1 else 's'}"
    return (
        f"The load came from {processes} process{'' if processes == 1 else 'es'} on a machine of {cpus} "
        f"({machine['platform']}, Python {machine['python']}, locust {machine['locust']})."
    )


def counted(found: Mapping[str, Any]) -> str:
    """Which requests the table is of."""
    span = wording.length(found["counted"]["seconds"])
    if found["capacity"] is None:
        return f"Those that were due in the {span} that count, which is all but the warm-up."
    which = "that confirmed the capacity" if found["capacity"]["rate"] else "of the last rate that was tried"
    return f"Those of the {span} {which}."


def shaded(found: Mapping[str, Any]) -> str:
    """What the bands in the charts mean; nothing where there are none."""
    aside = found["counted"]["from"] > 1
    if found["capacity"] is not None:
        return "Shaded: what the figures above are not told from."
    return "Shaded: the warm-up, which no figure is told from." if aside else ""


def capacity(searched: Mapping[str, Any]) -> str:
    """What a search found."""
    if not searched["done"]:
        return UNDONE
    generator = searched["limited_by"] == "generator"
    if searched["rate"] is None:
        return NO_RATE_GENERATOR if generator else NO_RATE
    found = f"{wording.number(searched['rate'])} requests a second kept the SLO, in a longer run as well."
    return f"{found} {GENERATOR_LIMITED if generator else SERVER_LIMITED}"


def served(server: Mapping[str, Any]) -> str:
    """What the server did, beside its times."""
    workers = f"{wording.number(server['workers'])} worker{'' if server['workers'] == 1 else 's'}"
    return (
        f"Its {workers} ran {wording.number(server['rows']['mean'])} rows together on average. At most "
        f"{wording.number(server['depth'])} requests were seen waiting; "
        f"{wording.number(server['refused'])} were answered with an error."
    )


def omission(load: Mapping[str, Any]) -> str:
    """How coordinated omission was handled."""
    return OPEN if load["loop"] == "open" else CLOSED


def measured(limit: Mapping[str, Any]) -> str:
    """A limit's value, in the unit of its measure."""
    if limit["value"] is None:
        return "nothing to judge by"
    if limit["measure"] == "errors":
        return wording.share(limit["value"])
    if limit["measure"] == "rate":
        return f"{wording.number(limit['value'])}/s"
    return wording.seconds(limit["value"])
