"""Hooks: who can be one, when they are called, and what becomes of their failures."""

from __future__ import annotations

import functools
import logging
import sys
import threading

import pytest

from trackway.errors import ConfigError
from trackway.events import EventHook, EventLogger, Hooks


@pytest.fixture
def quiet(caplog):
    """What is said on the library's logger, which is expected here."""
    caplog.set_level(logging.WARNING, "trackway")
    return caplog


@pytest.fixture
def events():
    """A logger that prints nothing."""
    with EventLogger(console=False) as logger:
        yield logger


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of the user's, `my_hooks`, on the path."""
    (tmp_path / "my_hooks.py").write_text(
        "seen = []\n"
        "def collect(event, payload):\n    seen.append((event, payload))\n"
        "class Kept:\n"
        "    def on_event(self, event, payload):\n        seen.append((event, 'object'))\n"
        "class Picky:\n"
        "    def __init__(self, path):\n        pass\n"
        "    def on_event(self, event, payload):\n        pass\n"
        "class Space:\n    collect = staticmethod(collect)\n"
        "number = 3\n"
    )
    (tmp_path / "broken_hooks.py").write_text("import nothing_of_that_name\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "my_hooks"
    sys.modules.pop("my_hooks", None)


class Recorder:
    """An object that is told of events."""

    def __init__(self):
        self.seen, self.closed = [], 0

    def on_event(self, event, payload):
        """Note it."""
        self.seen.append((event, payload))

    def close(self):
        """Count."""
        self.closed += 1


def test_a_custom_callable_hook_gets_event_and_payload():
    """A function is called with the name and a dict, in which the step is `step`."""
    seen = []

    def collect(event: str, payload: dict) -> None:
        seen.append((event, dict(payload)))

    events = EventLogger(console=False)
    events.hooks.append(collect)
    events.emit("train_step", {"loss": 0.5}, step=1)
    events.emit("train_end", {"steps": 1})
    events.emit("odd", {"step": "mine"}, step=4)
    assert seen == [
        ("train_step", {"step": 1, "loss": 0.5}),
        ("train_end", {"steps": 1}),
        ("odd", {"step": "mine"}),
    ]


def test_on_event_is_preferred_when_present():
    """An object with `on_event` is called by it also if it can be called itself; without, it is called itself."""

    class Both(Recorder):
        def __call__(self, event, payload):
            raise AssertionError("not this way")

    hook, seen = Both(), []
    plain = functools.partial(lambda where, event, _: where.append(event), seen)
    with EventLogger(console=False, hooks=[hook, plain]) as events:
        events.emit("a")
    assert hook.seen == [("a", {})]
    assert seen == ["a"]
    assert isinstance(hook, EventHook)


def test_a_hook_exception_is_caught_counted_and_said_once(quiet):
    """A failing hook is named, counted for itself, said once, and neither stops training nor the other hooks."""
    last = Recorder()

    def fails(event, payload):
        raise ValueError("boom")

    class Fails:
        def on_event(self, event, payload):
            raise OSError("no")

    with EventLogger(console=False, hooks=[fails, Fails(), Fails(), last]) as events:
        for step in range(3):
            events.emit("a", step=step)
    assert len(last.seen) == 3
    failed = {name.rpartition(".")[2]: number for name, number in events.report().failed.items()}
    assert sorted(failed.values()) == [3, 3, 3]
    assert {"Fails", "Fails#2"} <= failed.keys()
    assert sum("fails failed" in message and "ValueError: boom" in message for message in quiet.messages) == 1
    assert len(quiet.messages) == 3
    assert events.report().delivered == 3


def test_hooks_may_be_changed_at_any_time(events):
    """What is appended, inserted, replaced or removed is what the next event finds."""
    first, second, third = Recorder(), Recorder(), Recorder()
    events.hooks.append(first)
    events.hooks.insert(0, second)
    events.emit("a")
    events.hooks[1] = third
    events.hooks.remove(second)
    events.emit("b")
    events.hooks = [first]
    events.emit("c")
    events.hooks[0:1] = [second]
    events.emit("d")
    events.hooks.clear()
    events.emit("e")
    assert [[event for event, _ in hook.seen] for hook in (first, second, third)] == [["a", "c"], ["a", "d"], ["b"]]


def test_the_list_of_hooks_is_one(events):
    """It compares, counts and shows its hooks as a list does."""
    recorder = Recorder()
    events.hooks += [recorder, print]
    assert events.hooks == [recorder, print]
    assert (len(events.hooks), events.hooks[1], print in events.hooks) == (2, print, True)
    assert repr(events.hooks) == "Hooks(Recorder, print)"
    del events.hooks[0]
    assert events.hooks.pop() is print
    with pytest.raises(ValueError, match="not in list"):
        events.hooks.remove(recorder)
    assert not events.hooks


def test_a_hook_may_change_the_hooks(events):
    """A hook that removes itself, or adds one, does so from the next event on; the event under way is not touched."""
    late = Recorder()

    def once(event, payload):
        events.hooks.remove(once)
        events.hooks.append(late)

    after = Recorder()
    events.hooks.extend([once, after])
    events.emit("a")
    events.emit("b")
    assert [event for event, _ in after.seen] == ["a", "b"]
    assert [event for event, _ in late.seen] == ["b"]


def test_a_hook_may_emit_and_one_that_never_stops_is_stopped(events, quiet):
    """Events that hooks emit are events like others; those without an end are dropped and counted."""
    seen = []

    def answer(event, payload):
        seen.append(event)
        if event == "ask":
            events.emit("answer")

    events.hooks.append(answer)
    events.emit("ask")
    assert seen == ["ask", "answer"]

    def endless(event, payload):
        events.emit("again")

    events.hooks[:] = [endless, endless]
    events.emit("start")
    assert sum(events.report().dropped.values()) > 0
    assert len(quiet.messages) == 1
    events.hooks[:] = [answer]
    events.emit("after")
    assert seen[-1] == "after"


def test_hooks_are_called_concurrently_and_outside_of_any_lock(events):
    """Two threads that emit are in one hook at the same time, and a third may change the list meanwhile."""
    both = threading.Barrier(3, timeout=20)
    events.hooks.append(lambda *_: both.wait())
    threads = [threading.Thread(target=events.emit, args=("a",)) for _ in range(2)]
    for thread in threads:
        thread.start()
    events.hooks.append(Recorder())
    both.wait()
    for thread in threads:
        thread.join(20)
    assert events.report().failed == {}


def test_hooks_serial_calls_one_at_a_time():
    """With `hooks_serial` no two threads are in a hook, and a hook that emits does not wait for itself."""
    inside, most, seen = [], [], []

    def hook(event, payload):
        inside.append(event)
        most.append(len(inside))
        if event == "a":
            threading.Event().wait(0.002)
            inside.remove(event)
            events.emit("nested")
        else:
            inside.remove(event)
        seen.append(event)

    events = EventLogger(console=False, hooks=[hook], hooks_serial=True)
    threads = [threading.Thread(target=lambda: [events.emit("a") for _ in range(5)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert max(most) == 1
    assert (seen.count("a"), seen.count("nested")) == (20, 20)


def test_hooks_that_have_close_are_closed_once(quiet):
    """The logger closes its hooks at its end; one that cannot be closed keeps no other from it."""

    class Stuck(Recorder):
        def close(self):
            raise OSError("stuck")

    hook = Recorder()
    events = EventLogger(console=False, hooks=[Stuck(), hook, lambda *_: None])
    events.close()
    events.close()
    assert hook.closed == 1
    assert list(events.report().failed.values()) == [1]


def test_an_interrupt_in_a_hook_is_not_swallowed(events):
    """What is no failure of the hook, such as Ctrl-C, ends the program as elsewhere."""

    def interrupted(event, payload):
        raise KeyboardInterrupt

    events.hooks.append(interrupted)
    with pytest.raises(KeyboardInterrupt):
        events.emit("a")


def test_an_import_path_names_a_hook(module, events):
    """`package.module:name` is the function, the instance or, for a class with `on_event`, an object of it."""
    events.hooks.extend([f"{module}:collect", f"{module}:Kept", f"{module}:Space.collect"])
    events.emit("a", {"x": 1})
    assert sys.modules[module].seen == [("a", {"x": 1}), ("a", "object"), ("a", {"x": 1})]


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("my_hooks:colect", "my_hooks has no 'colect'.*did you mean collect"),
        ("my_hooks:Space.colect", "my_hooks.Space has no 'colect'.*did you mean collect"),
        ("no_such_hooks:collect", "cannot be imported: ModuleNotFoundError"),
        ("broken_hooks:collect", "nothing_of_that_name"),
        ("my_hooks.collect", "'package.module:name'.*did you mean my_hooks:collect"),
        ("my_hooks", "'package.module:name'"),
        ("", "'package.module:name'"),
        ("my_hooks:a b", "'package.module:name'"),
        ("my_hooks:number", "got 3"),
        ("my_hooks:Picky", "without arguments.*path"),
    ],
)
def test_a_wrong_import_path_is_explained(module, path, told):
    """The error says which path, what is wrong, and what was probably meant."""
    with pytest.raises(ConfigError, match=told):
        EventLogger(console=False, hooks=[path])


async def coroutine(event, payload):
    """Nobody would await it."""


@pytest.mark.parametrize(
    ("hook", "told"),
    [(3, "got 3"), (None, "got null"), (Recorder, r"give Recorder\(\)"), (coroutine, "nobody would await")],
)
def test_what_cannot_be_called_is_no_hook(hook, told):
    """A value that is no hook is refused where it is given, not at the first event."""
    with pytest.raises(ConfigError, match=told):
        EventLogger(console=False, hooks=[hook])
    with pytest.raises(ConfigError, match=told):
        Hooks().append(hook)
    with pytest.raises(ConfigError, match=told):
        Hooks([print])[0] = hook
