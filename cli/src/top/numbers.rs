//! The numbers of a store, as `serve --metrics` has them.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::escape::on_one_line;
use crate::scrape::{Answer, Url};
use crate::traffic::Traffic;

/// Values of a label that are looked at: a store has not half as many, and what answers may be no store.
const LABELS_MAX: usize = 64;

/// All numbers at one time, and those before.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    at: Instant,
    all: BTreeMap<String, f64>,
    before: Option<(Instant, BTreeMap<String, f64>)>,
}

/// Asks for them once.
pub(super) async fn fetch(url: &Url) -> Result<Numbers, String> {
    match url.numbers().await? {
        Answer { code: 200, body } => Numbers::parse(&body, tokio::time::Instant::now().into_std())
            .map_err(|error| url.error(error)),
        Answer { code, .. } => Err(url.error(format_args!("it answers {code}"))),
    }
}

/// Asks beside them for who asks, and for which keys.
pub(super) async fn fetch_traffic(url: &Url) -> Result<Traffic, String> {
    match url.beside("traffic").await? {
        Answer { code: 200, body } => {
            Traffic::decode(&body).map_err(|error| url.error(on_one_line(&error)))
        }
        Answer { code: 404, .. } => Err("this store does not count by client and key: start it with `serve --metrics HOST:PORT --traffic`".to_owned()),
        Answer { code, .. } => Err(url.error(format_args!("it answers {code}"))),
    }
}

impl Numbers {
    pub(super) fn parse(body: &str, at: Instant) -> Result<Self, String> {
        let samples = body.lines().filter(|line| line.starts_with("statestore_"));
        let parsed = samples.filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok().filter(|value: &f64| value.is_finite())?))
        });
        let all: BTreeMap<_, _> = parsed.collect();
        match all.is_empty() {
            true => {
                Err("it has no numbers of a store; is it the address of `serve --metrics`?"
                    .to_owned())
            }
            false => Ok(Self { at, all, before: None }),
        }
    }

    /// These are later than those.
    pub(super) fn since(&mut self, before: Self) {
        self.before = Some((before.at, before.all));
    }

    pub(super) fn get(&self, name: &str) -> Option<f64> {
        self.all.get(name).copied()
    }

    /// How much has come a second, where that is known; nothing since a new start.
    pub(super) fn rate(&self, name: &str) -> Option<f64> {
        let seconds = self.at.duration_since(self.before.as_ref()?.0).as_secs_f64();
        (seconds > 0.0).then(|| self.delta(name) / seconds)
    }

    fn delta(&self, name: &str) -> f64 {
        let now = self.get(name).unwrap_or(0.0);
        let before = self.before.as_ref().and_then(|(_, all)| all.get(name)).unwrap_or(&0.0);
        // It counts from zero again after a new start.
        if now < *before { now } else { now - before }
    }

    /// The values of a label among the samples of a name, in order: [`LABELS_MAX`] at most.
    pub(super) fn labels(&self, name: &str, label: &str) -> Vec<&str> {
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

    /// Below which time this part of the last requests was answered, in seconds: the bound of a bucket. Nothing where there
    /// were none.
    pub(super) fn quantile(&self, name: &str, part: f64) -> Option<f64> {
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

    fn numbers(requests: u64, fast: u64, at: Instant) -> Numbers {
        let text = format!(
            "# HELP x\nstatestore_requests_total{{verb=\"get\",verdict=\"applied\"}} {requests}\n\
             statestore_requests_total{{verb=\"set\",verdict=\"refused\"}} 1\nother 3\n\
             statestore_request_duration_seconds_bucket{{le=\"0.001\"}} {fast}\n\
             statestore_request_duration_seconds_bucket{{le=\"0.01\"}} {requests}\n\
             statestore_request_duration_seconds_bucket{{le=\"+Inf\"}} {requests}\n\
             statestore_request_duration_seconds_count {requests}\n"
        );
        Numbers::parse(&text, at).expect("numbers")
    }

    #[test]
    fn numbers_are_of_the_time_in_between() {
        let begun = tokio::time::Instant::now().into_std();
        let mut now = numbers(300, 190, begun + Duration::from_secs(2));
        assert_eq!(now.rate("statestore_keys"), None, "nothing before");
        now.since(numbers(100, 90, begun));
        let get = "statestore_requests_total{verb=\"get\",verdict=\"applied\"}";
        assert_eq!(now.rate(get), Some(100.0));
        assert_eq!(now.labels("statestore_requests_total", "verb"), ["get", "set"]);
        let name = "statestore_request_duration_seconds";
        assert_eq!((now.quantile(name, 0.5), now.quantile(name, 0.99)), (Some(0.001), Some(0.01)));
        // A new start counts from zero.
        now.since(numbers(1_000, 900, begun));
        assert_eq!(now.rate(get), Some(150.0));
        assert!(Numbers::parse("<html>", begun).is_err());
        // What lies cannot make a table without an end.
        let lies = (0..20_000).map(|number| {
            format!("statestore_requests_total{{verb=\"v{number}\",verdict=\"w{number}\"}} 1\n")
        });
        let lies = Numbers::parse(&lies.collect::<String>(), begun).expect("numbers");
        assert_eq!(lies.labels("statestore_requests_total", "verb").len(), LABELS_MAX);
    }
}
