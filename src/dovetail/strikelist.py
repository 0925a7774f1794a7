"""Strike lists: the strikes of a docket, as one process knows them.

Every open docket has one. A program that only wants to know what is stricken follows them by itself:

    async with StrikeList(url="sqlite:///emails.db", name="emails") as strikes:
        if strikes.is_stricken({"customer": customer}):
            ...
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from dovetail import checks
from dovetail.clock import SYSTEM_CLOCK, Clock, from_microseconds
from dovetail.codec import Codec, Keyring, codec_named
from dovetail.engine import Engine
from dovetail.engine.registry import engine_for
from dovetail.engine.tracing import show_calls
from dovetail.errors import AlreadyOpen, DovetailError, InvalidArgument, NotOpen
from dovetail.execution import Disposition, Execution
from dovetail.holds import (
    LiteralOperator,
    Operator,
    Restore,
    Rules,
    Strike,
    StrikeInstruction,
    Table,
    arguments_of,
    has_parameter,
    hold_of,
    misfit,
    strike_of,
    words_of,
)
from dovetail.instrumentation import STRIKES_IN_EFFECT
from dovetail.model import EventKind, Hold, HoldKind, Topic
from dovetail.observe.tracing import in_background
from dovetail.tasks import Task, TaskFunction

if TYPE_CHECKING:
    from redis.credentials import CredentialProvider

__all__ = [
    "LiteralOperator",
    "Operator",
    "Restore",
    "Strike",
    "StrikeInstruction",
    "StrikeList",
]

logger = logging.getLogger("dovetail.strikelist")

POLL = timedelta(seconds=10)
"""After this a list reads for itself, should a hint have been lost."""
RECONNECT = 1.0
"""Seconds before a store that could not be reached is tried again."""

Condition = Callable[[Execution[Any]], bool]


def prefix_of(name: str, url: str) -> str:
    """A docket's name, as one puts it before names of one's own. In a cluster, what begins with it is in one slot."""
    return f"{{{name}}}" if "+cluster" in url.partition("://")[0] else name


class StrikeList:
    """The strikes of a docket, followed as they are laid and restored. Without a URL it is this program's alone."""

    def __init__(
        self,
        url: str | None = None,
        name: str = "docket",
        enable_internal_instrumentation: bool = False,
        credential_provider: CredentialProvider | None = None,
        *,
        codec: str | Codec | None = None,
        signing: Keyring | None = None,
        clock: Clock = SYSTEM_CLOCK,
        tasks: Mapping[str, TaskFunction] | None = None,
    ) -> None:
        self.url = url
        self.name = checks.text(name, "name")
        self.enable_internal_instrumentation = enable_internal_instrumentation
        self.credential_provider = credential_provider
        chosen = codec or os.environ.get("DOVETAIL_CODEC") or "json"
        self._codec = codec_named(chosen, signing=signing) if isinstance(chosen, str) else chosen
        self._clock = clock
        self._tasks: Mapping[str, TaskFunction] = {} if tasks is None else tasks
        self._stored: dict[Hold, Strike | None] = {}  # None for one that cannot be read
        self._own: list[Strike] = []  # of `update`: they never reach the store
        self._misfits: set[str] = set()
        self._conditions: list[Condition] = [self._is_forbidden]
        self._engine: Engine | None = None
        self._stack: AsyncExitStack | None = None
        self._monitor_task: asyncio.Task[None] | None = None
        self._strikes_loaded: asyncio.Event | None = None
        self._look = asyncio.Event()
        self._reading = asyncio.Lock()
        self._version: int | None = None
        self._counted = 0
        self.is_clear = False  # all strikes are known, and there are none: what busy callers ask first
        self.task_strikes: dict[str, Table] = {}
        self.parameter_strikes: Table = {}
        self._lay_out()
        if url is not None:
            self._make_engine(url)  # a wrong URL is refused here

    def _make_engine(self, url: str) -> Engine:
        engine = engine_for(
            url, self.name, clock=self._clock, durability="durable", credential_provider=self.credential_provider
        )
        return show_calls(engine, url, self.name) if self.enable_internal_instrumentation else engine

    @property
    def prefix(self) -> str:
        return prefix_of(self.name, self.url or "")

    @property
    def strike_key(self) -> str:
        return f"{self.prefix}:strikes"

    # Following

    async def __aenter__(self) -> Self:
        if self._stack is not None:
            raise AlreadyOpen(f"the strike list of {self.name!r} is open already: it is not reentrant")
        self._stack = AsyncExitStack()
        if self.url is None:
            return self
        try:
            engine = await self._stack.enter_async_context(self._make_engine(self.url))
            await self._stack.enter_async_context(self.following(engine))
        except BaseException:
            stack, self._stack = self._stack, None
            await stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()

    @asynccontextmanager
    async def following(self, engine: Engine) -> AsyncGenerator[None]:
        """Follow the strikes that an open engine keeps. What was known last stays known afterwards."""
        self._engine = engine
        self._strikes_loaded = asyncio.Event()
        self._look, self._reading = asyncio.Event(), asyncio.Lock()
        self._lay_out()
        with in_background(traced=self.enable_internal_instrumentation):
            self._monitor_task = asyncio.create_task(self._follow(engine), name=f"{self.name} - strikes")
        try:
            yield
        finally:
            self._monitor_task.cancel()
            await asyncio.wait([self._monitor_task])
            self._engine = self._monitor_task = self._strikes_loaded = None
            self._count(0)

    async def _follow(self, engine: Engine) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._persistently(self._listen, engine), name=f"{self.name} - strike hints")
            group.create_task(self._persistently(self._keep_up, engine), name=f"{self.name} - strike reader")

    async def _persistently(self, follow: Callable[[Engine], Awaitable[None]], engine: Engine) -> None:
        while True:
            try:
                await follow(engine)
            except DovetailError as error:
                logger.warning("the strikes of %r cannot be followed, trying again: %s", self.name, error)
            except Exception:
                # A follower that has silently ended would let through what was stricken since.
                logger.exception("the strikes of %r cannot be followed, trying again", self.name)
            await asyncio.sleep(RECONNECT)

    async def _listen(self, engine: Engine) -> None:
        async with engine.watch(Topic(EventKind.HOLDS)) as events:
            self._look.set()  # for what came before anyone listened
            async for _ in events:
                self._look.set()

    async def _keep_up(self, engine: Engine) -> None:
        while True:
            self._look.clear()
            await self.refresh()
            # By the host's clock: what is waited for is a hint that was lost on its way.
            await SYSTEM_CLOCK.wait(self._look, POLL)

    def notice(self, version: int) -> None:
        """Read again if this is not the version of the holds that was last noticed: a heartbeat told it."""
        if version != self._version:
            self._version = version
            self._look.set()

    async def refresh(self) -> None:
        """Read the strikes now; an error if the store cannot be asked."""
        # One at a time: an older answer must not come in after a newer one.
        async with self._reading:
            await self._read_strikes()

    async def ensure_loaded(self) -> None:
        """Read the strikes if that was never done."""
        if self._strikes_loaded is None or not self._strikes_loaded.is_set():
            self._opened()
            async with self._reading:
                if not self._is_loaded():
                    await self._read_strikes()

    def _is_loaded(self) -> bool:
        return self._strikes_loaded is not None and self._strikes_loaded.is_set()

    async def wait_for_strikes_loaded(self) -> None:
        """Until the strikes of the store are known; at once if there is no store."""
        if self._strikes_loaded is not None:
            await self._strikes_loaded.wait()

    async def _read_strikes(self) -> None:
        holds = [hold for hold in await self._opened().holds() if hold.kind is HoldKind.STRIKE]
        before = self._stored
        self._stored = {hold: self._stored[hold] if hold in self._stored else self._strike_of(hold) for hold in holds}
        if self._strikes_loaded is not None:
            self._strikes_loaded.set()
        self._lay_out()
        self._tell_changes(before)

    def _tell_changes(self, before: Mapping[Hold, Strike | None]) -> None:
        for hold, strike in self._stored.items():
            if strike is not None and hold not in before:
                why = f": {strike.reason}" if strike.reason else ""
                logger.info("stricken: %s%s", strike.outline(), why, extra={"docket.name": self.name})
        for hold, strike in before.items():
            if strike is not None and hold not in self._stored:
                logger.info("restored: %s", strike.outline(), extra={"docket.name": self.name})

    def _opened(self) -> Engine:
        if self._engine is None:
            raise NotOpen(
                f"{self.name!r} is not open, so that it is not connected to Redis or any other store; use it inside"
                " 'async with'"
            )
        return self._engine

    def _lay_out(self) -> None:
        strikes = self.known()
        self._rules = Rules(strikes, self._tell_misfit)
        self._misfits &= {strike.call_repr() for strike in strikes}
        self.task_strikes, self.parameter_strikes = self._rules.tables()
        self._judge_clearness()
        self._count(len(strikes))

    def _count(self, strikes: int) -> None:
        """Let those who measure know how many strikes are in force here."""
        if strikes != self._counted:
            STRIKES_IN_EFFECT.add(strikes - self._counted, {"docket.name": self.name})
            self._counted = strikes

    def _judge_clearness(self) -> None:
        self.is_clear = self._is_loaded() and not self.known() and len(self._conditions) == 1

    # Asking

    def known(self) -> list[Strike]:
        """The strikes as last read, and those of this list alone."""
        return [strike for strike in self._stored.values() if strike is not None] + self._own

    async def strikes(self) -> list[Strike]:
        """What is in force now, the oldest first."""
        await self.refresh()
        now = self._now()
        return [strike for strike in self.known() if strike.until is None or now < strike.until]

    def is_stricken(self, target: Execution[Any] | Mapping[str, Any]) -> bool:
        """Whether a call, or arguments of any task whatever, must not run."""
        if isinstance(target, Mapping):
            return self._rules.forbid_arguments(target, self._now())
        return any(_is_true(condition, target) for condition in self._conditions)

    def _is_forbidden(self, execution: Execution[Any]) -> bool:
        return self._rules.forbid(
            execution.function_name,
            lambda: arguments_of(execution.function, execution.args, execution.kwargs),
            self._now(),
        )

    async def strikes_out(self, execution: Execution[Any]) -> bool:
        """Whether a call that is about to be scheduled is stricken. It is then marked so, and told of."""
        await self.ensure_loaded()
        if not self.is_stricken(execution):
            return False
        execution.disposition = Disposition.STRUCK
        logger.warning(
            "%s is stricken and was not scheduled", execution.call_repr(),
            extra={"docket.name": self.name, **execution.specific_labels()},
        )  # fmt: skip
        return True

    def add_condition(self, condition: Condition) -> None:
        """Strike, in this process, every call of which the condition is true."""
        self._conditions.insert(0, condition)
        self._judge_clearness()

    def remove_condition(self, condition: Condition) -> None:
        self._conditions.remove(condition)
        self._judge_clearness()

    def _now(self) -> datetime:
        return from_microseconds(self._clock.microseconds())

    def _tell_misfit(self, strike: Strike, argument: Any, error: Exception) -> None:
        """Say once for each strike that it cannot judge what it is shown."""
        if strike.call_repr() in self._misfits:
            return
        self._misfits.add(strike.call_repr())
        logger.warning(
            "Incompatible type for strike condition %s: an argument of type %s does not compare with a %s, and is let"
            " through (%s)",
            strike.outline(), type(argument).__name__, type(strike.value).__name__, type(error).__name__,
        )  # fmt: skip

    # Laying and restoring

    async def strike(
        self,
        function: TaskFunction | str | None = None,
        parameter: str | None = None,
        operator: Operator | LiteralOperator = "==",
        value: Any = None,
        *,
        reason: str | None = None,
        owner: str | None = None,
        until: datetime | None = None,
    ) -> None:
        """Forbid the calls of a task, of all tasks with such an argument, or of a task with such an argument."""
        strike = self.draft(function, parameter, operator, value)
        if reason is not None:
            checks.text(reason, "reason")
        if owner is not None:
            checks.text(owner, "owner")
        if until is not None and checks.moment(until, "until") <= self._now():
            raise InvalidArgument(f"{strike.title()}: until is over already: {until}")
        await self.send_instruction(
            Strike(strike.function, strike.parameter, strike.operator, value, reason, owner, until=until)
        )

    async def restore(
        self,
        function: TaskFunction | str | None = None,
        parameter: str | None = None,
        operator: Operator | LiteralOperator = "==",
        value: Any = None,
    ) -> None:
        """Allow again what a strike of the same words forbade. Where there is none, nothing happens."""
        await self.send_instruction(Restore(*words_of(function, parameter, operator, value)))

    def draft(
        self,
        function: TaskFunction | str | None,
        parameter: str | None,
        operator: Operator | LiteralOperator,
        value: Any,
    ) -> Strike:
        """A strike that makes sense, not laid yet; an error that names the task and the parameter if it makes none."""
        strike = Strike(*words_of(function, parameter, operator, value))
        known = self._tasks.get(function) if isinstance(function, str) else function
        if known is not None and strike.parameter and not has_parameter(known, strike.parameter):
            raise InvalidArgument(
                f"{strike.title()}: the task has no such parameter; it has"
                f" {', '.join(Task.of(known).signature.parameters) or 'none'}"
            )
        # Pickled arguments may be objects that compare with anything; then only the arguments can tell.
        is_any = self._codec.name == "pickle" and strike.operator is not Operator.BETWEEN
        if not is_any and (problem := misfit(strike.operator, value)):
            raise InvalidArgument(f"{strike.title()}: {problem}")
        return strike

    async def send_instruction(self, instruction: StrikeInstruction) -> None:
        """Write a strike or a restore to the store, where all who follow it see it."""
        engine = self._opened()
        hold = hold_of(instruction, self._codec)
        await self.refresh()
        # Equal values may have been written as other bytes, by another process or with an older key.
        same = [held for held, strike in self._stored.items() if strike is not None and strike.is_same_as(instruction)]
        if isinstance(instruction, Strike):
            await engine.hold([hold.but(value=same[0].value) if same else hold])
        else:
            await engine.lift([hold, *same])
        await self.refresh()

    def update(self, instruction: StrikeInstruction) -> None:
        """Note a strike or a restore for this list alone; nothing reaches the store."""
        self._own = [strike for strike in self._own if not strike.is_same_as(instruction)]
        if isinstance(instruction, Strike):
            self._own.append(instruction)
        self._lay_out()

    def _strike_of(self, hold: Hold) -> Strike | None:
        try:
            return strike_of(hold, self._codec)
        except DovetailError as error:
            logger.error(
                "the strike of task %r, parameter %r cannot be read here, and is not in force in this process: %s",
                hold.task, hold.parameter, error,
            )  # fmt: skip
            return None


def _is_true(condition: Condition, execution: Execution[Any]) -> bool:
    try:
        return condition(execution)
    except Exception:  # a condition is code of the caller's own: what it cannot judge is let through
        logger.exception("a strike condition could not judge %s", execution.call_repr())
        return False
