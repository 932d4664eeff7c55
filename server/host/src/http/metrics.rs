//! Metrics in the text format of Prometheus, version 0.0.4. `docs/metrics.md` explains them.

use std::fmt::{Display, Write};
use std::time::SystemTime;

use statestore_broker::Stats;
use statestore_proto::message::{Refusal, RequestKind};
use statestore_proto::store::{Counters, OutcomeCounts};
use statestore_tokio::Histogram;
use statestore_tokio::service::{Metric, StoreStats};

use crate::broker::Traffic;
use crate::reload::LastReload;

/// Content type of the text.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const BUILD_INFO: Metric = Metric::gauge(
    "statestore_build_info",
    "1",
    "Always 1; the label `version` is the version of the server.",
)
.with_labels(&["version"]);

const READY: Metric =
    Metric::gauge("statestore_ready", "0 or 1", "Whether the server is ready, as /readyz reports.");

const FILE_LOADED: Metric = Metric::gauge(
    "statestore_file_loaded_timestamp_seconds",
    "Unix time",
    "Time of the last successful load of a file.",
)
.with_labels(&["file"]);

const CERTIFICATE_EXPIRY: Metric = Metric::gauge(
    "statestore_certificate_expiry_timestamp_seconds",
    "Unix time",
    "Time at which the certificate of the server expires.",
);

/// A metric of the broker, and its value.
type OfBroker = (Metric, fn(&Stats, Traffic) -> u64);

/// The metrics of the broker.
const BROKER: [OfBroker; 12] = [
    (
        Metric::gauge(
            "statestore_broker_connections",
            "connections",
            "Connections of clients, including those without a CONNECT.",
        ),
        |stats, _| size(stats.connections),
    ),
    (
        Metric::gauge(
            "statestore_broker_sessions",
            "sessions",
            "Sessions, including that of the store and those of disconnected clients.",
        ),
        |stats, _| size(stats.sessions),
    ),
    (
        Metric::gauge("statestore_broker_retained_messages", "messages", "Retained messages."),
        |stats, _| size(stats.retained),
    ),
    (
        Metric::gauge(
            "statestore_broker_memory_bytes",
            "bytes",
            "Bytes that count towards max-broker-memory.",
        ),
        |stats, _| size(stats.bytes),
    ),
    (
        Metric::counter(
            "statestore_broker_received_bytes_total",
            "bytes",
            "Bytes of MQTT from clients, without TLS and WebSocket.",
        ),
        |_, traffic| traffic.received,
    ),
    (
        Metric::counter(
            "statestore_broker_sent_bytes_total",
            "bytes",
            "Bytes of MQTT to clients, without TLS and WebSocket.",
        ),
        |_, traffic| traffic.sent,
    ),
    (
        Metric::counter(
            "statestore_broker_published_messages_total",
            "messages",
            "Messages that clients and the store published, including rejected and duplicate \
             ones. Wills do not count.",
        ),
        |stats, _| stats.published,
    ),
    (
        Metric::counter(
            "statestore_broker_dropped_messages_total",
            "messages",
            "Messages that did not reach a subscriber or the store: at QoS 0 to a client that \
             reads too slowly, expired, larger than the client accepts, or from a disconnected \
             client while the memory was full.",
        ),
        |stats, _| stats.dropped,
    ),
    (
        Metric::counter(
            "statestore_broker_evicted_sessions_total",
            "sessions",
            "Sessions, and connections without one, that were ended because a memory limit or the \
             session limit was reached.",
        ),
        |stats, _| stats.evicted,
    ),
    (
        Metric::counter(
            "statestore_broker_offenders_total",
            "connections",
            "Connections that were ended because of a protocol violation, or because no CONNECT \
             or no login decision arrived in time.",
        ),
        |stats, _| stats.violations,
    ),
    (
        Metric::counter("statestore_broker_refused_logins_total", "logins", "Refused logins."),
        |stats, _| stats.refused_logins,
    ),
    (
        Metric::counter(
            "statestore_broker_denied_total",
            "messages",
            "Messages, wills and topic filters of subscriptions that the rules did not allow.",
        ),
        |stats, _| stats.denied,
    ),
];

/// Returns all metrics.
pub(super) fn text(
    stats: &StoreStats,
    is_ready: bool,
    broker: Option<&(Stats, Traffic)>,
) -> String {
    let mut text = Text(String::with_capacity(16 << 10));
    text.head(BUILD_INFO);
    text.sample(BUILD_INFO.name, &[("version", env!("CARGO_PKG_VERSION"))], 1);
    text.plain(READY, u8::from(is_ready));
    text.requests(&stats.counters);
    text.histogram(Metric::REQUEST_DURATION, &stats.response_times);
    text.histogram(Metric::COMMIT_DURATION, &stats.commit_times);
    for (metric, value) in stats.plain_metrics() {
        text.plain(metric, value);
    }
    if let Some((stats, traffic)) = broker {
        for (metric, value) in BROKER {
            text.plain(metric, value(stats, *traffic));
        }
    }
    text.0
}

