"""The conformance suite: what every engine must do, as tests that any engine can run.

The contract is the docstring of `dovetail.engine.interface`; each line of it is one or more tests here. The
suite is driven by a clock that only the tests move, so it never sleeps. To run it, derive a class and say how
to connect:

    from dovetail.testing.conformance import Conformance

    class TestMyEngine(Conformance):
        @pytest.fixture
        def connect(self, tmp_path, clock):
            return lambda: MyEngine(f"mine:///{tmp_path}/store", "conformance", clock=clock)

`connect` makes an engine, not open yet, on a store that is empty when the test begins; all that it makes in
one test share the store, the docket and the clock. From it come the fixtures that the tests take: `engine`
(an open one), `another` (opens one more) and `clock` (`clock.jump(timedelta)` moves it). The tests are
coroutines: run them with pytest-asyncio and `asyncio_mode = "auto"`.

`Conformance` is made of one class for each area of the contract; they may be run alone. Beside it there is a
machine that tries random sequences of all verbs against a model. It needs Hypothesis, and a factory in the
place of the fixture, since each of its many examples begins with an empty store of its own:

    from dovetail.testing.conformance.machine import machine

    TestMyEngineStateful = machine(lambda clock: MyEngine("mine://", "conformance", clock=clock)).TestCase
"""

from dovetail.testing.conformance.ageing import Ageing
from dovetail.testing.conformance.archiving import Archiving
from dovetail.testing.conformance.batches import Batches
from dovetail.testing.conformance.bounds import Bounds
from dovetail.testing.conformance.cancelling import Cancelling
from dovetail.testing.conformance.claiming import Claiming
from dovetail.testing.conformance.clearing import Clearing
from dovetail.testing.conformance.conflicts import Conflicts
from dovetail.testing.conformance.counting import Counting
from dovetail.testing.conformance.crashing import Crashing
from dovetail.testing.conformance.discarding import Discarding
from dovetail.testing.conformance.emptiness import Emptiness
from dovetail.testing.conformance.fairness import Fairness
from dovetail.testing.conformance.fencing import Fencing
from dovetail.testing.conformance.finding import Finding
from dovetail.testing.conformance.finishing import Finishing
from dovetail.testing.conformance.fixtures import Connect, Fixtures
from dovetail.testing.conformance.glancing import Glancing
from dovetail.testing.conformance.holds import Holds
from dovetail.testing.conformance.leases import Leases
from dovetail.testing.conformance.limits import Limits
from dovetail.testing.conformance.naming import Naming
from dovetail.testing.conformance.parents import Parents
from dovetail.testing.conformance.progress import Progressing
from dovetail.testing.conformance.racing import Racing
from dovetail.testing.conformance.receiving import Receiving
from dovetail.testing.conformance.repeating import Repeating
from dovetail.testing.conformance.reviving import Reviving
from dovetail.testing.conformance.scheduling import Scheduling
from dovetail.testing.conformance.standing import Standings
from dovetail.testing.conformance.succeeding import Succeeding
from dovetail.testing.conformance.surveying import Surveying
from dovetail.testing.conformance.sweeping import Sweeping
from dovetail.testing.conformance.text import Text
from dovetail.testing.conformance.turns import Turns
from dovetail.testing.conformance.unbegun import Unbegun
from dovetail.testing.conformance.vocabulary import Another, assert_empty
from dovetail.testing.conformance.watching import Watching
from dovetail.testing.conformance.windows import Windows


class Conformance(
    Scheduling,
    Conflicts,
    Succeeding,
    Naming,
    Claiming,
    Fairness,
    Ageing,
    Limits,
    Windows,
    Unbegun,
    Turns,
    Finishing,
    Fencing,
    Repeating,
    Parents,
    Receiving,
    Leases,
    Crashing,
    Cancelling,
    Clearing,
    Progressing,
    Reviving,
    Holds,
    Watching,
    Finding,
    Surveying,
    Standings,
    Glancing,
    Sweeping,
    Discarding,
    Counting,
    Archiving,
    Emptiness,
    Racing,
    Bounds,
    Batches,
    Text,
):
    """The whole contract."""


__all__ = [
    "Ageing",
    "Another",
    "Archiving",
    "Batches",
    "Bounds",
    "Cancelling",
    "Claiming",
    "Clearing",
    "Conflicts",
    "Conformance",
    "Connect",
    "Counting",
    "Crashing",
    "Discarding",
    "Emptiness",
    "Fairness",
    "Fencing",
    "Finding",
    "Finishing",
    "Fixtures",
    "Glancing",
    "Holds",
    "Leases",
    "Limits",
    "Naming",
    "Parents",
    "Progressing",
    "Racing",
    "Receiving",
    "Repeating",
    "Reviving",
    "Scheduling",
    "Standings",
    "Succeeding",
    "Surveying",
    "Sweeping",
    "Text",
    "Turns",
    "Unbegun",
    "Watching",
    "Windows",
    "assert_empty",
]
