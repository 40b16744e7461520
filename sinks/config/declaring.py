"""An option is declared once: the constructor, its checks, the Spark setting, the docs and the journal follow from it.

Options are the parameters of a constructor, most often that of a frozen dataclass. `Option` in a parameter's annotation
says what the type does not::

    @declared
    @dataclass(frozen=True, eq=False, repr=False)
    class QueueOptions(SinkOptions):
        kind: ClassVar[str] = "queue"

        url: Annotated[str, Option("where the queue is", journal="target")]
        _: KW_ONLY
        name: SinkName = "queue"
        ack: Annotated[Literal["one", "all"], Option("how many brokers have to answer")] = "one"

    class QueueSink(QueueOptions):
        ...

``QueueSink("queue://orders", ack="all")`` is checked when it is made, with all faults in one `OptionError`. It can be
built from Spark settings (`settings`) and from a journal (`SinkOptions.from_description`). `tables` prints its options
for the docs.

==============================  ===========================  ==================================
type                            right values                 as a Spark setting
==============================  ===========================  ==================================
``Literal["one", "all"]``       one of the words             the word
``bool``                        True or False                ``true``, ``false``
``int``                         a whole number above 0       the number
``str``                         a text, not empty            the text
``Sequence[str]``               different column names       with commas between them
``Mapping[str, str]``           a dictionary of texts        ``<option>.<key>``
another class of options        an object of it              ``<option>.<its option>``
==============================  ===========================  ==================================

``| None`` allows None too. `check` and `parse` are for the others.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from epochal.sinks.config import checks
from epochal.sinks.config.checks import Check
from epochal.sinks.config.options import Faults, nearest
from epochal.sinks.config.texts import ListText, NumberText, number_of, parse_bool, parse_int, parse_names
from epochal.txn.errors import OptionError
from epochal.txn.model import Json
from epochal.txn.participant import Abilities

T = TypeVar("T")
Init = TypeVar("Init", bound=Callable[..., None])
REQUIRED: Any = inspect.Parameter.empty
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")  # in Markdown


@dataclass(frozen=True, slots=True)
class Option:
    """What an option declares besides its name, its type and its default."""

    doc: str  # for the table in the docs, in Markdown
    expects: str = ""  # what a right value is, for errors
    check: Check | None = None  # None: by the type
    parse: Callable[[str], object] | None = None  # from a Spark setting; None: by the type
    shown_type: str = ""  # in the docs, where the type itself says too little
    shown_default: str = ""  # in the docs, where the default is decided elsewhere
    setting: bool = True  # whether Spark settings can give it
    flat: bool = False  # a class of options whose own options are settings without its name too
    journal: bool | str = False  # described in the journal, by its name or by this one
    restore: Callable[[str], object] | None = None  # from what the journal has
    secret: bool | Literal["login"] = False  # never in errors; of these a settings file may hold a login


@dataclass(frozen=True, slots=True)
class Declaration:
    """An option with everything that follows from its declaration."""

    name: str
    types: tuple[Any, ...]  # the members of a union, without None
    optional: bool
    default: Any
    option: Option

    @property
    def words(self) -> tuple[str, ...]:
        """The words to choose from."""
        return tuple(word for one in self.types if get_origin(one) is Literal for word in get_args(one))

    @property
    def group(self) -> Any:
        """The class of options that a value of this one is; None if it is a plain value."""
        return next((one for one in self.types if isinstance(one, type) and issubclass(one, CheckedOptions)), None)

    @property
    def is_mapping(self) -> bool:
        return any(get_origin(one) is Mapping for one in self.types)

    @property
    def is_plain(self) -> bool:
        """Whether one text can be its value."""
        return not self.is_mapping and self.types != (self.group,)

    @property
    def key(self) -> str:
        """Its name in the journal; empty if it is not described there."""
        journal = self.option.journal
        return journal if isinstance(journal, str) else self.name if journal else ""

    def checked(self, value: Any, faults: Faults) -> Any:
        """The value in its final form; what is wrong with it is noted."""
        if value is None and self.optional:
            return None
        if self.group is not None and isinstance(value, self.group):
            return value
        return (self.option.check or self._check_by_type())(faults, self.name, value)

    def _check_by_type(self) -> Check:
        if self.words:
            return self._check_word
        if self.group is not None:
            return self._check_group
        if self.is_mapping:
            return checks.texts(self.option.expects or "a dictionary of texts")
        if str in self.types:
            return checks.text(self.option.expects or "a text, not empty", secret=bool(self.option.secret))
        if bool in self.types:
            return checks.flag
        if int in self.types:
            return checks.above_zero
        if self._is_names:
            return checks.columns
        raise TypeError(f"{self.name}: {self.types} has no usual check; declare it with check=")

    def _check_word(self, faults: Faults, option: str, value: Any) -> Any:
        group = "" if self.group is None else self.group.__name__
        if group and isinstance(value, str) and nearest(value.lower(), [group.lower()]):
            first = next(iter(declarations(self.group)), "")
            faults.add(
                f"{option}={value!r}: give {a(group)}, {group}({first}=...), not its name; as a Spark setting, "
                f"{option}.{first}"
            )
        elif group and value not in self.words:
            words = ", ".join(map(repr, self.words))
            faults.add(f"{option}={value!r}: must be one of {words}, or {a(group)}{nearest(str(value), self.words)}")
        else:
            faults.one_of(option, value, self.words)
        return value

    def _check_group(self, faults: Faults, option: str, value: Any) -> Any:
        expected = self.option.expects or f"{a(self.group.__name__)}"
        faults.add(f"{option}: {expected}, not {a(type(value).__name__)}")
        return value

    @property
    def _is_names(self) -> bool:
        return any(get_origin(one) is Sequence for one in self.types)

    def parsed(self, text: str) -> Any:
        """The value of a Spark setting's text; ValueError if it has none."""
        if self.option.parse is not None:
            return self.option.parse(text)
        if self.words or str in self.types:
            if isinstance(text, NumberText) and {int, float} & {*self.types}:
                return number_of(text)
            if isinstance(text, NumberText | ListText):
                raise ValueError("must be a text, in quotes")
            return text
        if bool in self.types:
            return parse_bool(text)
        if int in self.types:
            return parse_int(text)
        if self._is_names:
            return parse_names(text)
        raise TypeError(f"{self.name}: {self.types} has no usual text; declare it with parse=, or setting=False")


