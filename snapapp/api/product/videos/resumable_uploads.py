"""/v2/uploads: the tus protocol 1.0 with creation, termination and expiration. A file may come in several parts over
broken connections. With the last byte it becomes a video, as if it had been sent to /v2/videos at once."""

import base64
import binascii
import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import datetime
from email.utils import format_datetime
from typing import Annotated, Any
from uuid import UUID, uuid4

from fastapi import HTTPException, Path, Request, Response
from fastapi.routing import APIRoute
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from snapapp.api.http.deps import MonolithDep, RequestId
from snapapp.api.http.errors import may_be
from snapapp.api.http.files.upload_parser import file_name
from snapapp.api.http.routers import Router
from snapapp.api.http.schema import Shown
from snapapp.api.http.tenancy import Begins, Code
from snapapp.api.product.videos import uploads
from snapapp.api.product.videos.upload_pieces import COME_BACK_SOON, append
from snapapp.domain import storage_use
from snapapp.domain.transactions import Begin
from snapapp.errors import StorageUsedUp
from snapapp.process.monolith import Monolith
from snapapp.storage import NoRoom, NotStored, UploadExpired, UploadInUse, UploadTooLarge, keys
from snapapp.storage.resumable import Announced, Held, State

VERSION = "1.0.0"
_UNFINISHED_MAX = 200  # of one tenant
_METADATA_MAX = 4096
_PAIR = re.compile(r"[!-+\-.-~]+( [A-Za-z0-9+/]*={0,2})?")


class _Tus(APIRoute):
    """A route that adds the protocol's version to each answer, and the protocol's headers to each error."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def speak(request: Request) -> Response:
            try:
                answer = await handle(request)
            except (UploadTooLarge, NoRoom, StorageUsedUp, HTTPException) as error:
                refusal = error if isinstance(error, HTTPException) else uploads.closing_refusal(error)
                headers = {**(refusal.headers or {}), "Tus-Resumable": VERSION}
                raise HTTPException(refusal.status_code, refusal.detail, headers) from error
            answer.headers["Tus-Resumable"] = VERSION
            return answer

        return speak


def _require_version(request: Request) -> None:
    asked = request.headers.get("Tus-Resumable")
    if asked is None and request.method not in ("GET", "HEAD"):
        raise HTTPException(400, f"Tus-Resumable is missing: {VERSION}")
    if asked not in (None, VERSION):
        raise HTTPException(412, f"This server speaks tus {VERSION}, and not {asked[:20]}", {"Tus-Version": VERSION})


UploadId = Annotated[UUID, Path(description="The upload's id, which will be the video's.")]
router = Router(prefix="/v2/uploads", tags=["videos"], route_class=_Tus)


class UploadShown(Shown):
    """A resumable upload."""

    upload_id: UUID
    file_name: str | None = Field(examples=["brete-7.mp4"])
    size_bytes: int = Field(examples=[7340032])
    offset: int = Field(description="How many bytes have been received.", examples=[1048576])
    expires: datetime = Field(description="The upload expires then, unless further bytes come.")
    video_id: UUID | None = Field(description="The video that it became, once it was complete.")


def _header(name: str, description: str, example: str, *, required: bool = True, pattern: str = "") -> dict[str, Any]:
    schema = {"type": "string", "maxLength": _METADATA_MAX, "pattern": pattern or "^[ -~]*$", "examples": [example]}
    return {"name": name, "in": "header", "required": required, "description": description, "schema": schema}


_VERSION = _header("Tus-Resumable", "The protocol's version.", VERSION, pattern="^1\\.0\\.0$")
_REFUSALS = may_be(
    _400="A header of the protocol is missing or makes no sense, or the file is no video.",
    _412="Another version of the protocol.",
    _413="It is larger than `SNAPAPP_UPLOAD_MAX_MB`, or than was announced.",
    _507="The disk is nearly full, or the tenant's storage is used up.",
)
_GONE = may_be(
    _404="The tenant has no such upload.",
    _410="No byte of it came for a day.",
    _423="Another request is sending bytes of it.",
)
_BEGIN = {
    "parameters": [
        _VERSION,
        _header("Upload-Length", "The size of the file in bytes.", "7340032", pattern="^[0-9]{1,15}$"),
        _header(
            "Upload-Metadata",
            "Pairs of a key and its base64, with commas in between; `filename` is used.",
            "filename YnJldGUtNy5tcDQ=",
            required=False,
        ),
    ]
}
_APPEND = {
    "requestBody": {
        "required": True,
        "description": "The next bytes.",
        "content": {"application/offset+octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    "parameters": [
        _VERSION,
        _header("Upload-Offset", "How many bytes the server has already.", "1048576", pattern="^[0-9]{1,15}$"),
    ],
}


@router.options("", include_in_schema=False)
async def show_protocol(monolith: MonolithDep) -> Response:
    """The protocol's version and extensions that the server supports."""
    headers = {
        "Tus-Version": VERSION,
        "Tus-Extension": "creation,termination,expiration",
        "Tus-Max-Size": str(monolith.settings.upload_max_mb * storage_use.MB),
    }
    return Response(status_code=204, headers=headers)


