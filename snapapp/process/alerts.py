"""What whoever is on call is told, and how: by webhook and by e-mail; and the ping that says that all is well."""

import json
import logging
import smtplib
import socket
import ssl
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from email.message import EmailMessage
from urllib.parse import unquote, urlsplit

from snapapp.jobs import doctor
from snapapp.jobs.doctor import Finding, Severity

_log = logging.getLogger(__name__)

_ANSWER_WITHIN = 10.0  # seconds, of a receiver or a mail server

Send = Callable[["Alert"], None]  # raises OSError (smtplib's and urllib's errors are some), HTTPException or ValueError


class Alert:
    """What one message tells."""

    def __init__(self, begun: Sequence[Finding], over: Sequence[str]) -> None:
        self.begun = sorted(begun, key=rank, reverse=True)
        self.over = over  # the first lines of what was told before
        self.host = socket.gethostname()

    @property
    def title(self) -> str:
        worst = in_line(self.begun[0]) if self.begun else f"over: {self.over[0]}"
        more = len(self.begun) + len(self.over) - 1
        return " ".join(f"snapapp on {self.host}: {worst}{f' (and {more} more)' if more else ''}".split())[:200]

    @property
    def text(self) -> str:
        lines = [line for finding in self.begun for line in doctor.in_lines(finding)]
        return "\n".join([*lines, *(f"over      {each}" for each in self.over)])

    def as_json(self) -> bytes:
        """`text` is what Slack, Mattermost and the like show."""
        told = {"text": f"{self.title}\n{self.text}", "host": self.host}
        return json.dumps(told | {"begun": [each.as_json() for each in self.begun], "over": [*self.over]}).encode()


def rank(finding: Finding) -> int:
    return [*Severity].index(finding.severity)


def in_line(finding: Finding) -> str:
    return f"{finding.severity.value}: {finding.saw}"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: urllib would ask for the new place by GET, without what there is to tell."""

    def redirect_request(self, *_: object) -> None:
        return None


_web = urllib.request.build_opener(_NoRedirects)


def to_webhook(url: str) -> Send:
    headers = {"Content-Type": "application/json", "User-Agent": "snapapp"}

    def send(alert: Alert) -> None:
        request = urllib.request.Request(url, alert.as_json(), headers, method="POST")  # noqa: S310 - http or https, see settings
        _web.open(request, timeout=_ANSWER_WITHIN).close()

    return send


def beat(url: str) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "snapapp"})  # noqa: S310 - as above
    urllib.request.urlopen(request, timeout=_ANSWER_WITHIN).close()  # noqa: S310


def to_mail(recipients: Sequence[str], smtp_url: str) -> Send:
    its = urlsplit(smtp_url)
    host, user, password = its.hostname or "localhost", unquote(its.username or ""), unquote(its.password or "")
    is_encrypted = its.scheme == "smtps"
    context = ssl.create_default_context()
    if not (is_encrypted or user):
        # Nothing is secret here, and a server without encryption would do: one that vouches for itself does, too, as
        # that of a fresh Debian on localhost.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def send(alert: Alert) -> None:
        message = EmailMessage()
        sender = user if "@" in user else f"snapapp@{socket.getfqdn()}"
        message["Subject"], message["From"], message["To"] = alert.title, sender, ", ".join(recipients)
        message.set_content(f"{alert.text}\n")
        if is_encrypted:
            server: smtplib.SMTP = smtplib.SMTP_SSL(host, its.port or 465, timeout=_ANSWER_WITHIN, context=context)
        else:
            server = smtplib.SMTP(host, its.port or 25, timeout=_ANSWER_WITHIN)
        with closing(server):
            if not is_encrypted:
                server.ehlo_or_helo_if_needed()
                if server.has_extn("starttls"):
                    server.starttls(context=context)
                elif user:
                    raise smtplib.SMTPException("the mail server offers no encryption for the password")
            if user:
                server.login(user, password)
            for recipient, (code, said) in server.send_message(message).items():  # the others have it
                why = said.decode(errors="backslashreplace")
                _log.warning("The mail server refuses %s of SNAPAPP_ALERT_EMAIL: %d %s", recipient, code, why)
            with suppress(smtplib.SMTPException):  # whatever it says of the end, it has taken the message
                server.quit()

    return send
