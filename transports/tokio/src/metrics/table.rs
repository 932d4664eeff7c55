//! Names, types, units and help texts of the metrics of a store.

use crate::metrics::stats::StoreStats;

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricKind {
    /// A number that only grows while the process runs.
    Counter,
    /// A number that also falls.
    Gauge,
    /// A distribution; see [`Histogram`](crate::Histogram).
    Histogram,
}

impl MetricKind {
    /// Returns the name of the type in Prometheus: `counter`, `gauge` or `histogram`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Description of a metric.
///
/// [`Metric::of_store`] returns those of a store. An application that exports the [`StoreStats`]
/// itself can use their names and help texts:
///
/// ```
/// use statestore_tokio::service::StoreStats;
///
/// let mut text = String::new();
/// for (metric, value) in StoreStats::default().plain_metrics() {
///     text += &format!("# HELP {} {}\n{} {value}\n", metric.name, metric.help, metric.name);
/// }
/// assert!(text.contains("# HELP statestore_keys Keys stored, including expired ones"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// Name, as Prometheus expects it.
    pub name: &'static str,
    /// Type.
    pub kind: MetricKind,
    /// Unit, for example `seconds`, or what is counted.
    pub unit: &'static str,
    /// Names of the labels.
    pub labels: &'static [&'static str],
    /// Help text: one line of complete sentences.
    pub help: &'static str,
}

impl Metric {
    /// Requests, by verb and outcome: [`StoreStats::counters`].
    pub const REQUESTS: Self = Self::counter(
        "statestore_requests_total",
        "requests",
        "Requests that got a response, by verb and verdict.",
    )
    .with_labels(&["verb", "verdict"]);

    /// Refused requests, by error: [`StoreStats::counters`].
    pub const REFUSALS: Self = Self::counter(
        "statestore_refusals_total",
        "requests",
        "Refused requests, by the error in the response.",
    )
    .with_labels(&["reason"]);

    /// Messages without a response, by reason: [`StoreStats::counters`].
    pub const DROPPED_MESSAGES: Self = Self::counter(
        "statestore_dropped_messages_total",
        "messages",
        "Messages that the store dropped without a response, by reason.",
    )
    .with_labels(&["reason"]);

    /// [`StoreStats::response_times`].
    pub const REQUEST_DURATION: Self = Self::histogram(
        "statestore_request_duration_seconds",
        "seconds",
        "Time from the arrival of a request at the store until the broker or the connection has \
         accepted the response.",
    );

    /// [`StoreStats::commit_times`].
    pub const COMMIT_DURATION: Self = Self::histogram(
        "statestore_journal_commit_duration_seconds",
        "seconds",
        "Time from the start of a commit of the journal until it is durable.",
    );

    /// Returns the metrics of a store.
    pub fn of_store() -> impl Iterator<Item = Self> {
        let labelled = [Self::REQUESTS, Self::REFUSALS, Self::DROPPED_MESSAGES];
        let histograms = [Self::REQUEST_DURATION, Self::COMMIT_DURATION];
        labelled.into_iter().chain(histograms).chain(PLAIN.iter().map(|(metric, _)| *metric))
    }

    /// Describes a counter without labels.
    #[must_use]
    pub const fn counter(name: &'static str, unit: &'static str, help: &'static str) -> Self {
        Self { name, kind: MetricKind::Counter, unit, labels: &[], help }
    }

    /// Describes a gauge without labels.
    #[must_use]
    pub const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Self {
        Self { name, kind: MetricKind::Gauge, unit, labels: &[], help }
    }

    /// Describes a histogram without labels.
    #[must_use]
    pub const fn histogram(name: &'static str, unit: &'static str, help: &'static str) -> Self {
        Self { name, kind: MetricKind::Histogram, unit, labels: &[], help }
    }

    /// Sets the names of the labels.
    #[must_use]
    pub const fn with_labels(mut self, labels: &'static [&'static str]) -> Self {
        self.labels = labels;
        self
    }
}

