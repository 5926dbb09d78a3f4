"""What a new snap may say, field by field: no server and no database are needed to know."""

import copy
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from snapapp.api.http.strict_json import decoded
from snapapp.api.product import lenient
from snapapp.api.product.snap_schema import EXAMPLE, Correction, SnapRequest
from snapapp.domain.rules.texts import composed

LEAST: dict[str, Any] = {
    "videoUrl": "https://videos.example/a.mp4",
    "nickname": "ana",
    "email": "ana@fazenda.example",
    "dataFilmagem": "2026-03-01T08:15:00-03:00",
    "startSeconds": 0,
    "durationSeconds": 1,
    "subject": {},
}


def read(**changes: Any) -> SnapRequest:
    """The least that a snap needs, changed; `...` leaves a field out."""
    given = {name: value for name, value in (LEAST | changes).items() if value is not ...}
    return SnapRequest.model_validate(given)


def refused(**changes: Any) -> list[str]:
    """Where it is refused; of the whole request: what is said."""
    with pytest.raises(ValidationError) as caught:
        read(**changes)
    places = [".".join(str(part) for part in mistake["loc"]) for mistake in caught.value.errors()]
    return [place or mistake["msg"] for place, mistake in zip(places, caught.value.errors(), strict=True)]


# --- what is left out -------------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_old_service() -> None:
    """S27, S28, S30."""
    snap = read(overlay={"enabled": True})
    assert (snap.fps, snap.max_width, snap.format, snap.quality_used) == (5, 1280, "jpg", 3)
    assert snap.clip_seconds == snap.duration_seconds == 1.0
    assert snap.overlay_drawn == {
        "mode": "SUBJECT",
        "position": "TOP_RIGHT",
        "font_size": 18,
        "box_color": "black@0.7",
        "font_color": "white",
        "margin": 20,
        "padding": 10,
    }
    assert snap.subject is not None
    assert (snap.subject.id, snap.subject.attributes) == (None, [])


OPTIONAL = [
    "videoId",
    "subjectTemplateId",
    "startFrame",
    "snapshotDurationSeconds",
    "fps",
    "maxWidth",
    "format",
    "quality",
    "overlay",
    "isDraft",
]


def test_a_null_is_as_good_as_nothing() -> None:
    assert read(**dict.fromkeys(OPTIONAL)) == read()
    assert read(overlay={"enabled": True, "mode": None, "fontSize": None}) == read(overlay={"enabled": True})
    assert read(subject={"id": None, "attributes": None}) == read()


@pytest.mark.parametrize("name", ["nickname", "email", "dataFilmagem", "durationSeconds", "subject"])
@pytest.mark.parametrize("nothing", [None, ...])
def test_what_is_required_is_missing_whether_null_or_left_out(name: str, nothing: Any) -> None:
    """S27."""
    assert refused(**{name: nothing}) == [name]


def test_what_nobody_knows_is_ignored() -> None:
    changed = read(foo=1, subject={"bar": [1]}, overlay={"baz": None})
    assert changed.overlay_drawn is None
    assert changed == read(overlay={})


def test_a_draft_may_be_described_later() -> None:
    assert read(subject=..., isDraft=True).subject is None


# --- one of two -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nothing", [None, ...])
def test_a_video_and_a_moment_are_each_named_one_way_or_the_other(nothing: Any) -> None:
    """S27."""
    assert refused(videoUrl=nothing) == ["Provide at least one of videoId or videoUrl"]
    assert refused(startSeconds=nothing) == ["Provide at least one of startSeconds or startFrame"]
    assert read(startSeconds=nothing, startFrame=0).start_frame == 0
    assert read(videoUrl=nothing, videoId="b7f0a3e2-1111-4222-8333-444455556666").video_url is None


def test_both_may_be_given() -> None:
    """S27: the frame wins, which is for the domain to see."""
    both = read(startFrame=7, videoId="b7f0a3e2-1111-4222-8333-444455556666")
    assert (both.start_seconds, both.start_frame) == (0.0, 7)
    assert both.video_id
    assert both.video_url


# --- as lenient as the old service ------------------------------------------------------------------------------

OVERLAY = {"enabled": True}


