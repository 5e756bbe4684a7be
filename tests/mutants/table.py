"""Small faults, a rule of the product each, and the test that has to notice it."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: in `file`, `old` becomes `new`."""

    rule: str
    """What no longer holds."""
    file: str
    old: str
    """Is in the file exactly once."""
    new: str
    test: str
    """The one that has to fail, as pytest names it in `tests/`."""
    compiled: bool = False
    """Whether the kernel has to be built again."""


MUTANTS: Final = (
    Mutant(
        "storage: a segment takes sets up to segment.bytes, inclusive",
        "storage/log/rolling.py",
        "active.size_bytes + set_bytes > settings.segment_bytes",
        "active.size_bytes + set_bytes >= settings.segment_bytes",
        "storage/test_rolling.py::test_size",
    ),
    Mutant(
        "recovery: what is behind a torn write is set aside",
        "storage/log/recovery.py",
        "self._set_aside(segments[number + 1 :])",
        "self._set_aside(segments[number + 2 :])",
        "storage/test_opening.py::test_the_first_bad_entry_ends_the_log_decision_20",
    ),
    Mutant(
        "syncing: messages are safe once their file's name is",
        "storage/log/flush.py",
        "        if self.sync_directory:\n            try:\n",
        "        if False:\n            try:\n",
        "storage/test_opening.py::test_the_first_sync_also_syncs_the_folder",
    ),
    Mutant(
        "index: a search starts at the last entry strictly below the target",
        "storage/index/time_index.py",
        "bisect_left(self._timestamps, target_ms) - 1",
        "bisect_right(self._timestamps, target_ms) - 1",
        "storage/test_indexes.py::test_searches_in_a_random_log_tc103",
    ),
    Mutant(
        "search: only messages below the high watermark are found",
        "storage/read/search.py",
        "return found if found.offset < view.high_watermark else None",
        "return found",
        "storage/test_search.py::test_the_visible_part_of_a_wrapper_l26",
    ),
    Mutant(
        "retention: a segment goes when its age is above retention.ms, not at it",
        "storage/log/retention.py",
        "return later(segment.age_from_ms, settings.retention_ms + 1)",
        "return later(segment.age_from_ms, settings.retention_ms)",
        "storage/test_retention.py::test_age",
    ),
    Mutant(
        "journal: a removal that does not continue the last one is an entry of its own",
        "storage/directory/journal.py",
        "last.first_offset <= removal.first_offset <= last.end_offset",
        "last.first_offset <= removal.first_offset",
        "metadata/test_journal.py::test_it_is_the_plain_list",
    ),
    Mutant(
        "journal: a log is complete from the largest time that left it, not from the last one",
        "server/completeness.py",
        "max(known.largest_ms, each.largest_timestamp_ms)",
        "each.largest_timestamp_ms",
        "removals/test_answers.py::test_the_largest_time_counts_not_the_last",
    ),
    Mutant(
        "admission: a limit for one direction wins over the limit for both",
        "storage/log/timestamp_range.py",
        "before = both if before is None else before",
        "before = before if both is None else both",
        "storage/test_timestamps.py::test_accepted",
    ),
    Mutant(
        "admission: appends of a LogAppendTime topic are stamped by the broker",
        "storage/log/admission.py",
        "        stamp(data, 0, found.end, target.stamp_ms)\n",
        "",
        "storage/test_append_time.py::test_a_clock_that_steps_back_is_not_followed",
    ),
    Mutant(
        "protocol: a client id does not reach beyond its frame",
        "protocol/api/kafka/frames.py",
        "if size < NULL_LENGTH or end > len(frame):",
        "if size < NULL_LENGTH:",
        "api/test_kafka_bad_bytes.py::test_a_client_id_that_does_not_fit",
    ),
    Mutant(
        "protocol: all values of a request are counted, wherever they are",
        "protocol/records/kernel/packed.pxi",
        "if values + count > most_values:",
        "if count > most_values:",
        "api/test_bad_bytes.py::test_values_are_counted_wherever_they_are",
        compiled=True,
    ),
    Mutant(
        "kernel: a span that ends at the first time asked for is part of the answer",
        "protocol/records/kernel/times.pxi",
        "if span.low <= last_ms and span.high >= from_ms:\n                hit = True",
        "if span.low <= last_ms and span.high > from_ms:\n                hit = True",
        "records/test_times.py::test_no_block_that_holds_an_answer_is_left_out",
        compiled=True,
    ),
    Mutant(
        "groups: a member of an earlier generation is refused",
        "server/groups/group.py",
        "if generation != self.generation:",
        "if generation > self.generation:",
        "groups/test_group.py::test_generations_are_checked",
    ),
    Mutant(
        "rights: a rule that denies wins over one that allows",
        "server/security/acls.py",
        "return Decision(False, Reason.DENIED_BY_RULE, acl)",
        "continue",
        "rights/test_rules.py::test_a_rule_that_denies_wins",
    ),
    Mutant(
        "quotas: a client that sent too much waits until its rate is within the quota",
        "server/quotas/meter.py",
        "return max(total / limit - seconds, 0.0)",
        "return max(total / limit - seconds - windows.seconds, 0.0)",
        "quotas/test_rates.py::test_a_rate_is_that_of_a_plain_list",
    ),
    Mutant(
        "replication: the high watermark is the lowest end of the in-sync replicas",
        "replication/leader.py",
        "if of_session < end:",
        "if of_session > end:",
        "replication/test_reminders.py::test_it_goes_with_the_next_messages",
    ),
    Mutant(
        "replication: an epoch ends where the next one begins",
        "storage/log/epoch_history.py",
        "end_offset = min(self.starts[number].start_offset, log_end_offset)",
        "end_offset = log_end_offset",
        "followers/test_epoch_history.py::test_epochs_end_within_a_log_that_was_trimmed",
    ),
    Mutant(
        "client: the next sequence number counts every message of a batch",
        "client/produce/batch_delivery.py",
        "(sequence.next_number + count) % SEQUENCES",
        "(sequence.next_number + 1) % SEQUENCES",
        "client/test_record_batches.py::test_columns_with_headers",
    ),
    Mutant(
        "client: a key's partition is that of Kafka's clients",
        "protocol/partitioner.py",
        "(murmur2(key) & 0x7FFF_FFFF) % partitions",
        "murmur2(key) % partitions",
        "client/test_partitioner.py::test_a_negative_hash_counts_without_its_sign",
    ),
    Mutant(
        "command line: an output without a reader does not change the exit code",
        "cli/output.py",
        "        drop(sys.stdout)\n        raise OutputClosed from None\n",
        "        raise OutputClosed from None\n",
        "cli/test_exit_codes.py::test_an_output_that_takes_nothing",
    ),
    Mutant(
        "pipeline: a small partition beside a large one is not passed over",
        "pipeline/planning.py",
        "share = max(size * most // total, 1)",
        "share = size * most // total",
        "pipeline/test_planning.py::test_a_rate_limit_advances_every_partition",
    ),
    Mutant(
        "window topics: a set made anew ends at the last message that is kept",
        "protocol/records/selection.py",
        "last_offset_delta=kept.last_offset,",
        "last_offset_delta=header.last_offset_delta,",
        "records/test_keeping.py::test_a_batch_keeps_its_header_but_for_what_changed",
    ),
    Mutant(
        "groups: a commit that repeats the offset is no move",
        "server/handlers/positions.py",
        "if before is None or before.offset != position.offset:",
        "if True:",
        "groups/test_admin.py::test_a_commit_of_the_same_offset_is_no_move",
    ),
    Mutant(
        "window topics: a reader finds the end at the offset that it asks for",
        "server/handlers/window_fetch.py",
        "last_stable_offset = max(latest, read.kept_offset)",
        "last_stable_offset = latest",
        "window_topics/test_broker.py::test_positions_between_the_log_start_and_the_log_end",
    ),
    Mutant(
        "window topics: sets go as stored only behind the first that does",
        "server/window_memory.py",
        "if known is None or not known.stored[0] <= offset < known.stored[1]:",
        "if known is None or not offset < known.stored[1]:",
        "window_topics/test_as_stored.py::test_a_reader_that_goes_back_gets_the_messages_of_the_window",
    ),
    Mutant(
        "window topics: an append of other times wakes no reader",
        "storage/log/recent_appends.py",
        "if not times.meet(low_ms, high_ms):",
        "if not times.meet(0, high_ms):",
        "window_topics/test_wakes.py::test_a_reader_of_other_times_does_not_pass_over_earlier_appends",
    ),
    Mutant(
        "window topics: a reader does not pass over appends that came before it",
        "storage/log/recent_appends.py",
        "            self._end_run()\n            extent.grow",
        "            extent.grow",
        "window_topics/test_wakes.py::test_a_reader_of_other_times_does_not_pass_over_earlier_appends",
    ),
    Mutant(
        "window topics: a reader of more windows than are remembered comes to the end of some",
        "server/window_memory.py",
        "if self._uses - known[oldest].used <= _STALE_USES:",
        "if False:",
        "window_topics/test_memory.py::test_more_windows_in_turn_than_are_kept",
    ),
    Mutant(
        "window topics: only handlers that read find the log of a window",
        "server/logs.py",
        "            check_not_window(self._directory.topics(), topic)\n            log = ",
        '            topic = topic.partition("..")[0]\n            log = ',
        "window_topics/test_requests.py::test_all_others_are_refused_and_change_nothing",
    ),
    Mutant(
        "test kit: a producer id is given out once, whatever is restored",
        "testing/snapshots.py",
        'frozenset(("disk-reserve", "producer-ids"))',
        'frozenset(("disk-reserve",))',
        "plugin/test_snapshots.py::test_a_producer_id_is_given_out_once",
    ),
    Mutant(
        "test kit: a restored broker knows no producer",
        "testing/snapshots.py",
        "    states.keep(0)\n",
        "",
        "plugin/test_snapshots.py::test_retries_and_gaps_are_found_after_a_restore",
    ),
    Mutant(
        "test kit: without faults, requests have the handlers of production",
        "testing/faults.py",
        "self._wrapped if self._armed else None",
        "self._wrapped",
        "plugin/test_faults.py::test_without_faults_requests_go_the_way_that_they_go_in_production",
    ),
    Mutant(
        "test kit: a clock that was set back is believed at once",
        "testing/broker.py",
        "            broker.trusted_time.believe()\n",
        "            pass\n",
        "plugin/test_clock.py::test_retention_follows_a_clock_that_was_set_back_to_another_year",
    ),
    Mutant(
        "test kit: a file that a snapshot shares is copied before it is changed",
        "testing/files.py",
        "        if not read_only:\n            _unshare(path)\n",
        "",
        "plugin/test_cluster.py::test_a_snapshot_stays_as_it_is_when_a_closed_segment_is_truncated",
    ),
    Mutant(
        "test kit: fixtures of the session store before those of a module",
        "testing/plugin.py",
        "for name in named.staying:",
        "for name in ():",
        "plugin/test_runs.py::test_fixtures_of_the_session_come_first_and_stay",
    ),
)
