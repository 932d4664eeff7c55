//! Metrics of a store in the recorder of the application.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use statestore_loopback::Hub;
use statestore_tokio::service::{Metric, MetricKind};

use crate::both;

/// Recorded values by name and labels; for histograms, the number of samples.
#[derive(Clone, Debug, Default)]
struct Recorded(Arc<Mutex<BTreeMap<String, f64>>>, Arc<Mutex<BTreeMap<String, Description>>>);

/// Type, unit and help text of a metric.
type Description = (MetricKind, Option<Unit>, String);

/// One metric.
struct One(Recorded, String);

impl One {
    fn change(&self, change: impl FnOnce(f64) -> f64) {
        let mut all = self.0.0.lock().expect("no panic elsewhere");
        let value = all.entry(self.1.clone()).or_default();
        *value = change(*value);
    }
}

impl CounterFn for One {
    fn increment(&self, more: u64) {
        self.change(|value| value + more as f64);
    }

    fn absolute(&self, now: u64) {
        self.change(|value| value.max(now as f64));
    }
}

impl GaugeFn for One {
    fn increment(&self, more: f64) {
        self.change(|value| value + more);
    }

    fn decrement(&self, less: f64) {
        self.change(|value| value - less);
    }

    fn set(&self, now: f64) {
        self.change(|_| now);
    }
}

impl HistogramFn for One {
    fn record(&self, _: f64) {
        self.change(|count| count + 1.0);
    }
}

impl Recorded {
    fn one(&self, key: &Key) -> Arc<One> {
        let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value()));
        let name = std::iter::once(key.name().to_owned()).chain(labels).collect();
        Arc::new(One(self.clone(), name))
    }

    fn describe(&self, name: &KeyName, kind: MetricKind, unit: Option<Unit>, help: &SharedString) {
        let mut all = self.1.lock().expect("no panic elsewhere");
        all.insert(name.as_str().to_owned(), (kind, unit, help.to_string()));
    }

    fn value(&self, name: &str) -> Option<f64> {
        self.0.lock().expect("no panic elsewhere").get(name).copied()
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe(&name, MetricKind::Counter, unit, &help);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe(&name, MetricKind::Gauge, unit, &help);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe(&name, MetricKind::Histogram, unit, &help);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.one(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.one(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.one(key))
    }
}

#[test]
fn recorder_of_the_application_receives_the_metrics_of_the_store() {
    let recorded = Recorded::default();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().expect("a runtime");
    let stats = metrics::with_local_recorder(&recorded, || {
        runtime.block_on(async {
            let (service, store) = both(&Hub::new()).await;
            store.set("k", "v").await.expect("a version");
            store.set("k", "value").await.expect("a version");
            assert!(store.get("none").await.expect("a response").is_none());
            assert!(store.set("k", "x").if_absent().await.expect("a response").is_none());
            let token = store.set("lock", "me").await.expect("a version").to_fencing_token();
            store.set("f", "1").fencing_token(token).await.expect("a version");
            assert!(store.set("f", "2").await.is_err(), "the key is fenced");
            let stats = service.stats_handle();
            store.shutdown().await;
            service.shutdown().await;
            stats.current()
        })
    });
    for (name, value) in [
        ("statestore_requests_total verb=set verdict=applied", 4.0),
        ("statestore_requests_total verb=set verdict=not_applied", 1.0),
        ("statestore_requests_total verb=set verdict=refused", 1.0),
        ("statestore_requests_total verb=get verdict=absent", 1.0),
        ("statestore_refusals_total reason=fencing_token_required", 1.0),
        ("statestore_request_duration_seconds", 7.0),
        ("statestore_keys", 3.0),
        ("statestore_stored_bytes", 14.0),
        ("statestore_unanswered_requests", 0.0),
    ] {
        assert_eq!(recorded.value(name), Some(value), "{name}: {recorded:?}");
    }
    let described = recorded.1.lock().expect("no panic elsewhere").clone();
    let expected = Metric::of_store().map(|metric| {
        let unit = match metric.unit {
            "seconds" => Unit::Seconds,
            "bytes" => Unit::Bytes,
            _ => Unit::Count,
        };
        (metric.name.to_owned(), (metric.kind, Some(unit), metric.help.to_owned()))
    });
    assert_eq!(described, expected.collect(), "each metric is described as in the table");
    let names: BTreeSet<_> = described.keys().map(String::as_str).collect();
    let recorded = recorded.0.lock().expect("no panic elsewhere");
    let unknown =
        recorded.keys().find(|key| !key.split(' ').next().is_some_and(|name| names.contains(name)));
    assert_eq!(unknown, None, "no other metric is recorded");
    assert_eq!((stats.keys, stats.response_times.count(), stats.pending_requests), (3, 7, 0));
}