def test_a_byte_order_mark_says_nothing() -> None:
    assert decoded(b'\xef\xbb\xbf{"nickname": "ana"}') == {"nickname": "ana"}


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ({"fps": "5", "maxWidth": "640", "quality": "4", "subjectTemplateId": "2"}, None),
        ({"startSeconds": "12.0", "durationSeconds": "0.5", "snapshotDurationSeconds": " 2 "}, None),
        ({"startFrame": "374"}, {"startFrame": 374}),
        ({"fps": "", "maxWidth": " ", "quality": "", "startFrame": "", "snapshotDurationSeconds": ""}, {}),
        ({"videoId": "", "subjectTemplateId": "", "format": "", "isDraft": ""}, {}),
        ({"format": " JPG "}, {"format": "jpg"}),
        ({"nickname": 123}, {"nickname": "123"}),
        ({"nickname": " ana\t"}, {"nickname": "ana"}),
        ({"email": " Ana@Fazenda.Example "}, {"email": "ana@fazenda.example"}),
        ({"videoUrl": " https://videos.example/a.mp4 "}, {}),
        ({"dataFilmagem": 1772363700}, {"dataFilmagem": "2026-03-01T11:15:00Z"}),
        ({"dataFilmagem": "1772363700"}, {"dataFilmagem": "2026-03-01T11:15:00Z"}),
        ({"dataFilmagem": 1772363700.5}, {"dataFilmagem": "2026-03-01T11:15:00.5Z"}),
        ({"dataFilmagem": 1772363700500}, {"dataFilmagem": "2026-03-01T11:15:00.5Z"}),
        ({"isDraft": "TRUE"}, {"isDraft": True}),
        ({"subject": {"id": 123}}, {"subject": {"id": "123"}}),
        ({"subject": {"id": " BR-1 "}}, {"subject": {"id": "BR-1"}}),
        ({"overlay": {"enabled": "true"}}, {"overlay": OVERLAY}),
        ({"overlay": {"enabled": " False "}}, {"overlay": {}}),
        ({"overlay": OVERLAY | {"mode": "both", "position": "top_left"}}, None),
        ({"overlay": OVERLAY | {"mode": "", "position": " ", "boxColor": "", "fontColor": ""}}, {"overlay": OVERLAY}),
        ({"overlay": OVERLAY | {"fontSize": "", "margin": "20"}}, {"overlay": OVERLAY}),
        ({"overlay": OVERLAY | {"boxColor": "Black@0.7"}}, {"overlay": OVERLAY}),
        ({"overlay": OVERLAY | {"boxColor": "0xFFCC00@0.5"}}, {"overlay": OVERLAY | {"boxColor": "#ffcc00@0.5"}}),
        ({"overlay": OVERLAY | {"fontColor": "LightGoldenRodYellow"}}, None),
        ({"overlay": {"enabled": False, "mode": "sideways", "boxColor": "#", "fontSize": -5}}, {"overlay": {}}),
        ({"overlay": {"mode": 5}}, {"overlay": {}}),
    ],
)
def test_what_old_clients_send_is_read_as_what_it_means(sent: dict[str, Any], meant: dict[str, Any] | None) -> None:
    """Bodies that the old service took. Without `meant`: as it is written in upper case, or as a number."""
    assert read(**sent) == read(**(properly(sent) if meant is None else meant))


def properly(sent: dict[str, Any]) -> dict[str, Any]:
    def of(value: Any) -> Any:
        if isinstance(value, dict):
            return properly(value)
        if not isinstance(value, str):
            return value
        return float(value) if value.strip()[0].isdigit() else value.lower() if "Golden" in value else value.upper()

    return {name: of(value) for name, value in sent.items()}


@pytest.mark.parametrize(
    ("sent", "type_", "value"),
    [
        ({"type": "number", "numberValue": "450"}, "number", 450.0),
        ({"type": "NUMBER", "numberValue": "4.5"}, "number", 4.5),
        ({"type": "String", "stringValue": 123}, "string", "123"),
        ({"type": "string", "stringValue": 12.5}, "string", "12.5"),
        ({"type": "string", "stringValue": " Nelore "}, "string", "Nelore"),
        ({"type": "string", "stringValue": ""}, "string", ""),
        ({"type": "number", "numberValue": ""}, "number", None),
        ({"type": "", "stringValue": "Gir", "numberValue": ""}, "string", "Gir"),
        ({"type": " ", "numberValue": 4}, "number", 4.0),
    ],
)
def test_an_attribute_of_an_old_client_is_read_as_what_it_means(sent: dict[str, Any], type_: str, value: Any) -> None:
    snap = read(subject={"attributes": [{"key": " raca "} | sent]})
    assert snap.subject
    [only] = snap.subject.attributes
    assert (only.key, only.type, only.value) == ("raca", type_, value)


# --- ranges -----------------------------------------------------------------------------------------------------