/// A metric without labels, and its value.
type Plain = (Metric, fn(&StoreStats) -> f64);

/// The gauges and counters without labels.
const PLAIN: [Plain; 14] = [
    (
        Metric::gauge(
            "statestore_keys",
            "keys",
            "Keys stored, including expired ones that are not removed yet.",
        ),
        |stats| size(stats.keys),
    ),
    (Metric::gauge("statestore_stored_bytes", "bytes", "Bytes of all keys and values."), |stats| {
        size(stats.bytes)
    }),
    (
        Metric::gauge(
            "statestore_watches",
            "registrations",
            "Registrations for notifications, including silenced ones.",
        ),
        |stats| size(stats.registrations),
    ),
    (
        Metric::gauge(
            "statestore_silenced_watches",
            "registrations",
            "Registrations for which nothing is published, since a notification had no subscriber.",
        ),
        |stats| size(stats.silenced_registrations),
    ),
    (
        Metric::gauge(
            "statestore_unanswered_requests",
            "requests",
            "Requests whose response is not sent yet.",
        ),
        |stats| size(stats.pending_requests),
    ),
    (
        Metric::gauge(
            "statestore_waiting_outputs",
            "packets",
            "Queued packets, or queued records of the journal if there are more.",
        ),
        |stats| size(stats.queued_outputs),
    ),
    (
        Metric::gauge(
            "statestore_waiting_output_bytes",
            "bytes",
            "Bytes of queued packets and records.",
        ),
        |stats| size(stats.queued_bytes),
    ),
    (
        Metric::gauge(
            "statestore_clock_ahead_max_seconds",
            "seconds",
            "Largest time by which a timestamp of a client was ahead of the clock of the store.",
        ),
        |stats| seconds(stats.counters.ahead_max_ms),
    ),
    (
        Metric::gauge(
            "statestore_clock_behind_max_seconds",
            "seconds",
            "Largest time by which the timestamp of a SET was behind the clock of the store.",
        ),
        |stats| seconds(stats.counters.behind_max_ms),
    ),
    (
        Metric::counter(
            "statestore_writes_set_ahead_total",
            "requests",
            "Writes that moved the versions of all keys more than 5 seconds ahead of the clock of \
             the store.",
        ),
        |stats| count(stats.counters.clock_advances),
    ),
    (
        Metric::counter(
            "statestore_notifications_total",
            "notifications",
            "Notifications that changes of keys caused; some of them may not be delivered.",
        ),
        |stats| count(stats.counters.notifications),
    ),
    (
        Metric::counter("statestore_expired_values_total", "values", "Values that expired."),
        |stats| count(stats.counters.expired_values),
    ),
    (
        Metric::counter(
            "statestore_lost_watches_total",
            "registrations",
            "Registrations that ended because their client disconnected, or that were evicted.",
        ),
        |stats| count(stats.counters.registrations_lost),
    ),
    (
        Metric::counter(
            "statestore_silenced_watches_total",
            "registrations",
            "Registrations that were silenced, since a notification had no subscriber.",
        ),
        |stats| count(stats.counters.registrations_silenced),
    ),
];

impl StoreStats {
    /// Returns the gauges and counters without labels, and their values.
    pub fn plain_metrics(&self) -> impl Iterator<Item = (Metric, f64)> {
        PLAIN.iter().map(|(metric, value)| (*metric, value(self)))
    }
}

#[expect(clippy::cast_precision_loss, reason = "metrics need no precision beyond 52 bits")]
const fn size(value: usize) -> f64 {
    value as f64
}

#[expect(clippy::cast_precision_loss, reason = "metrics need no precision beyond 52 bits")]
const fn count(value: u64) -> f64 {
    value as f64
}

fn seconds(millis: u64) -> f64 {
    count(millis) / 1_000.0
}