/// Returns the metrics of files that can be reloaded.
pub(super) fn files(reloads: &[LastReload], certificate_expiry: Option<SystemTime>) -> String {
    let mut text = Text(String::new());
    let seconds = |time: SystemTime| {
        time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
    };
    if !reloads.is_empty() {
        text.head(FILE_LOADED);
    }
    for reload in reloads {
        text.sample(FILE_LOADED.name, &[("file", reload.kind.name())], seconds(reload.at));
    }
    if let Some(expiry) = certificate_expiry {
        text.plain(CERTIFICATE_EXPIRY, seconds(expiry));
    }
    text.0
}

fn size(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

struct Text(String);

impl Text {
    fn head(&mut self, metric: Metric) {
        let Metric { name, kind, help, .. } = metric;
        // Writing to a string never fails.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {}\n", kind.name());
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

    /// A metric without labels.
    fn plain(&mut self, metric: Metric, value: impl Display) {
        self.head(metric);
        self.sample(metric.name, &[], value);
    }

    fn histogram(&mut self, metric: Metric, histogram: &Histogram) {
        self.head(metric);
        let name = metric.name;
        let bucket = format!("{name}_bucket");
        for (bound, count) in histogram.buckets() {
            self.sample(&bucket, &[("le", &bound.as_secs_f64().to_string())], count);
        }
        self.sample(&bucket, &[("le", "+Inf")], histogram.count());
        self.sample(&format!("{name}_sum"), &[], histogram.sum().as_secs_f64());
        self.sample(&format!("{name}_count"), &[], histogram.count());
    }

    fn requests(&mut self, counters: &Counters) {
        self.head(Metric::REQUESTS);
        let name = Metric::REQUESTS.name;
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
        self.head(Metric::REFUSALS);
        for reason in Refusal::ALL {
            let verbs = RequestKind::ALL.iter().map(|verb| counters.of(*verb));
            let all = verbs.chain([counters.malformed()]);
            let count: u64 = all.map(|of| of.refused_for(*reason)).sum();
            self.sample(Metric::REFUSALS.name, &[("reason", reason.name())], count);
        }
        self.head(Metric::DROPPED_MESSAGES);
        for (reason, count) in counters.dropped_by_reason() {
            self.sample(Metric::DROPPED_MESSAGES.name, &[("reason", reason)], count);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::reload::FileKind;

    fn all() -> impl Iterator<Item = Metric> {
        let own = [BUILD_INFO, READY].into_iter().chain(Metric::of_store());
        let broker = BROKER.into_iter().map(|(metric, _)| metric);
        own.chain(broker).chain([FILE_LOADED, CERTIFICATE_EXPIRY])
    }

    #[test]
    fn text_contains_each_metric_of_the_table_with_its_labels() {
        let broker = (Stats::default(), Traffic::default());
        let time = SystemTime::UNIX_EPOCH;
        let reload = LastReload { kind: FileKind::Policy, paths: Vec::new(), at: time };
        let text =
            text(&StoreStats::default(), true, Some(&broker)) + &files(&[reload], Some(time));
        for metric in all() {
            let Metric { name, kind, help, .. } = metric;
            let head = format!("# HELP {name} {help}\n# TYPE {name} {}\n{name}", kind.name());
            let (_, rest) = text.split_once(&head).expect(name);
            let sample = rest.lines().next().unwrap();
            let labels = sample.split_once('{').map_or("", |(_, labels)| labels);
            let labels = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0));
            let labels: Vec<_> = labels.filter(|label| *label != "le").collect();
            assert_eq!(labels, metric.labels, "{name}");
        }
        assert_eq!(text.matches("# HELP ").count(), all().count(), "and no other metric");
    }

    #[test]
    fn documentation_has_an_item_for_each_metric() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        // Later lines of an item are indented.
        let page = std::fs::read_to_string(path).unwrap().replace("\n  ", " ");
        let items = page.lines().filter(|line| line.starts_with("- `statestore_"));
        let items: BTreeMap<&str, &str> =
            items.filter_map(|item| Some((item.split('`').nth(1)?, item))).collect();
        for metric in all() {
            let Metric { name, kind, unit, help, .. } = metric;
            let expected = format!("- `{name}`, {}, {unit}: {help}", kind.name());
            let item = items.get(name).copied().unwrap_or_default();
            assert!(item.starts_with(&expected), "expected: {expected}\nfound:    {item}");
            for label in metric.labels {
                assert!(item.contains(&format!("`{label}`")), "{name}: {label}");
            }
        }
    }
}