EDGES = [
    ("durationSeconds", 0.001, 5, [0, -1, 1e-9, 5.000001, 6]),
    ("snapshotDurationSeconds", 0.04, 5.0, [0, -0.1, 5.1]),
    ("startSeconds", 0, 1e7, [-0.001, 1.1e7]),
    ("startFrame", 0, 10**9, [-1, 10**9 + 1, 2**63, 10**400]),
    ("fps", 1, 10, [0, 11, -5, 2.5]),
    ("maxWidth", 320, 1280, [319, 1281, 0]),
    ("quality", 2, 10, [1, 11, 3.5]),
    ("subjectTemplateId", 1, 2**63 - 1, [0, -1, 2**63]),
]


@pytest.mark.parametrize(("name", "least", "most", "beyond"), EDGES)
def test_a_number_keeps_within_its_range(name: str, least: float, most: float, beyond: list[float]) -> None:
    """S28."""
    for fine in (least, most):
        read(**{name: fine})
    for wrong in beyond:
        assert refused(**{name: wrong}) == [name], wrong


@pytest.mark.parametrize("name", [edge[0] for edge in EDGES])
@pytest.mark.parametrize(
    "wrong", ["5x", "1_0", "nan", "0x5", "5,0", "\u0665", True, [], {}, [1], math.nan, math.inf, 10**400]
)
def test_what_is_no_number_is_none_even_if_it_looks_like_one(name: str, wrong: Any) -> None:
    """FE7."""
    assert refused(**{name: wrong}) == [name]


@pytest.mark.parametrize("name", ["fps", "maxWidth", "quality", "startFrame"])
def test_a_whole_number_may_be_written_with_a_point(name: str) -> None:
    """Dart and JavaScript do."""
    given = {"fps": 5.0, "maxWidth": 640.0, "quality": 4.0, "startFrame": 9.0}[name]
    assert f'{name}":{given:.0f},' in read(**{name: given}).model_dump_json(by_alias=True)


@pytest.mark.parametrize(("name", "least", "most"), [("fontSize", 8, 200), ("margin", 0, 500), ("padding", 0, 200)])
def test_the_overlay_keeps_within_its_ranges(name: str, least: int, most: int) -> None:
    """S30."""
    for fine in (least, most):
        read(overlay={"enabled": True, name: fine})
    for wrong in (least - 1, most + 1, str(most + 1)):
        assert refused(overlay={"enabled": True, name: wrong}) == [f"overlay.{name}"]


# --- words ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://a",
        "https://a.example:8443/x.mp4?token=%20#t=3",
        "HTTPS://A.EXAMPLE/x",
        "https://[2001:db8::7]/x.mp4",
        "https://v\u00eddeos.example/brete \u00e1.mp4".replace(" ", "%20"),
        "http://10.0.0.8/whether-it-may-is-for-the-fetch-to-say",
        f"https://{'.'.join(['a' * 63] * 3)}.{'a' * 61}/",
    ],
)
def test_a_video_comes_by_http_or_https(url: str) -> None:
    assert read(videoUrl=url).video_url == url


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a/x.mp4",
        "file:///etc/passwd",
        "concat:a|b",
        "//a/x.mp4",
        "/x.mp4",
        "https:/a",
        "https://",
        "https:///x",
        "https://user:password@a/x",
        "https://a@b/x",
        "https://a\\@b/",
        "https://a/x y.mp4",
        "https://a/\0",
        "https://a/\r\nHost: b",
        "https://a:port/",
        "http://[:::]/a",
        "http://[1.2.3.4]/a",
        "http://a\u2100b.example/x",
        "javascript:alert(1)",
        "https://a/" + "x" * 4096,
        f"https://{'.'.join(['a' * 63] * 3)}.{'a' * 62}/",
        "https://a..example/",
        "https://a:65536/",
        "http://127.1/",
        "http://0x7f000001/",
        "https://\ud800/",
        5,
        ["https://a"],
    ],
)
def test_no_other_url_comes_in(url: Any) -> None:
    """D12: more than the scheme is looked at."""
    assert refused(videoUrl=url) == ["videoUrl"]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("nickname", ""),
        ("nickname", " \t\n"),
        ("nickname", "a\0b"),
        ("nickname", "\ud800"),
        ("nickname", "x" * 121),
        ("nickname", True),
        ("email", "ana"),
        ("email", "@"),
        ("email", "ana@"),
        ("email", "a@b@c"),
        ("email", "a b@c"),
        ("email", "a@b\nBcc: c@d"),
        ("email", "x" * 320 + "@a"),
        ("dataFilmagem", "2026-03-01T08:15:00"),
        ("dataFilmagem", "2026-03-01"),
        ("dataFilmagem", "yesterday"),
        ("dataFilmagem", 5),
        ("dataFilmagem", True),
        ("dataFilmagem", 10**400),
        ("dataFilmagem", "2026-02-30T00:00:00Z"),
        ("dataFilmagem", "0001-01-01T00:00:00Z"),
        ("dataFilmagem", "9999-12-31T23:59:59-23:59"),
        ("videoId", "not-a-uuid"),
        ("videoId", 5),
        ("format", "jpeg"),
        ("format", "webp"),
        ("isDraft", "yes"),
        ("isDraft", 1),
        ("subject", []),
        ("subject", "BR-1042"),
        ("overlay", True),
    ],
)
def test_what_is_not_meant_so_is_refused_by_name(name: str, wrong: Any) -> None:
    assert refused(**{name: wrong}) == [name]


