"""What Dovetail sets out to reach, in ratios, so that it holds on any machine."""

from __future__ import annotations

from dataclasses import dataclass

from bench.measure import Results

SUBJECT = "dovetail"


@dataclass(frozen=True, slots=True)
class Goal:
    """A metric of Dovetail's, as it is or against another system's, and where it should lie."""

    text: str
    metric: str
    against: tuple[str, str] | None = None  # a metric and a system
    at_least: float | None = None
    at_most: float | None = None

    def measured(self, results: Results) -> float | None:
        ours = (self.metric, SUBJECT)
        spread = results.ratio(ours, self.against) if self.against else results.spread(*ours)
        return spread.median if spread else None

    def is_met_by(self, value: float) -> bool:
        enough = self.at_least is None or value >= self.at_least
        return enough and (self.at_most is None or value <= self.at_most)


GOALS = {
    "sqlite": (
        *(
            Goal(f"{drain}: at least 4 times huey", drain, (drain, "huey"), at_least=4)
            for drain in ("drain-1x10", "drain-1x100", "drain-2x100")
        ),
        # "10,000 runs/s, and 60,000 in bulk, on a machine where the minimal loop does 40,000", as ratios.
        Goal("drain-1x100: at least 0.25 of minimal", "drain-1x100", ("drain-1x100", "minimal"), at_least=0.25),
        Goal("bulk: at least 1.5 times minimal's drain", "bulk", ("drain-1x100", "minimal"), at_least=1.5),
        Goal("latency p50: at most 2 times minimal", "latency-p50", ("latency-p50", "minimal"), at_most=2),
        Goal("idle worker: at most 0.5 % of a core", "idle-cpu", at_most=0.5),
        *(
            Goal(
                f"claim beside 1,000,000 {kind}: at most 1.5 times",
                f"claim-{kind}-1000000-growth",
                at_most=1.5,
            )
            for kind in ("queued", "scheduled")
        ),
    ),
    "redis": (
        *(
            Goal(f"drain-1x100: at least 3 times {peer}", "drain-1x100", ("drain-1x100", peer), at_least=3)
            for peer in ("dramatiq", "taskiq")
        ),
        Goal("drain-1x100: at least 5 times pydocket", "drain-1x100", ("drain-1x100", "pydocket"), at_least=5),
        Goal("enqueue: at least 0.8 of minimal", "enqueue", ("enqueue", "minimal"), at_least=0.8),
        # "30,000 runs/s in bulk where the minimal loop does 56,000", as a ratio.
        Goal("bulk: at least 0.54 of minimal", "bulk", ("bulk", "minimal"), at_least=0.54),
        Goal("latency p50: at most 1.5 times minimal", "latency-p50", ("latency-p50", "minimal"), at_most=1.5),
        Goal("drain-1x100: at most 0.3 commands per run", "drain-1x100-commands", at_most=0.3),
        Goal("idle worker: at most 0.5 % of a core", "idle-cpu", at_most=0.5),
        *(
            Goal(
                f"claim beside 1,000,000 {kind}: at most 1.5 times",
                f"claim-{kind}-1000000-growth",
                at_most=1.5,
            )
            for kind in ("queued", "scheduled")
        ),
    ),
    "postgres": (
        Goal("drain-1x100: at least 1.2 times pgqueuer", "drain-1x100", ("drain-1x100", "pgqueuer"), at_least=1.2),
        Goal("drain-1x100: at least 10 times pgroost", "drain-1x100", ("drain-1x100", "pgroost"), at_least=10),
        Goal("drain-2x100: at least 1.5 times drain-1x100", "drain-2x100", ("drain-1x100", SUBJECT), at_least=1.5),
        Goal("enqueue: at least 0.85 of minimal", "enqueue", ("enqueue", "minimal"), at_least=0.85),
        # "50,000 runs/s in bulk, where the minimal loop drains 66,000", as a ratio.
        Goal("bulk: at least 0.75 of minimal", "bulk", ("bulk", "minimal"), at_least=0.75),
        Goal("latency p50: at most 1.3 times minimal", "latency-p50", ("latency-p50", "minimal"), at_most=1.3),
        *(
            Goal(
                f"claim beside 1,000,000 {kind}: at most 1.5 times",
                f"claim-{kind}-1000000-growth",
                at_most=1.5,
            )
            for kind in ("queued", "scheduled")
        ),
    ),
}