def declarations(owner: Callable[..., Any]) -> Mapping[str, Declaration]:
    """The options of a class, or of its constructor."""
    return _declarations(owner.__init__ if isinstance(owner, type) else owner)  # type: ignore[misc]  # not called


@cache
def _declarations(init: Callable[..., Any]) -> Mapping[str, Declaration]:
    hints = get_type_hints(init, include_extras=True)
    found = {}
    for parameter in inspect.signature(init).parameters.values():
        hint = hints.get(parameter.name)
        option = next((part for part in get_args(hint)[1:] if isinstance(part, Option)), None)
        if get_origin(hint) is Annotated and option is not None:
            found[parameter.name] = _declaration(parameter, get_args(hint)[0], option)
    return types.MappingProxyType(found)


def _declaration(parameter: inspect.Parameter, kind: Any, option: Option) -> Declaration:
    members = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    plain = tuple(one for one in members if one is not type(None))
    return Declaration(parameter.name, plain, len(plain) < len(members), parameter.default, option)


def declared_options(init: Init) -> Init:
    """For a constructor: unknown keyword arguments raise an OptionError, together with all its other faults.

    Type checkers see the constructor unchanged; `help` shows its parameters with plain types, and what each is for.
    """
    signature = inspect.signature(init)
    names = [p.name for p in signature.parameters.values() if p.kind is not p.VAR_POSITIONAL][1:]

    @wraps(init)
    def checked(self: object, *given: Any, **options: Any) -> None:
        unknown = [name for name in options if name not in names]
        if not unknown:
            init(self, *given, **options)
            return
        faults = [f"{name}: {_whereabouts(name, names, declarations(checked))}" for name in unknown]
        what = type(self).__name__
        known = {name: value for name, value in options.items() if name in names}
        if missing := _missing(signature, given, known):
            others = Faults(what)
            for name, value in known.items():
                if name in declarations(checked):
                    declarations(checked)[name].checked(value, others)
            raise OptionError(what, [*faults, *(f"{name}: missing" for name in missing), *others.found])
        try:
            init(self, *given, **known)
        except OptionError as error:
            what, faults = error.what, [*faults, *error.faults]
        raise OptionError(what, faults)

    hints = get_type_hints(init)
    shown = [p.replace(annotation=hints.get(p.name, p.annotation)) for p in signature.parameters.values()]
    checked.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]  # where `help` looks
    docs = {name: _LINK.sub(r"\1", one.option.doc) for name, one in declarations(checked).items()}
    lines = "".join(f"\n  {name}: {doc}" for name, doc in docs.items())
    checked.__doc__ = f"Options:{lines}" if lines else init.__doc__
    return cast("Init", checked)


def _missing(signature: inspect.Signature, given: Sequence[Any], options: Mapping[str, Any]) -> list[str]:
    """The arguments that a constructor needs and did not get."""
    parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_POSITIONAL][1:]
    by_place = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY][: len(given)]
    return [p.name for p in parameters if p.default is REQUIRED and p.name not in (*by_place, *options)]


