"""What a user of the server's own (ACL) has to be allowed."""

from __future__ import annotations

from redis import exceptions as driver

from dovetail.engine.finding import ok, problem, some
from dovetail.engines.redis.branch import Branch
from dovetail.model import Finding

COMMANDS = (
    "DEL KEY", "EXISTS KEY", "GET KEY", "HDEL KEY f", "HEXISTS KEY f", "HGET KEY f", "HGETALL KEY", "HMGET KEY f",
    "HSCAN KEY 0", "HSET KEY f v", "LRANGE KEY 0 0", "LTRIM KEY 0 0", "PERSIST KEY", "PEXPIRE KEY 1", "PEXPIREAT KEY 1",
    "PTTL KEY", "PUBLISH KEY -", "PUBSUB NUMSUB KEY", "RPUSH KEY v", "SADD KEY v", "SCARD KEY", "SET KEY v",
    "SISMEMBER KEY v", "SMEMBERS KEY", "SREM KEY v", "SUBSCRIBE KEY", "TIME", "ZADD KEY 1 v", "ZCARD KEY",
    "ZCOUNT KEY 0 1", "ZMSCORE KEY v", "ZRANGE KEY 0 0", "ZRANGEBYLEX KEY - +", "ZRANGEBYSCORE KEY 0 1",
    "ZRANK KEY v", "ZREM KEY v", "ZREMRANGEBYRANK KEY 0 0", "ZREVRANGE KEY 0 0", "ZREVRANGEBYLEX KEY + -",
    "ZREVRANGEBYSCORE KEY 1 0", "ZSCORE KEY v",
)  # fmt: skip
"""What the scripts call, and what waits for news: KEY stands for a key, or a channel, of the docket."""


async def rights(branch: Branch, root: str) -> Finding:
    """Whether this user may do all of it."""
    # The name of the key does not exist: no other ends with its root and a dash.
    commands = [[f"{root}-" if word == "KEY" else word for word in command.split()] for command in COMMANDS]
    denied: list[str] = await branch.ask("rights", commands)
    user = await _user(branch)
    if not denied:
        return ok("redis.rights", f"{user} may do all that a worker does")
    start = root.partition("}")[0].partition(":")[0] + ":"  # of the keys of every docket, behind the same prefix
    return problem(
        "redis.rights",
        f"{user} may not run {some([name.lower() for name in denied])} on the keys and channels of the docket",
        f"allow it all commands there: ACL SETUSER {user} +@all ~{start}* &{start}*",
    )


async def _user(branch: Branch) -> str:
    try:
        name: bytes = await branch.lane.command("ACL", "WHOAMI")
    except driver.ResponseError:
        return "this user"
    return name.decode(errors="replace")