@router.post("", status_code=201, responses=_REFUSALS | may_be(_429="Too many are unfinished."), openapi_extra=_BEGIN)
def begin_upload(monolith: MonolithDep, begin: Begins, request: Request, response: Response) -> UploadShown:
    """Begins a resumable upload by the tus protocol, for which there are clients in most languages. `Location` is the
    address for its bytes."""
    code, announced = _announcement_of(monolith, begin, request)
    upload_id = uuid4()
    with begin() as transaction, transaction.as_tenant() as db:
        storage_use.take_turns(db, code)
        waiting = monolith.storage.resumable.unfinished(code)
        if len(waiting) >= _UNFINISHED_MAX:
            raise HTTPException(429, f"{len(waiting)} uploads are unfinished: finish or end some of them first")
        most = monolith.settings.tenant_storage_max_mb
        storage_use.require(db, code, most, announced.length + sum(each.announced.length for each in waiting))
        state = monolith.storage.resumable.begin(code, upload_id, announced)
    response.headers.update(_protocol_headers(state) | {"Location": f"{router.prefix}/{upload_id}"})
    return _shown(upload_id, state)


def _announcement_of(monolith: Monolith, begin: Begin, request: Request) -> tuple[str, Announced]:
    with begin() as transaction:
        code = transaction.code
    _require_version(request)
    if "Upload-Concat" in request.headers:  # one part would become a video of its own
        raise HTTPException(400, "Upload-Concat: uploads are not joined here, send the file as one upload")
    length, metadata = _number(request, "Upload-Length"), request.headers.get("Upload-Metadata", "").strip()
    if length == 0:
        raise HTTPException(400, "The upload is empty")
    if length > monolith.settings.upload_max_mb * storage_use.MB:
        raise UploadTooLarge(monolith.settings.upload_max_mb * storage_use.MB)
    # pair by pair, because one pattern for the whole header could try 2^n ways of dividing its blanks
    make_sense = not metadata or all(_PAIR.fullmatch(pair.strip(" ")) for pair in metadata.split(","))
    if len(metadata) > _METADATA_MAX or not make_sense:
        raise HTTPException(400, "Upload-Metadata makes no sense: pairs of a key and its base64")
    return code, Announced(length, _file_name_in(metadata), metadata)


def _file_name_in(metadata: str) -> str | None:
    pairs = [pair.split() for pair in metadata.split(",")]
    encoded = next((pair[1] for pair in pairs if len(pair) == 2 and pair[0] == "filename"), "")
    try:
        return file_name(base64.b64decode(encoded, validate=True).decode("utf-8", "replace"))
    except binascii.Error:
        raise HTTPException(400, "Upload-Metadata makes no sense: pairs of a key and its base64") from None


def _number(request: Request, name: str) -> int:
    text = request.headers.get(name, "")
    if not re.fullmatch("[0-9]{1,15}", text):
        raise HTTPException(400, f"{name} is missing, or no number of bytes")
    return int(text)


@router.get("/{upload_id}", responses=_GONE | _REFUSALS)
def show_upload(
    monolith: MonolithDep, begin: Begins, code: Code, upload_id: UploadId, request: Request, request_id: RequestId
) -> Response:
    """The state of an upload. HEAD gives the same in the protocol's headers."""
    _require_version(request)
    state = _state_of(monolith, code, upload_id)
    if state.is_whole and state.announced.kept_as is None:  # a crash came between the last byte and the video's row
        with _hold(monolith, code, upload_id) as held:
            state = _become_video(monolith, begin, held, upload_id, request_id)
    return Response(
        _shown(upload_id, state).model_dump_json(by_alias=True),
        media_type="application/json",
        headers=_protocol_headers(state) | {"Cache-Control": "no-store"},
    )


