"""Typed text may be a secret: it is in no list of arguments, which every user can read, and in no error."""

import base64
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("adbutils", reason="adb comes in adbutils' wheel")

from tests.helpers.fake_phone import phone_on
from uivlm.actions.gesture import TypeText
from uivlm.devices.adb.server import Adb
from uivlm.devices.device import DeviceError


class ArgvRecorder:
    """A program in place of adb that keeps its arguments and then becomes adb."""

    def __init__(self, adb: Adb, folder: Path) -> None:
        self.log = folder / "argv"
        program = folder / "adb"
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {self.log}\nexec {adb.executable} "$@"\n')
        program.chmod(0o700)
        self.adb = replace(adb, executable=str(program))


@pytest.mark.parametrize("text", ["hunter2-XyZZy-9", "pässwört-9 日本", "~. first line\nhunter2 'second' %s"])
def test_typed_text_is_in_no_list_of_arguments(adb, tmp_path, text):
    recorder = ArgvRecorder(adb, tmp_path)
    with phone_on(recorder.adb) as (device, phone, _):
        device.perform(TypeText(text))
        assert phone.text == text
        phone.error = DeviceError(f"the field refuses {text}")
        with pytest.raises(DeviceError) as caught:
            device.perform(TypeText(text))
    argv = recorder.log.read_text()
    assert argv.count("shell\n") >= 2
    for word in (*text.split(), base64.b64encode(text.encode()).decode()[:8]):
        assert word not in argv
        assert word not in str(caught.value)
