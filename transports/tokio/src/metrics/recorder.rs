//! Sends the metrics of a store to the recorder of the application, under the names that the
//! command `statestore` exports.

use std::time::Duration;

use metrics::{counter, gauge, histogram};
use statestore_proto::message::RequestKind;
use statestore_proto::store::{Handled, RequestOutcome};

use crate::metrics::stats::StoreStats;

/// Counts a message by its outcome.
pub(crate) fn count_message(handled: &Handled<'_>) {
    let verdict = match &handled.outcome {
        RequestOutcome::Applied => "applied",
        RequestOutcome::NotApplied => "not_applied",
        RequestOutcome::Absent => "absent",
        RequestOutcome::Duplicate => "repeated",
        RequestOutcome::Refused(refused) => {
            counter!("statestore_refusals_total", "reason" => refused.refusal().name())
                .increment(1);
            "refused"
        }
        RequestOutcome::Dropped(reason) => {
            counter!("statestore_dropped_messages_total", "reason" => reason.name()).increment(1);
            return;
        }
        _ => return,
    };
    let verb = handled.kind().map_or("unknown", RequestKind::name);
    counter!("statestore_requests_total", "verb" => verb, "verdict" => verdict).increment(1);
}

/// Records the time until the link has accepted a response.
pub(crate) fn record_response(took: Duration) {
    histogram!("statestore_request_duration_seconds").record(took);
}

/// Records the duration of a commit.
pub(crate) fn record_commit(took: Duration) {
    histogram!("statestore_journal_commit_duration_seconds").record(took);
}

/// Sets the gauges, and the counters that do not depend on requests.
#[expect(clippy::cast_precision_loss, reason = "metrics need no precision beyond 52 bits")]
pub(crate) fn set_gauges(stats: &StoreStats) {
    let StoreStats { counters, .. } = stats;
    for (name, value) in [
        ("statestore_keys", stats.keys),
        ("statestore_stored_bytes", stats.bytes),
        ("statestore_watches", stats.registrations),
        ("statestore_silenced_watches", stats.silenced_registrations),
        ("statestore_unanswered_requests", stats.pending_requests),
        ("statestore_waiting_outputs", stats.queued_outputs),
        ("statestore_waiting_output_bytes", stats.queued_bytes),
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
        ("statestore_lost_watches_total", counters.registrations_lost),
        ("statestore_silenced_watches_total", counters.registrations_silenced),
        ("statestore_writes_set_ahead_total", counters.clock_advances),
    ] {
        counter!(name).absolute(value);
    }
}
