//! Numbers in the text format of Prometheus, version 0.0.4. `docs/metrics.md` says what each of them means.

use std::fmt::{Display, Write};
use std::time::Duration;

use statestore_embedded::{Stats, Traffic};
use statestore_proto::message::{CommandKind, Refusal};
use statestore_proto::store::{Counters, DropReason, Verdicts};
use statestore_tokio::{Histogram, StoreStats};

/// The content type.
pub(super) const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Everything there is to say.
pub(super) fn of(stats: &StoreStats, is_ready: bool, broker: Option<&(Stats, Traffic)>) -> String {
    let mut text = Text(String::with_capacity(16 << 10));
    text.head("statestore_build_info", "gauge", "Always 1; the label says the version.");
    text.sample("statestore_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    let ready = u8::from(is_ready);
    text.gauge("statestore_ready", "Whether requests reach the store.", ready);
    text.requests(&stats.counters);
    let took = "From the arrival of a request until its answer is handed over.";
    text.histogram("statestore_request_duration_seconds", took, &stats.requests);
    let took = "From the begin of a commit until all of it is safe.";
    text.histogram("statestore_journal_commit_duration_seconds", took, &stats.commits);
    text.held(stats);
    if let Some((stats, traffic)) = broker {
        text.broker(stats, *traffic);
    }
    text.0
}

struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // A string takes everything.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Names and values of labels are of this program, with nothing in them to be escaped.
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
        self.head(name, "counter", "Requests answered, by verb and by what came of them.");
        let refused =
            |of: &Verdicts| Refusal::ALL.iter().map(|reason| of.refused_for(*reason)).sum();
        for verb in CommandKind::ALL {
            let of = counters.of(*verb);
            for (verdict, count) in [
                ("applied", of.applied),
                ("not_applied", of.not_applied),
                ("absent", of.absent),
                ("repeated", of.repeated),
                ("refused", refused(of)),
            ] {
                self.sample(name, &[("verb", verb.name()), ("verdict", verdict)], count);
            }
        }
        let unreadable: u64 = refused(counters.unreadable());
        self.sample(name, &[("verb", "unknown"), ("verdict", "refused")], unreadable);
        let name = "statestore_refusals_total";
        self.head(name, "counter", "Requests refused, by the error that answers them.");
        for reason in Refusal::ALL {
            let verbs = CommandKind::ALL.iter().map(|verb| counters.of(*verb));
            let all = verbs.chain([counters.unreadable()]);
            let count: u64 = all.map(|of| of.refused_for(*reason)).sum();
            self.sample(name, &[("reason", reason.name())], count);
        }
        let name = "statestore_dropped_messages_total";
        self.head(name, "counter", "Messages that were not answered, by the reason.");
        for reason in DropReason::ALL {
            self.sample(name, &[("reason", reason.name())], counters.dropped_for(*reason));
        }
    }

    fn held(&mut self, stats: &StoreStats) {
        let StoreStats { counters, .. } = stats;
        let seconds = |millis| Duration::from_millis(millis).as_secs_f64();
        self.gauge("statestore_keys", "Keys stored.", stats.keys);
        self.gauge("statestore_stored_bytes", "Bytes of all keys and values.", stats.bytes);
        self.gauge("statestore_watches", "Registrations for notifications.", stats.watches);
        let help = "Requests whose answer is not handed over yet.";
        self.gauge("statestore_unanswered_requests", help, stats.unanswered);
        let help = "Packets of the store, and records if these are more, that wait.";
        self.gauge("statestore_waiting_outputs", help, stats.waiting);
        let help = "Bytes of what waits.";
        self.gauge("statestore_waiting_output_bytes", help, stats.waiting_bytes);
        let help = "The furthest that a stamp of a client was ahead of the clock here.";
        self.gauge("statestore_clock_ahead_max_seconds", help, seconds(counters.ahead_max_ms));
        let help = "The furthest that a SET of a client was behind the clock here.";
        self.gauge("statestore_clock_behind_max_seconds", help, seconds(counters.behind_max_ms));
        let help = "Writes that set the versions ahead of the clock here.";
        self.counter("statestore_writes_set_ahead_total", help, counters.set_ahead);
        let help = "Notifications caused.";
        self.counter("statestore_notifications_total", help, counters.notifications);
        let help = "Values that expired.";
        self.counter("statestore_expired_values_total", help, counters.expired_values);
        let help = "Registrations ended because their client was gone.";
        self.counter("statestore_lost_watches_total", help, counters.watches_lost);
    }

    fn broker(&mut self, stats: &Stats, traffic: Traffic) {
        for (name, help, value) in [
            ("statestore_broker_connections", "Connections of clients.", stats.connections),
            (
                "statestore_broker_sessions",
                "Sessions, of clients that are away too.",
                stats.sessions,
            ),
            ("statestore_broker_retained_messages", "Retained messages.", stats.retained),
            ("statestore_broker_memory_bytes", "Bytes that count against --memory.", stats.bytes),
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
                "Sessions that took too much.",
                stats.evicted,
            ),
            (
                "statestore_broker_offenders_total",
                "Connections ended for what came.",
                stats.offenders,
            ),
            ("statestore_broker_refused_logins_total", "Logins refused.", stats.refused_logins),
            ("statestore_broker_denied_total", "What the rules did not allow.", stats.denied),
        ] {
            self.counter(name, help, value);
        }
    }
}
