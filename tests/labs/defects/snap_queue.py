"""Of the snap queue: rows S."""

from tests.labs.defects.model import Mutant, defect

DEFECTS: dict[str, Mutant] = {
    "age-within-a-kind": defect(
        "S4 R12 Q16 W50",
        "age decides within a kind only",
        "jobs/rows/test_claim::test_age_decides_across_kinds_and_keys",
        (
            "snapapp/jobs/rows/claim.py",
            "ORDER BY rank DESC, job.next_retry_at, job.id) AS place",
            "ORDER BY rank DESC, kind, job.next_retry_at, job.id) AS place",
        ),
    ),
    "a-server-without-its-worker": defect(
        "S1 S2 S9",
        "the process that serves does not work the queue",
        "process/test_monolith::test_one_process_answers_and_works",
        ("snapapp/process/monolith.py", "            worker.start()\n", "            pass\n"),
    ),
    "enqueued-for-good": defect(
        "S5",
        "a job that is enqueued stays, though its transaction is rolled back",
        "jobs/test_enqueue::test_a_job_whose_transaction_rolls_back_never_was",
        (
            "snapapp/jobs/rows/lifecycle.py",
            '    return [row[0] for row in _ask(db, _ENQUEUE, {"jobs": jobs})]',
            '    ids = [row[0] for row in _ask(db, _ENQUEUE, {"jobs": jobs})]\n    db.commit()\n    return ids',
        ),
    ),
    "a-try-is-a-failure": defect(
        "S10 S18",
        "a snap whose job will be tried again does not say why",
        "domain/test_snaps::test_until_it_ends_a_snaps_state_is_that_of_its_job",
        (
            "snapapp/domain/tables.py",
            "self.job.last_error if self.ended is None and self.job else self.ended_error",
            "self.ended_error",
        ),
    ),
    "any-lease": defect(
        "S12",
        "a lease that ends before the third beat is taken",
        "settings/test_settings::test_the_lease_must_outlast_three_beats",
        ("snapapp/jobs/settings.py", "self.lease_for <= 3 * self.beat_every,", "self.lease_for <= self.beat_every,"),
    ),
    "errors-of-any-length": defect(
        "S16 FD13",
        "an error is kept as long as it is",
        "jobs/test_model::test_fifty_megabytes_of_message_become_four_thousand_characters",
        ("snapapp/jobs/model.py", "TEXT_CAP = 4000", "TEXT_CAP = 400_000_000"),
    ),
    "accepted-as-done": defect(
        "S17",
        "a snap that waits for its job is answered as one that was made",
        "api/product/test_snaps::test_a_marked_moment_is_accepted_at_once_with_its_job",
        (
            "snapapp/api/product/snaps.py",
            '@router.post("", status_code=202',
            '@router.post("", status_code=201',
        ),
    ),
    "by-creation": defect(
        "S19",
        "the snaps of a video come in the order in which they were marked",
        "domain/test_search::test_the_snaps_of_a_video_come_by_moment",
        ("snapapp/domain/finding/search.py", "(nickname)], BY_MOMENT, window)", "(nickname)], BY_CREATION, window)"),
    ),
    "every-subject": defect(
        "S20",
        "a search for a subject's id finds what its attributes find, whatever the id",
        "api/product/test_lists::test_a_subject_is_found_by_its_id_and_its_attributes",
        (
            "snapapp/domain/finding/search.py",
            "        yield Snap.subject_id == composed(criteria.subject_id)\n",
            "        yield Snap.subject_id.is_not(None)\n",
        ),
    ),
    "mine-as-it-is-written": defect(
        "S21",
        "whoever writes his name in another case has marked nothing",
        "api/product/test_lists::test_mine_are_those_with_my_name_in_any_case",
        (
            "snapapp/domain/finding/search.py",
            "return [Snap.nickname_lower == func.lower(composed(nickname))]",
            "return [Snap.nickname == nickname]",
        ),
    ),
    "always-more": defect(
        "S22",
        "a list that ends with its page says that there is more",
        "api/product/test_lists::test_a_list_says_which_part_it_is_and_whether_there_is_more",
        ("snapapp/domain/finding/paging.py", "len(rows) > window.limit, *self", "True, *self"),
    ),
    "a-link-each-time": defect(
        "S23",
        "each time that a snap is shared it has another link",
        "api/product/test_snap_actions::test_a_snap_is_shared_once_however_often",
        (
            "snapapp/domain/sharing.py",
            "    if link is None:\n        link = Share",
            "    if True:\n        link = Share",
        ),
    ),
    "any-token": defect(
        "S24",
        "whoever sends a token with a tenant's code is that tenant",
        "api/http/test_tenancy::test_where_tokens_are_required_they_are",
        (
            "snapapp/domain/tenants.py",
            "    if not _has(tenant, token):\n        raise TokenWrong\n    return tenant",
            "    return tenant",
        ),
    ),
    "an-id-of-its-own": defect(
        "S25",
        "a request's id is made anew, whatever the client calls it",
        "api/http/test_hostile::test_an_id_of_a_request_is_cleaned_and_rides_along",
        (
            "snapapp/api/http/requests/exchange.py",
            'self.id = _clean_id(headers.get(b"x-request-id", b""))',
            'self.id = _clean_id(b"")',
        ),
    ),
    "without-a-start": defect(
        "S27",
        "a snap that says no moment is taken",
        "api/product/test_snap_schema::test_a_video_and_a_moment_are_each_named_one_way_or_the_other",
        ("snapapp/api/product/snap_schema.py", "            raise whole(rules.NO_START)", "            pass"),
        (
            "snapapp/api/product/snap_schema.py",
            '            raise whole("Provide at least one of videoId or videoUrl")',
            "            pass",
        ),
    ),
    "wider-limits": defect(
        "S28",
        "a snap may have a hundred frames of a second",
        "api/product/test_snap_schema::test_a_number_keeps_within_its_range",
        ("snapapp/domain/rules/snaps.py", "Range(1, 10), 5", "Range(1, 100), 5"),
    ),
    "another-moment": defect(
        "S29",
        "a frame does not say when it is shown in the video",
        "api/product/test_snaps::test_a_finished_snap_has_its_evidence",
        (
            "snapapp/api/product/snap_views.py",
            'timestamp_seconds=frame.get("timestamp_seconds")',
            "timestamp_seconds=None",
        ),
    ),
    "a-card-of-another-size": defect(
        "S30",
        "a card that nobody described is drawn larger than the old service drew it",
        "api/product/test_snap_schema::test_the_defaults_are_those_of_the_old_service",
        (
            "snapapp/domain/rules/snaps.py",
            "FONT_SIZE, DEFAULT_FONT_SIZE = Range(8, 200), 18",
            "FONT_SIZE, DEFAULT_FONT_SIZE = Range(8, 200), 28",
        ),
    ),
    "two-seconds-are-an-instant": defect(
        "S31",
        "a moment of two seconds is an instant",
        "api/product/test_snaps::test_a_longer_moment_is_an_interval",
        ("snapapp/domain/rules/snaps.py", "INSTANT_SECONDS = 1 ", "INSTANT_SECONDS = 2 "),
    ),
    "one-place-for-all-attempts": defect(
        "S32 FA2",
        "a second attempt writes over what the first one made",
        "processing/test_media_work::test_evidence_lies_below_the_attempts_own_prefix_with_the_hash_of_each_file",
        ("snapapp/storage/keys.py", 'return f"{of_snap(snap_id)}{lease_seq}/"', 'return f"{of_snap(snap_id)}1/"'),
    ),
    "whoever-sees-it-changes-it": defect(
        "S33",
        "an operator changes and deletes what another one marked",
        "api/product/test_rights::test_another_operators_is_seen_and_not_changed",
        (
            "snapapp/domain/rules/rights.py",
            "if not may_change_all(who) and (who is None or who.id != added_by):",
            "if False:",
        ),
    ),
    "the-token-that-everybody-knows": defect(
        "S34",
        "prod starts with the token of the documentation",
        "process/test_monolith::test_prod_refuses_the_token_that_everybody_knows",
        ("snapapp/domain/tenants.py", "        return by_token(db, DEVELOPMENT_TOKEN).code", "        return None"),
    ),
    "cattle-without-an-ear-tag": defect(
        "S35",
        "the template of cattle does not ask for the ear tag",
        "api/product/test_snaps::test_a_named_template_is_enforced_and_the_default_asks_for_nothing",
        (
            "migrations/sql/product/functions/tenant_begins_with_templates.sql",
            '"key": "brinco", "type": "string", "required": true',
            '"key": "brinco", "type": "string", "required": false',
        ),
    ),
}