@router.patch("/{upload_id}", status_code=204, responses=_GONE | _REFUSALS | may_be(
    _408="No byte came for a while; received bytes are kept.",
    _409="The offset is wrong.",
    _415="The body must be `application/offset+octet-stream`.",
), openapi_extra=_APPEND)  # fmt: skip
async def append_to_upload(
    monolith: MonolithDep, begin: Begins, code: Code, upload_id: UploadId, request: Request, request_id: RequestId
) -> Response:
    """Appends bytes. Bytes that came before a connection broke are kept: HEAD gives the offset to go on from."""
    # async, because it lasts as long as the client needs to send
    offset = _offset(request)
    held = await run_in_threadpool(_hold, monolith, code, upload_id)
    try:
        state = held.state
        if state.offset != offset:
            raise HTTPException(409, f"The offset is {state.offset}, and not {offset}")
        length = request.headers.get("Content-Length", "")
        if length.isdigit() and offset + int(length) > state.announced.length:
            raise UploadTooLarge(state.announced.length)
        if not state.is_whole:
            await append(monolith, request, held)
        state = held.state
        if state.is_whole and state.announced.kept_as is None:
            state = await run_in_threadpool(_become_video, monolith, begin, held, upload_id, request_id)
    except (UploadTooLarge, NoRoom, StorageUsedUp, HTTPException) as error:  # the rest of the body is not read
        raise uploads.closing_refusal(error) from error
    finally:
        await run_in_threadpool(held.release)
    return Response(status_code=204, headers=_protocol_headers(state))


@router.delete("/{upload_id}", status_code=204, responses=_GONE | may_be(_412="Another version of the protocol."),
               openapi_extra={"parameters": [_VERSION]})  # fmt: skip
def end_upload(monolith: MonolithDep, code: Code, upload_id: UploadId, request: Request) -> None:
    """Ends an upload and removes its bytes. A video that it became stays."""
    _require_version(request)
    with _hold(monolith, code, upload_id) as held:
        held.discard()


@router.post("/{upload_id}", status_code=204, include_in_schema=False)
async def stand_in(
    monolith: MonolithDep, begin: Begins, code: Code, upload_id: UploadId, request: Request, request_id: RequestId
) -> Response:
    """PATCH or DELETE by POST, for clients whose network blocks these methods."""
    match request.headers.get("X-HTTP-Method-Override", "").upper():
        case "PATCH":
            return await append_to_upload(monolith, begin, code, upload_id, request, request_id)
        case "DELETE":
            await run_in_threadpool(end_upload, monolith, code, upload_id, request)
            return Response(status_code=204)
    raise HTTPException(400, "X-HTTP-Method-Override is PATCH or DELETE")


def _offset(request: Request) -> int:
    _require_version(request)
    if request.headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/offset+octet-stream":
        raise HTTPException(415, "The body is to be application/offset+octet-stream", {"Connection": "close"})
    return _number(request, "Upload-Offset")


# --- the video that it becomes ----------------------------------------------------------------------------------


def _become_video(monolith: Monolith, begin: Begin, held: Held, upload_id: UUID, request_id: str) -> State:
    """Makes the video of a complete upload. If this fails, by a crash or without the database, the next request for the
    upload tries again."""
    with begin() as transaction:
        key = keys.of_video(transaction.code, upload_id) + "source"
    received, name = held.finish(key), held.state.announced.file_name
    try:
        video = uploads.keep_stored(monolith, begin, upload_id, received, name, request_id)
    except StorageUsedUp:
        uploads.delete(monolith, key)
        held.discard()
        raise
    held.kept_as(str(video.id))
    return held.state


def _state_of(monolith: Monolith, code: str, upload_id: UUID) -> State:
    try:
        return monolith.storage.resumable.find(code, upload_id)
    except (NotStored, UploadExpired) as error:
        raise _absent(error, upload_id) from error


def _hold(monolith: Monolith, code: str, upload_id: UUID) -> Held:
    try:
        return monolith.storage.resumable.hold(code, upload_id)
    except UploadInUse as error:
        raise HTTPException(423, str(error), COME_BACK_SOON) from error
    except (NotStored, UploadExpired) as error:
        raise _absent(error, upload_id) from error


def _absent(error: Exception, upload_id: UUID) -> HTTPException:
    if isinstance(error, UploadExpired):
        return HTTPException(410, str(error))
    return HTTPException(404, f"Upload not found: {upload_id}")


def _protocol_headers(state: State) -> dict[str, str]:
    headers = {
        "Upload-Offset": str(state.offset),
        "Upload-Length": str(state.announced.length),
        "Upload-Expires": format_datetime(state.expires, usegmt=True),
    }
    if state.announced.metadata:
        headers["Upload-Metadata"] = state.announced.metadata
    if state.announced.kept_as:
        headers["Content-Location"] = f"{uploads.router.prefix}/{state.announced.kept_as}"
    return headers


def _shown(upload_id: UUID, state: State) -> UploadShown:
    about, kept_as = state.announced, None
    with suppress(ValueError):
        kept_as = UUID(about.kept_as or "")
    return UploadShown(
        upload_id=upload_id,
        file_name=about.file_name,
        size_bytes=about.length,
        offset=state.offset,
        expires=state.expires,
        video_id=kept_as,
    )
