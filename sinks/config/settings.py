"""Makes a constructor's arguments from Spark settings, which are texts, by its declared options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from epochal.sinks.config.declaring import REQUIRED, Declaration, declarations
from epochal.sinks.config.options import Faults, nearest
from epochal.sinks.config.texts import ListText
from epochal.txn.errors import OptionError


class Settings:
    """The settings of one object that is made of declared options.

    A class of options is a group: its options are set as ``<group>.<option>``, and as ``<option>`` too if it is `flat`.
    """

    def __init__(self, kind: Any, where: str, faults: Faults) -> None:
        self._where = where  # what stands before each name in the error
        self._faults = faults
        self._options = {name: one for name, one in declarations(kind).items() if one.option.setting}
        self._slots = _slots(self._options)

    @property
    def names(self) -> list[str]:
        """The names of all settings, without the keys of dictionaries."""
        return list(self._slots)

    def declared(self, key: str) -> Declaration | None:
        """The option that a setting belongs to; None if there is none."""
        head, _, tail = key.partition(".")
        if tail and head in self._options and self._options[head].is_mapping:
            return self._options[head]
        return self._slots[key][1] if key in self._slots else None

    def arguments(self, given: Mapping[str, str], noun: str) -> dict[str, Any] | None:
        """The arguments that the texts stand for; None if something is wrong, which is noted."""
        values: dict[tuple[str, str], Any] = {}
        spelled: dict[tuple[str, str], str] = {}
        nested: dict[str, dict[str, str]] = {}
        wrong: set[tuple[str, str]] = set()
        good = True
        for key, text in given.items():
            head, _, tail = key.partition(".")
            if tail and head in self._options and self._options[head].is_mapping:
                if isinstance(text, ListText):
                    good = self._fault(key, ": must be a text, in quotes")
                nested.setdefault(head, {})[tail] = text
            elif key not in self._slots:
                good = self._fault(key, f": no option of {noun}{nearest(key, self._slots)}")
            else:
                slot, one = self._slots[key]
                try:
                    value = one.parsed(text)
                except ValueError as error:
                    wrong.add(slot)
                    reason = "; ".join(error.faults) if isinstance(error, OptionError) else error
                    good = self._fault(key, f"{'' if one.option.secret else f'={text!r}'}: {reason}")
                    continue
                if slot in values and values[slot] != value:
                    good = self._fault(key, f": differs from {self._where}{spelled[slot]}; set one of them")
                values[slot], spelled[slot] = value, key
        for name, one in self._options.items():
            if one.default is REQUIRED and ("", name) not in {*values, *wrong}:
                good = self._fault(name, ": missing")
        if good:
            return self._built(values, spelled, nested)
        self._check_each(values, spelled)  # the constructor, which checks them otherwise, is not called
        return None

    def _check_each(self, values: Mapping[tuple[str, str], Any], spelled: Mapping[tuple[str, str], str]) -> None:
        for slot, value in values.items():
            key, faults = spelled[slot], Faults("")
            _, one = self._slots[key]
            one.checked(value, faults)
            for fault in faults.found:
                self._fault(key, fault.removeprefix(one.name))

    def _built(
        self, values: Mapping[tuple[str, str], Any], spelled: Mapping[tuple[str, str], str], nested: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """The plain values, the dictionaries and the groups."""
        found: dict[str, Any] = {name: value for (group, name), value in values.items() if not group} | dict(nested)
        good = True
        for group in dict.fromkeys(group for group, _ in values if group):
            own = {name: value for (of, name), value in values.items() if of == group}
            if group in found:
                good = self._fault(group, f" and {group}.{next(iter(own))} are two kinds of {group}: set one of them")
                continue
            try:
                found[group] = self._options[group].group(**own)
            except OptionError as error:
                good = False
                for fault in error.faults:
                    name = _first_word(fault)
                    known = spelled.get((group, name), f"{group}.{name}")
                    of_option = name in declarations(self._options[group].group)
                    self._fault(known if of_option else group, fault[len(name) :] if of_option else f": {fault}")
        return found if good else None

    def _fault(self, key: str, fault: str) -> bool:
        self._faults.add(f"{self._where}{key}{fault}")
        return False


def _slots(options: Mapping[str, Declaration]) -> dict[str, tuple[tuple[str, str], Declaration]]:
    """For each setting the group that it belongs to, if any, and its option."""
    found = {name: (("", name), one) for name, one in options.items() if one.is_plain}
    for group, one in options.items():
        for name, inner in declarations(one.group).items() if one.group is not None else ():
            found[f"{group}.{name}"] = ((group, name), inner)
            if one.option.flat:
                found[name] = ((group, name), inner)
    return found


def _first_word(fault: str) -> str:
    found = re.match(r"\w+", fault)
    return found[0] if found else ""
