//! Recent requests by client and by key.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use statestore_proto::hlc::HlcRef;
use statestore_proto::message::KeyPreview;
use statestore_proto::store::{Handled, Principal, RequestOutcome};
use statestore_proto::time::UnixTime;
use statestore_proto::transport::Incoming;
use tokio::time::Instant;

use crate::metrics::stats::lock_mutex;

/// Maximum number of clients, and of keys, that are counted separately. Beyond that, the least
/// active row is evicted. Any client with access can fill both tables.
const ROWS_MAX: usize = 256;

/// Maximum length of a client id or a key; longer ones are truncated.
const NAME_BYTES_MAX: usize = 128;

/// Time after which the weight of a request halves.
const HALF_LIFE: Duration = Duration::from_secs(10);

/// Number of half-lives after which weights are scaled, long before they overflow an `f64`.
const SCALED_AFTER: f64 = 500.0;

/// The most active clients and keys: at most 256 of each, by descending request rate.
///
/// Client ids and keys of more than 128 bytes are truncated, and share a row with others that have
/// the same first 128 bytes. The counts of an evicted row are lost: a row counts from its latest
/// creation on.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Traffic {
    /// Clients by client id.
    pub clients: Vec<ClientTraffic>,
    /// Keys, including those without a value.
    pub keys: Vec<KeyTraffic>,
}

/// Requests of a client.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClientTraffic {
    /// The client id; empty for requests without one.
    pub client_id: String,
    /// Set if the broker has verified the client id.
    pub verified: bool,
    /// Requests, including refused ones.
    pub requests: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Requests per second, averaged over about ten seconds.
    pub per_second: f64,
    /// Milliseconds that the latest `__ts` of the client was ahead of the local clock; negative if
    /// it was behind.
    pub ahead_ms: Option<i64>,
}

/// Requests about a key.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct KeyTraffic {
    /// The key.
    pub key: Bytes,
    /// Requests, including refused ones.
    pub requests: u64,
    /// SET, DEL and VDEL requests.
    pub writes: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Requests per second, averaged over about ten seconds.
    pub per_second: f64,
}

impl fmt::Debug for KeyTraffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, requests, writes, refused, per_second } = self;
        f.debug_struct("KeyTraffic")
            .field("key", &KeyPreview(key))
            .field("requests", requests)
            .field("writes", writes)
            .field("refused", refused)
            .field("per_second", per_second)
            .finish()
    }
}

/// Reads the [`Traffic`] of a service, also after the service has ended.
#[derive(Clone)]
pub struct TrafficHandle(Arc<Mutex<Tables>>);

impl fmt::Debug for TrafficHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrafficHandle").finish_non_exhaustive()
    }
}

impl TrafficHandle {
    pub(crate) fn new(now: Instant) -> Self {
        let (clients, keys) = (Rows::default(), Rows::default());
        Self(Arc::new(Mutex::new(Tables { started: now, clients, keys })))
    }

    /// The traffic now.
    #[must_use]
    pub fn current(&self) -> Traffic {
        lock_mutex(&self.0).snapshot(Instant::now())
    }

    /// Counts a request unless it was dropped.
    pub(crate) fn count(
        &self,
        now: Instant,
        unix: UnixTime,
        from: Principal<'_>,
        incoming: &Incoming<'_>,
        handled: &Handled<'_>,
    ) {
        if matches!(handled.outcome, RequestOutcome::Dropped(_)) {
            return;
        }
        let refused = u64::from(handled.refused().is_some());
        let Tables { started, clients, keys } = &mut *lock_mutex(&self.0);
        let at = half_lives(now.saturating_duration_since(*started));
        let client = clients.row(from.client_id().unwrap_or_default().as_bytes(), at);
        client.verified = from.is_verified();
        client.requests += 1;
        client.refused += refused;
        if let Some(stamp) = incoming.properties.timestamp.and_then(|text| HlcRef::parse(text).ok())
        {
            client.ahead_ms = Some(ahead_ms(unix, stamp.wall()));
        }
        let Some(request) = &handled.request else { return };
        let Some(key) = request.key() else { return };
        let key = keys.row(key, at);
        key.requests += 1;
        key.refused += refused;
        key.writes += u64::from(request.kind().is_write());
    }
}

fn half_lives(time: Duration) -> f64 {
    time.as_secs_f64() / HALF_LIFE.as_secs_f64()
}

fn ahead_ms(now: UnixTime, wall: UnixTime) -> i64 {
    let difference = i128::from(wall.as_millis()) - i128::from(now.as_millis());
    let bounded = difference.clamp(i64::MIN.into(), i64::MAX.into());
    i64::try_from(bounded).unwrap_or_default()
}

struct Tables {
    started: Instant,
    clients: Rows<ClientCounts>,
    keys: Rows<KeyCounts>,
}

#[derive(Clone, Copy, Default)]
struct ClientCounts {
    verified: bool,
    requests: u64,
    refused: u64,
    ahead_ms: Option<i64>,
}

#[derive(Clone, Copy, Default)]
struct KeyCounts {
    requests: u64,
    writes: u64,
    refused: u64,
}