def test_a_mistyped_email_is_refused_in_words() -> None:
    with pytest.raises(ValidationError, match="Input should be an e-mail address"):
        read(email="ana.fazenda.example")


def test_blanks_around_a_name_are_nobody_s_name() -> None:
    assert read(nickname="  Ana Lu\u00edsa\u00a0").nickname == "Ana Lu\u00edsa"


def test_a_text_that_no_field_takes_is_not_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = []

    def compose(text: str) -> str:
        lengths.append(len(text))
        return composed(text)

    monkeypatch.setattr(lenient, "composed", compose)
    endless = "a\u0301" * 100_000
    fields = ["nickname", "email", "format"]
    assert sorted(refused(**dict.fromkeys(fields, endless))) == sorted(fields)
    assert max(lengths, default=0) < 20_000


def test_png_has_no_quality() -> None:
    """S28."""
    assert refused(format="png", quality=3) == ["quality"]
    assert read(format="png").quality_used is None
    assert read(format="png", quality=None).quality_used is None


# --- the overlay ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("SUBJECT", "SUBJECT"),
        ("SUBJECT_AND_FRAME", "SUBJECT_AND_FRAME"),
        ("SUBJECT_AND_TIMESTAMP", "SUBJECT_AND_TIMESTAMP"),
        ("SUBJECT_AND_BOTH", "SUBJECT_AND_BOTH"),
        ("FRAME_NUMBER", "SUBJECT_AND_FRAME"),
        ("TIMESTAMP", "SUBJECT_AND_TIMESTAMP"),
        ("BOTH", "SUBJECT_AND_BOTH"),
    ],
)
def test_a_mode_has_two_names(given: str, meant: str) -> None:
    """S30, D12."""
    drawn = read(overlay={"enabled": True, "mode": given}).overlay_drawn
    assert drawn
    assert drawn["mode"] == meant


@pytest.mark.parametrize("enabled", [False, None, ...])
def test_nothing_is_drawn_unless_it_is_said(enabled: Any) -> None:
    overlay = {"mode": "BOTH"} if enabled is ... else {"mode": "BOTH", "enabled": enabled}
    assert read(overlay=overlay).overlay_drawn is None


@pytest.mark.parametrize("colour", ["black@0.7", "white", "red@1", "yellow@0", "#FFcc00", "#102030@0.25", "navy@1.0"])
def test_a_colour_is_a_name_or_six_digits_and_how_opaque(colour: str) -> None:
    drawn = read(overlay={"enabled": True, "boxColor": colour, "fontColor": colour}).overlay_drawn
    assert drawn
    assert (drawn["box_color"], drawn["font_color"]) == (colour.lower(), colour.lower())


@pytest.mark.parametrize(
    "colour",
    [
        "black@",
        "black@2",
        "0x1020",
        "black@-1",
        "black@1.5",
        "#fff",
        "white:text='x'",
        "random",
        5,
    ],
)
def test_no_other_colour_reaches_a_drawing(colour: Any) -> None:
    """S30: whitelisted; nothing that a filter's syntax could read otherwise."""
    assert refused(overlay={"enabled": True, "boxColor": colour}) == ["overlay.boxColor"]


# --- the subject ------------------------------------------------------------------------------------------------


def attributes(*given: dict[str, Any]) -> dict[str, Any]:
    return {"attributes": [*given]}


