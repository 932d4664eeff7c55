//! What a store does, for the recorder of the application, under the names that the command exports it by.

use std::time::Duration;

use metrics::{counter, gauge, histogram};
use statestore_proto::message::CommandKind;
use statestore_proto::store::{Handled, Verdict};

use crate::stats::StoreStats;

/// Counts what became of a message.
pub(crate) fn handled(handled: &Handled) {
    let verdict = match handled.verdict {
        Verdict::Applied => "applied",
        Verdict::NotApplied => "not_applied",
        Verdict::Absent => "absent",
        Verdict::Repeated => "repeated",
        Verdict::Refused(refusal) => {
            counter!("statestore_refusals_total", "reason" => refusal.name()).increment(1);
            "refused"
        }
        Verdict::Dropped(reason) => {
            counter!("statestore_dropped_messages_total", "reason" => reason.name()).increment(1);
            return;
        }
        _ => return,
    };
    let verb = handled.verb.map_or("unknown", CommandKind::name);
    counter!("statestore_requests_total", "verb" => verb, "verdict" => verdict).increment(1);
}

/// Counts an answer that the link has taken.
pub(crate) fn answered(took: Duration) {
    histogram!("statestore_request_duration_seconds").record(took);
}

/// Counts a commit of the journal.
pub(crate) fn committed(took: Duration) {
    histogram!("statestore_journal_commit_duration_seconds").record(took);
}

/// Says what there is, and what is counted beside requests.
#[expect(clippy::cast_precision_loss, reason = "numbers that nobody reads to the last digit")]
pub(crate) fn holds(stats: &StoreStats) {
    let StoreStats { counters, .. } = stats;
    for (name, value) in [
        ("statestore_keys", stats.keys),
        ("statestore_stored_bytes", stats.bytes),
        ("statestore_watches", stats.watches),
        ("statestore_unanswered_requests", stats.unanswered),
        ("statestore_waiting_outputs", stats.waiting),
        ("statestore_waiting_output_bytes", stats.waiting_bytes),
    ] {
        gauge!(name).set(value as f64);
    }
    for (name, millis) in [
        ("statestore_clock_ahead_max_seconds", counters.ahead_max_ms),
        ("statestore_clock_behind_max_seconds", counters.behind_max_ms),
    ] {
        gauge!(name).set(millis as f64 / 1_000.0);
    }
    for (name, value) in [
        ("statestore_notifications_total", counters.notifications),
        ("statestore_expired_values_total", counters.expired_values),
        ("statestore_lost_watches_total", counters.watches_lost),
        ("statestore_writes_set_ahead_total", counters.set_ahead),
    ] {
        counter!(name).absolute(value);
    }
}
