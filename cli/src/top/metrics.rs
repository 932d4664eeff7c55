//! The metrics of a store, from `serve --metrics-listen`.

use std::collections::BTreeMap;
use std::time::Instant;

/// Maximum number of values of a label. A store has fewer than half of that, but the endpoint may
/// not be a store.
const LABELS_MAX: usize = 64;

/// A sample of all metrics, with the previous sample.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    at: Instant,
    all: BTreeMap<String, f64>,
    previous: Option<(Instant, BTreeMap<String, f64>)>,
}

impl Metrics {
    /// Parses the text of `/metrics`, received at this time.
    ///
    /// # Errors
    /// A text, if there are no metrics of a store.
    pub(crate) fn parse(body: &str, at: Instant) -> Result<Self, String> {
        let samples = body.lines().filter(|line| line.starts_with("statestore_"));
        let parsed = samples.filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok().filter(|value: &f64| value.is_finite())?))
        });
        let all: BTreeMap<_, _> = parsed.collect();
        match all.is_empty() {
            true => Err("no metrics of a store: is this the address of `serve --metrics-listen`?"
                .to_owned()),
            false => Ok(Self { at, all, previous: None }),
        }
    }

    /// Sets the previous sample.
    pub(crate) fn set_previous(&mut self, previous: Self) {
        self.previous = Some((previous.at, previous.all));
    }

    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.all.get(name).copied()
    }

    /// Returns the increase per second since the previous sample.
    pub(crate) fn rate(&self, name: &str) -> Option<f64> {
        let seconds = self.at.duration_since(self.previous.as_ref()?.0).as_secs_f64();
        (seconds > 0.0).then(|| self.delta(name) / seconds)
    }

    fn delta(&self, name: &str) -> f64 {
        let now = self.get(name).unwrap_or(0.0);
        let before = self.previous.as_ref().and_then(|(_, all)| all.get(name)).unwrap_or(&0.0);
        // After a restart of the store, it counts from zero.
        if now < *before { now } else { now - before }
    }

    /// Returns the sorted values of a label of a metric, at most [`LABELS_MAX`].
    pub(crate) fn labels(&self, name: &str, label: &str) -> Vec<&str> {
        let first = format!("{name}{{");
        let names = self.all.keys().filter(|key| key.starts_with(&first));
        let quoted = format!("{label}=\"");
        let mut found: Vec<_> = names
            .filter_map(|key| key.split_once(&quoted)?.1.split_once('"').map(|(text, _)| text))
            .collect();
        found.sort_unstable();
        found.dedup();
        found.truncate(LABELS_MAX);
        found
    }

    /// Returns the upper bound in seconds of the bucket with this quantile of the latest requests.
    pub(crate) fn quantile(&self, name: &str, part: f64) -> Option<f64> {
        let total = self.delta(&format!("{name}_count"));
        if total <= 0.0 {
            return None;
        }
        let first = format!("{name}_bucket{{le=\"");
        let buckets = self.all.keys().filter_map(|key| {
            let bound = key.strip_prefix(&first)?.strip_suffix("\"}")?;
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
            Some((bound, self.delta(key)))
        });
        let mut buckets: Vec<(f64, f64)> = buckets.collect();
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        buckets.iter().find(|(_, count)| *count >= total * part).map(|(bound, _)| *bound)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(requests: u64, fast: u64, at: Instant) -> Metrics {
        let text = format!(
            "# HELP x\nstatestore_requests_total{{verb=\"get\",verdict=\"applied\"}} {requests}\n\
             statestore_requests_total{{verb=\"set\",verdict=\"refused\"}} 1\nother 3\n\
             statestore_request_duration_seconds_bucket{{le=\"0.001\"}} {fast}\n\
             statestore_request_duration_seconds_bucket{{le=\"0.01\"}} {requests}\n\
             statestore_request_duration_seconds_bucket{{le=\"+Inf\"}} {requests}\n\
             statestore_request_duration_seconds_count {requests}\n"
        );
        Metrics::parse(&text, at).expect("metrics")
    }

    #[test]
    fn rates_and_quantiles_cover_the_time_between_samples() {
        let begun = tokio::time::Instant::now().into_std();
        let mut now = sample(300, 190, begun + Duration::from_secs(2));
        assert_eq!(now.rate("statestore_keys"), None, "no previous sample");
        now.set_previous(sample(100, 90, begun));
        let get = "statestore_requests_total{verb=\"get\",verdict=\"applied\"}";
        assert_eq!(now.rate(get), Some(100.0));
        assert_eq!(now.labels("statestore_requests_total", "verb"), ["get", "set"]);
        let name = "statestore_request_duration_seconds";
        assert_eq!((now.quantile(name, 0.5), now.quantile(name, 0.99)), (Some(0.001), Some(0.01)));
        // After a restart, the store counts from zero.
        now.set_previous(sample(1_000, 900, begun));
        assert_eq!(now.rate(get), Some(150.0));
        assert!(Metrics::parse("<html>", begun).is_err());
        // An endpoint with false metrics cannot produce an unlimited table.
        let samples = (0..20_000).map(|number| {
            format!("statestore_requests_total{{verb=\"v{number}\",verdict=\"w{number}\"}} 1\n")
        });
        let metrics = Metrics::parse(&samples.collect::<String>(), begun).expect("metrics");
        assert_eq!(metrics.labels("statestore_requests_total", "verb").len(), LABELS_MAX);
    }
}
