"""What a report of a slow job says: since when, and what a person can do; never to collect what only a hang shows."""

from __future__ import annotations

from analyzers.model.verdict import Coverage, FirstSymptom, Missing, Verdict
from service.reports import text
from service.reports.advice import own_steps
from service.reports.story import became_slower

SLOWER = Verdict(
    symptom="slow", cause="unknown", abstained=True, missing=(Missing(what="who is not decided"),),
    first_symptom=FirstSymptom(text="a step takes 1.4 s since step 1,199, 40 % longer than before (1 s)"),
)  # fmt: skip


def test_a_slow_job_goes_on() -> None:
    """The report begins with the size, lets the job go on, and asks for traces instead of dumps."""
    said = " ".join(text.render(SLOWER).split())

    assert said.startswith("Nothing is named. A step takes 1.4 s since step 1,199, 40 % longer than before (1 s)")
    assert "Let the job go on." in said
    assert "torch.profiler" in said
    assert "fr_trace" not in said
    assert "dump_rank" not in said
    assert "py-spy" not in said


def test_traces_have_their_own_advice() -> None:
    """A slowness that traces show is judged by them: no further trace is asked for."""
    of_traces = Verdict(
        symptom="slow", cause="unknown", abstained=True, first_symptom=SLOWER.first_symptom,
        coverage=Coverage(sources={"op_timings": 4}),
    )  # fmt: skip

    assert became_slower(SLOWER)
    assert not became_slower(of_traces)
    assert own_steps(of_traces) == ()
