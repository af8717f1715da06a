"""The verb `look`: all that a board shows of a host, in one answer: a probe, what runs wrote, what people show."""

from __future__ import annotations

from tpufleet.host.files import JsonObject
from tpufleet.host.places import Places
from tpufleet.host.probe import probe
from tpufleet.host.results import results


def look(places: Places, request: JsonObject) -> JsonObject:
    """`{"probe", "results", "people"}`: as the verb `probe`, as `results` for the request's `runs`, and as the verb
    `shared`, where the request asks for `people`.

    The probe comes first: what a run wrote before it ended is there when it has.
    """
    answer: JsonObject = {"probe": probe(places)}
    answer["results"] = results(places, request)
    if request.get("people") is True:
        from tpufleet.host.shared import shared  # late: most fleets have no people

        answer["people"] = shared(places, request)
    return answer