impl Tables {
    fn snapshot(&self, now: Instant) -> Traffic {
        let at = half_lives(now.saturating_duration_since(self.started));
        let clients = self.clients.by_rate(at).into_iter().map(|(name, per_second, counts)| {
            let ClientCounts { verified, requests, refused, ahead_ms } = *counts;
            let client_id = String::from_utf8_lossy(name).into_owned();
            ClientTraffic { client_id, verified, requests, refused, per_second, ahead_ms }
        });
        let keys = self.keys.by_rate(at).into_iter().map(|(name, per_second, counts)| {
            let KeyCounts { requests, writes, refused } = *counts;
            let key = Bytes::copy_from_slice(name);
            KeyTraffic { key, requests, writes, refused, per_second }
        });
        Traffic { clients: clients.collect(), keys: keys.collect() }
    }
}

/// Counts by name.
///
/// Weights grow by a factor of two per half-life, instead of decaying, so that rows need no update
/// as time passes.
#[derive(Default)]
struct Rows<R> {
    rows: BTreeMap<Box<[u8]>, (f64, R)>,
    /// The time, in half-lives, at which the weight of a request is one.
    base: f64,
}

impl<R: Default> Rows<R> {
    /// Returns the row of this name, for a request at this time in half-lives.
    fn row(&mut self, name: &[u8], at: f64) -> &mut R {
        if at - self.base > SCALED_AFTER {
            let scale = (self.base - at).exp2();
            self.rows.values_mut().for_each(|(weight, _)| *weight *= scale);
            self.base = at;
        }
        let name = name.get(..NAME_BYTES_MAX).unwrap_or(name);
        if self.rows.len() >= ROWS_MAX && !self.rows.contains_key(name) {
            let least = self.rows.iter().min_by(|(_, row), (_, other)| row.0.total_cmp(&other.0));
            if let Some(least) = least.map(|(name, _)| name.clone()) {
                self.rows.remove(&least);
            }
        }
        let (weight, row) = self.rows.entry(name.into()).or_default();
        *weight += (at - self.base).exp2();
        row
    }

    /// Name, requests per second and counts of each row, by descending rate.
    fn by_rate(&self, at: f64) -> Vec<(&[u8], f64, &R)> {
        let scale = (self.base - at).exp2() * core::f64::consts::LN_2 / HALF_LIFE.as_secs_f64();
        let rows = self.rows.iter().map(|(name, (weight, row))| (&**name, weight * scale, row));
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by(|row, other| other.1.total_cmp(&row.1));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<R: Default>(rows: &Rows<R>, at: f64) -> Vec<&[u8]> {
        rows.by_rate(at).into_iter().map(|(name, ..)| name).collect()
    }

    #[test]
    fn highest_current_rate_comes_first() {
        let mut rows = Rows::<u64>::default();
        let mut at = 0.0;
        // Ten requests a second for a minute, then five a second of another name.
        for _ in 0..600 {
            at += half_lives(Duration::from_millis(100));
            *rows.row(b"first", at) += 1;
        }
        let rate = rows.by_rate(at).first().map(|(_, rate, _)| *rate).unwrap_or_default();
        assert!((9.0..11.0).contains(&rate), "{rate}");
        for _ in 0..300 {
            at += half_lives(Duration::from_millis(200));
            *rows.row(b"second", at) += 1;
        }
        assert_eq!(names(&rows, at), [&b"second"[..], b"first"]);
        let rates: Vec<_> =
            rows.by_rate(at).iter().map(|(_, rate, count)| (*rate, **count)).collect();
        let [(second, 300), (first, 600)] = rates[..] else { panic!("{rates:?}") };
        assert!((4.5..5.5).contains(&second) && first < 0.5, "{rates:?}");
    }

    #[test]
    fn flood_of_names_does_not_evict_a_frequent_one() {
        let mut rows = Rows::<u64>::default();
        for number in 0..100_000_u32 {
            let at = half_lives(Duration::from_millis(u64::from(number)));
            rows.row(&number.to_be_bytes(), at);
            if number % 50 == 0 {
                *rows.row(b"often", at) += 1;
            }
        }
        assert_eq!(rows.rows.len(), ROWS_MAX);
        let at = half_lives(Duration::from_secs(100));
        let rows = rows.by_rate(at);
        let (name, rate, count) = rows.first().expect("rows");
        assert_eq!((*name, **count), (&b"often"[..], 2_000));
        assert!((18.0..22.0).contains(rate), "{rate}");
    }

    #[test]
    fn weights_stay_finite_for_a_hundred_years() {
        let mut rows = Rows::<u64>::default();
        for year in 0..100 {
            let at = half_lives(Duration::from_secs(year * 365 * 24 * 3_600));
            rows.row(b"yearly", at);
            rows.row(&[b'x'; 10_000], at);
            rows.row(&[b'x'; 20_000], at);
            let rates: Vec<_> =
                rows.by_rate(at).iter().map(|(name, rate, _)| (name.len(), *rate)).collect();
            let [(NAME_BYTES_MAX, long), (6, short)] = rates[..] else { panic!("{rates:?}") };
            assert!((1.9..2.1).contains(&(long / short)), "{rates:?}");
            assert!((0.06..0.08).contains(&short), "{rates:?}");
        }
    }
}
