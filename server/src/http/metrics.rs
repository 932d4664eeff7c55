//! Metrics in the text format of Prometheus, version 0.0.4. `docs/metrics.md` explains them.

use std::fmt::{Display, Write};
use std::time::{Duration, SystemTime};

use statestore_broker::Stats;
use statestore_proto::message::{Refusal, RequestKind};
use statestore_proto::store::{Counters, OutcomeCounts};
use statestore_tokio::Histogram;
use statestore_tokio::service::StoreStats;

use crate::broker::Traffic;
use crate::reload::LastReload;

/// Content type of the text.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns all metrics.
pub(super) fn text(
    stats: &StoreStats,
    is_ready: bool,
    broker: Option<&(Stats, Traffic)>,
) -> String {
    let mut text = Text(String::with_capacity(16 << 10));
    text.head("statestore_build_info", "gauge", "Always 1, with the version as a label.");
    text.sample("statestore_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    let ready = u8::from(is_ready);
    text.gauge("statestore_ready", "Whether requests reach the store.", ready);
    text.requests(&stats.counters);
    let took = "From the arrival of a request until its response is sent.";
    text.histogram("statestore_request_duration_seconds", took, &stats.response_times);
    let took = "From the start of a commit until it is durable.";
    text.histogram("statestore_journal_commit_duration_seconds", took, &stats.commit_times);
    text.held(stats);
    if let Some((stats, traffic)) = broker {
        text.broker(stats, *traffic);
    }
    text.0
}

/// Returns the metrics of files that can be reloaded.
pub(super) fn files(reloads: &[LastReload], certificate_expiry: Option<SystemTime>) -> String {
    let mut text = Text(String::new());
    let seconds = |time: SystemTime| {
        time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
    };
    let name = "statestore_file_loaded_timestamp_seconds";
    if !reloads.is_empty() {
        text.head(name, "gauge", "Time of the last successful load of a file.");
    }
    for reload in reloads {
        text.sample(name, &[("file", reload.kind.name())], seconds(reload.at));
    }
    if let Some(expiry) = certificate_expiry {
        let help = "Time at which the certificate of the server expires.";
        text.gauge("statestore_certificate_expiry_timestamp_seconds", help, seconds(expiry));
    }
    text.0
}

struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string never fails.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Names and values of labels are constants that need no escaping.
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        let mut before = '{';
        for (label, text) in labels {
            let _ = write!(self.0, "{before}{label}=\"{text}\"");
            before = ',';
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "gauge", help);
        self.sample(name, &[], value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.sample(name, &[], value);
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        for (bound, count) in histogram.buckets() {
            self.sample(&bucket, &[("le", &bound.as_secs_f64().to_string())], count);
        }
        self.sample(&bucket, &[("le", "+Inf")], histogram.count());
        self.sample(&format!("{name}_sum"), &[], histogram.sum().as_secs_f64());
        self.sample(&format!("{name}_count"), &[], histogram.count());
    }

    fn requests(&mut self, counters: &Counters) {
        let name = "statestore_requests_total";
        self.head(name, "counter", "Requests answered, by verb and outcome.");
        let refused =
            |of: &OutcomeCounts| Refusal::ALL.iter().map(|reason| of.refused_for(*reason)).sum();
        for verb in RequestKind::ALL {
            let of = counters.of(*verb);
            for (verdict, count) in [
                ("applied", of.applied),
                ("not_applied", of.not_applied),
                ("absent", of.absent),
                ("repeated", of.duplicates),
                ("refused", refused(of)),
            ] {
                self.sample(name, &[("verb", verb.name()), ("verdict", verdict)], count);
            }
        }
        let unreadable: u64 = refused(counters.malformed());
        self.sample(name, &[("verb", "unknown"), ("verdict", "refused")], unreadable);
        let name = "statestore_refusals_total";
        self.head(name, "counter", "Requests refused, by error.");
        for reason in Refusal::ALL {
            let verbs = RequestKind::ALL.iter().map(|verb| counters.of(*verb));
            let all = verbs.chain([counters.malformed()]);
            let count: u64 = all.map(|of| of.refused_for(*reason)).sum();
            self.sample(name, &[("reason", reason.name())], count);
        }
        let name = "statestore_dropped_messages_total";
        self.head(name, "counter", "Messages dropped without a response, by reason.");
        for (reason, count) in counters.dropped_by_reason() {
            self.sample(name, &[("reason", reason)], count);
        }
    }

    fn held(&mut self, stats: &StoreStats) {
        let StoreStats { counters, .. } = stats;
        let seconds = |millis| Duration::from_millis(millis).as_secs_f64();
        self.gauge("statestore_keys", "Keys stored.", stats.keys);
        self.gauge("statestore_stored_bytes", "Bytes of all keys and values.", stats.bytes);
        self.gauge("statestore_watches", "Registrations for notifications.", stats.registrations);
        let help = "Registrations for which nothing is published, since no client subscribes.";
        self.gauge("statestore_silenced_watches", help, stats.silenced_registrations);
        let help = "Requests whose response is not sent yet.";
        self.gauge("statestore_unanswered_requests", help, stats.pending_requests);
        let help = "Queued packets, or queued records if there are more.";
        self.gauge("statestore_waiting_outputs", help, stats.queued_outputs);
        let help = "Bytes of queued packets and records.";
        self.gauge("statestore_waiting_output_bytes", help, stats.queued_bytes);
        let help = "Largest lead of a client's timestamp over the local clock.";
        self.gauge("statestore_clock_ahead_max_seconds", help, seconds(counters.ahead_max_ms));
        let help = "Largest lag of a client's SET behind the local clock.";
        self.gauge("statestore_clock_behind_max_seconds", help, seconds(counters.behind_max_ms));
        let help = "Writes that set versions ahead of the local clock.";
        self.counter("statestore_writes_set_ahead_total", help, counters.clock_advances);
        let help = "Notifications sent.";
        self.counter("statestore_notifications_total", help, counters.notifications);
        let help = "Values that expired.";
        self.counter("statestore_expired_values_total", help, counters.expired_values);
        let help =
            "Registrations that ended because their client disconnected or that were evicted.";
        self.counter("statestore_lost_watches_total", help, counters.registrations_lost);
        let help = "Registrations silenced because a notification had no subscriber.";
        self.counter("statestore_silenced_watches_total", help, counters.registrations_silenced);
    }

    fn broker(&mut self, stats: &Stats, traffic: Traffic) {
        for (name, help, value) in [
            ("statestore_broker_connections", "Connections of clients.", stats.connections),
            (
                "statestore_broker_sessions",
                "Sessions, including those of disconnected clients.",
                stats.sessions,
            ),
            ("statestore_broker_retained_messages", "Retained messages.", stats.retained),
            (
                "statestore_broker_memory_bytes",
                "Bytes that count towards max-broker-memory.",
                stats.bytes,
            ),
        ] {
            self.gauge(name, help, value);
        }
        for (name, help, value) in [
            ("statestore_broker_received_bytes_total", "Bytes from clients.", traffic.received),
            ("statestore_broker_sent_bytes_total", "Bytes to clients.", traffic.sent),
            ("statestore_broker_published_messages_total", "Messages published.", stats.published),
            ("statestore_broker_dropped_messages_total", "Messages dropped.", stats.dropped),
            (
                "statestore_broker_evicted_sessions_total",
                "Sessions that exceeded their memory.",
                stats.evicted,
            ),
            (
                "statestore_broker_offenders_total",
                "Connections closed because of a protocol error.",
                stats.violations,
            ),
            ("statestore_broker_refused_logins_total", "Rejected logins.", stats.refused_logins),
            (
                "statestore_broker_denied_total",
                "Packets that the rules did not allow.",
                stats.denied,
            ),
        ] {
            self.counter(name, help, value);
        }
    }
}