def test_a_value_has_the_type_that_is_said() -> None:
    subject = read(
        subject=attributes(
            {"key": "raca", "type": "string", "stringValue": "Nelore", "numberValue": 3},
            {"key": "peso", "type": "number", "numberValue": 412.5},
            {"key": "lote", "type": "string", "stringValue": None},
            {"key": "pasto", "type": "string", "stringValue": ""},
        )
    ).subject
    assert subject
    assert [attribute.value for attribute in subject.attributes] == ["Nelore", 412.5, None, ""]


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"key": "a", "type": "string", "numberValue": 1}, ""),
        ({"key": "a", "type": "number", "stringValue": "1"}, ""),
        ({"key": "a", "type": "number", "numberValue": "4x"}, ".numberValue"),
        ({"key": "a", "type": "number", "numberValue": math.nan}, ".numberValue"),
        ({"key": "a", "type": "number", "numberValue": math.inf}, ".numberValue"),
        ({"key": "a", "type": "number", "numberValue": 1e15}, ".numberValue"),
        ({"key": "a", "type": "number", "numberValue": True}, ".numberValue"),
        ({"key": "a", "type": "string", "stringValue": True}, ".stringValue"),
        ({"key": "a", "type": "string", "stringValue": "x" * 1001}, ".stringValue"),
        ({"key": "a", "type": "string", "stringValue": "\0"}, ".stringValue"),
        ({"key": "a", "type": "boolean"}, ".type"),
        ({"key": "a"}, ".type"),
        ({"type": "string"}, ".key"),
        ({"key": "", "type": "string"}, ".key"),
        ({"key": " ", "type": "string"}, ".key"),
        ({"key": "k" * 121, "type": "string"}, ".key"),
        ({"key": "\ud800", "type": "string"}, ".key"),
        (None, ""),
        ("raca", ""),
    ],
)
def test_an_attribute_that_makes_no_sense_is_refused_by_place(wrong: Any, place: str) -> None:
    """S27."""
    assert refused(subject=attributes({"key": "fine", "type": "string"}, wrong)) == [f"subject.attributes.1{place}"]


@pytest.mark.parametrize("other", ["Brinco", " brinco "])
def test_a_key_stands_there_once_in_any_case(other: str) -> None:
    """S28: search takes keys in any case, so two of them would be one."""
    twice = attributes({"key": "brinco", "type": "string"}, {"key": other, "type": "string"})
    assert refused(subject=twice) == ["subject.attributes"]


def test_a_hundred_attributes_and_not_one_more() -> None:
    """S28."""
    many = [{"key": f"k{number}", "type": "number", "numberValue": number} for number in range(101)]
    read(subject=attributes(*many[:100]))
    assert refused(subject=attributes(*many)) == ["subject.attributes"]


@pytest.mark.parametrize("blank", ["", "  ", None])
def test_a_blank_id_is_left_to_the_snap(blank: str | None) -> None:
    """S31."""
    subject = read(subject={"id": blank}).subject
    assert subject
    assert subject.id is None
    assert refused(subject={"id": "x" * 201}) == ["subject.id"]


# --- whatever comes ---------------------------------------------------------------------------------------------

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from([*LEAST, *OPTIONAL]), ANYTHING)
def test_anything_at_all_is_read_or_refused_and_what_is_read_is_finite(name: str, value: Any) -> None:
    """S28: never another error, and nothing that JSON cannot say comes in."""
    try:
        snap = read(**{name: value})
    except ValidationError:
        return
    assert decoded(snap.model_dump_json().encode()) is not None


def test_the_example_of_the_documentation_is_one() -> None:
    snap = SnapRequest.model_validate(copy.deepcopy(EXAMPLE))
    assert snap.subject
    assert snap.overlay_drawn


def test_the_description_says_that_optional_fields_may_be_null() -> None:
    schema = SnapRequest.model_json_schema()
    assert sorted(schema["required"]) == ["dataFilmagem", "durationSeconds", "email", "nickname"]
    for name, field in schema["properties"].items():
        assert (name in schema["required"]) != ({"type": "null"} in field.get("anyOf", [])), name
    assert schema["properties"]["fps"]["default"] == 5


def test_a_correction_names_what_it_changes() -> None:
    by = {"nickname": "ana"}
    assert Correction.model_validate({"attributes": []} | by).attributes == []
    assert Correction.model_validate({"id": "BR-1"} | by).attributes is None
    twice = attributes({"key": "a", "type": "string"}, {"key": "A", "type": "string"})
    with pytest.raises(ValidationError, match="stands there twice"):
        Correction.model_validate(twice | by)
    with pytest.raises(ValidationError, match="nickname"):
        Correction.model_validate({"id": "BR-1"})
