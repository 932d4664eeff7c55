//! Sends the metrics of a store to the recorder of the application, under the names that the
//! command `statestore` exports.

use std::time::Duration;

use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use statestore_proto::message::RequestKind;
use statestore_proto::store::{Handled, RequestOutcome};

use crate::metrics::stats::StoreStats;
use crate::metrics::table::{Metric, MetricKind};

/// Describes all metrics.
pub(crate) fn describe() {
    for Metric { name, kind, unit, help, .. } in Metric::of_store() {
        let unit = match unit {
            "seconds" => Unit::Seconds,
            "bytes" => Unit::Bytes,
            _ => Unit::Count,
        };
        match kind {
            MetricKind::Counter => describe_counter!(name, unit, help),
            MetricKind::Gauge => describe_gauge!(name, unit, help),
            MetricKind::Histogram => describe_histogram!(name, unit, help),
        }
    }
}

/// Counts a message by its outcome.
pub(crate) fn count_message(handled: &Handled<'_>) {
    let verdict = match &handled.outcome {
        RequestOutcome::Applied => "applied",
        RequestOutcome::NotApplied => "not_applied",
        RequestOutcome::Absent => "absent",
        RequestOutcome::Duplicate => "repeated",
        RequestOutcome::Refused(refused) => {
            counter!(Metric::REFUSALS.name, "reason" => refused.refusal().name()).increment(1);
            "refused"
        }
        RequestOutcome::Dropped(reason) => {
            counter!(Metric::DROPPED_MESSAGES.name, "reason" => reason.name()).increment(1);
            return;
        }
        _ => return,
    };
    let verb = handled.kind().map_or("unknown", RequestKind::name);
    counter!(Metric::REQUESTS.name, "verb" => verb, "verdict" => verdict).increment(1);
}

/// Records the time until the link has accepted a response.
pub(crate) fn record_response(took: Duration) {
    histogram!(Metric::REQUEST_DURATION.name).record(took);
}

/// Records the duration of a commit.
pub(crate) fn record_commit(took: Duration) {
    histogram!(Metric::COMMIT_DURATION.name).record(took);
}

/// Sets the gauges, and the counters that do not depend on requests.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "these counters are whole numbers"
)]
pub(crate) fn set_plain(stats: &StoreStats) {
    for (metric, value) in stats.plain_metrics() {
        match metric.kind {
            MetricKind::Counter => counter!(metric.name).absolute(value as u64),
            _ => gauge!(metric.name).set(value),
        }
    }
}