def _whereabouts(name: str, names: Sequence[str], options: Mapping[str, Declaration]) -> str:
    """Where an option is that the constructor itself does not have."""
    for one in options.values():
        if one.group is not None and name in declarations(one.group):
            return f"now in {one.name}={one.group.__name__}({name}=...)"
    return f"no such option{nearest(name, names)}"


def declared(kind: type[T]) -> type[T]:
    """For a dataclass of options: what `declared_options` is for a constructor."""
    kind.__init__ = declared_options(kind.__init__)  # type: ignore[method-assign]  # of this very class
    return kind


class CheckedOptions:
    """The base of a dataclass of options: they are checked when it is made, and all faults come in one error."""

    def __post_init__(self) -> None:
        faults = Faults(self._what())
        for one in declarations(type(self)).values():
            # The dataclass is frozen; only here an option gets its final form (a tuple for a list).
            object.__setattr__(self, one.name, one.checked(getattr(self, one.name), faults))
        self.check_together(faults)
        faults.done()

    def check_together(self, faults: Faults) -> None:
        """Note what is wrong with options in combination. Those that are wrong by themselves are noted already."""

    def _what(self) -> str:
        first = next(iter(inspect.signature(type(self)).parameters.values()), None)
        target = "" if first is None or first.kind is first.KEYWORD_ONLY else f"({getattr(self, first.name)!r})"
        return f"{type(self).__name__}{target}"


SinkName = Annotated[
    str,
    Option("the sink's name in the writer, journal and log", check=checks.sink_name, setting=False, journal=True),
]


class SinkOptions(CheckedOptions, Abilities):
    """The base of a sink's options, which is the base of the sink: they are its attributes, and make its constructor.

    It has none of the `Abilities`; a sink overrides those that it has. Names of options are the same everywhere: as a
    keyword, as a Spark setting and, where a declaration says so, in the journal.
    """

    kind: ClassVar[str]  # what Spark settings and journals call this kind of sink

    def __getstate__(self) -> dict[str, Any]:
        """The options alone: what a sink has resolved or connected to does not hold in another process."""
        return {name: getattr(self, name) for name in declarations(type(self))}

    def __setstate__(self, options: Mapping[str, Any]) -> None:
        for name, value in options.items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    def describe(self, rows: Any = None) -> dict[str, Json]:  # noqa: ARG002  # for sinks that record columns
        """The options that the journal records. Never a secret."""
        return {"type": self.kind, **described(self)}

    @classmethod
    def from_description(cls, description: Mapping[str, Json]) -> Self:
        """A sink that can commit and abort what a journal describes.

        Unknown keys are ignored and missing ones have their default: another version may have written the journal.
        """
        return cls(**cls.arguments_of(description))

    @classmethod
    def arguments_of(cls, description: Mapping[str, Json]) -> dict[str, Any]:
        """The constructor's arguments that a description stands for."""
        missing = [
            f"{one.key}: missing"
            for one in declarations(cls).values()
            if one.key and one.default is REQUIRED and one.key not in description
        ]
        if missing:
            raise OptionError(f"the journal's description of a {cls.kind} sink", missing)
        return restored(cls, description)


def secrets_in(options: object) -> list[str]:
    """The names of the secret options that are set, those of groups too."""
    found = []
    for one in declarations(type(options)).values():
        value = getattr(options, one.name)
        if one.option.secret and value is not None:
            found.append(one.name)
        elif one.group is not None and isinstance(value, one.group):
            found += secrets_in(value)
    return found


def described(options: object) -> dict[str, Json]:
    """The options that a journal records, by their keys; those of a flat group among them."""
    found: dict[str, Json] = {}
    for one in declarations(type(options)).values():
        value = getattr(options, one.name)
        if one.key and one.option.flat:
            found.update(described(value))
        elif one.key:
            found[one.key] = _json(value)
    return found


def restored(kind: type, description: Mapping[str, Json]) -> dict[str, Any]:
    """The arguments that a description has for a class of options."""
    found: dict[str, Any] = {}
    for one in declarations(kind).values():
        if one.key and one.option.flat:
            found[one.name] = one.group(**restored(one.group, description))
        elif one.key in description:
            value: Any = description[one.key]
            restore = one.option.restore if isinstance(value, str) else None
            found[one.name] = restore(value) if restore is not None else value
    return found


def a(noun: str) -> str:
    """A noun with its article.

    >>> a("Rolling"), a("int")
    ('a Rolling', 'an int')
    """
    return f"{'an' if noun[0] in 'aeiouAEIOU' else 'a'} {noun}"


def _json(value: Any) -> Json:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else cast("Json", value)
