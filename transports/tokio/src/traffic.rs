//! Who asks a store, and for which keys, lately.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use statestore_proto::hlc::HlcRef;
use statestore_proto::message::{Command, CommandKind, KeyPreview};
use statestore_proto::mqtt::Incoming;
use statestore_proto::store::{Handled, Principal, Verdict};
use statestore_proto::time::UnixTime;
use tokio::time::Instant;

use crate::stats::lock;

/// Clients that are told apart, and keys; of more, those who ask least give way. Anybody who may ask can fill both.
const ROWS_MAX: usize = 256;

/// Bytes of a name that are kept.
const NAME_BYTES_MAX: usize = 128;

/// After which time a request counts for half.
const HALF_LIFE: Duration = Duration::from_secs(10);

/// Half-lives after which weights are scaled, long before they leave the range of a number.
const SCALED_AFTER: f64 = 500.0;

/// Who asks most at the time, and for which keys: at most 256 of each, those who ask most first.
///
/// Names of more than 128 bytes are cut, and count together with others that begin alike. Of a row that has given way to others
/// nothing is known any more: counts are since a row was there.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Traffic {
    /// Clients by their ids.
    pub clients: Vec<ClientTraffic>,
    /// Keys, those included that have no value.
    pub keys: Vec<KeyTraffic>,
}

/// What a client has asked.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClientTraffic {
    /// The client id; empty for requests that say none.
    pub client_id: String,
    /// Whether a broker vouches for it.
    pub verified: bool,
    /// Requests that were answered.
    pub requests: u64,
    /// Those of them that were refused.
    pub refused: u64,
    /// Requests a second, over some ten seconds.
    pub per_second: f64,
    /// How far its last `__ts` was ahead of the clock here, in milliseconds; behind it if negative.
    pub ahead_ms: Option<i64>,
}

/// What was asked of a key.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct KeyTraffic {
    /// The key.
    pub key: Bytes,
    /// Requests that were answered.
    pub requests: u64,
    /// SET, DEL and VDEL among them.
    pub writes: u64,
    /// Those that were refused.
    pub refused: u64,
    /// Requests a second, over some ten seconds.
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

/// Reads the [`Traffic`] of a service, which it may outlive.
#[derive(Clone)]
pub struct TrafficHandle(Arc<Mutex<Counted>>);

impl fmt::Debug for TrafficHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrafficHandle").finish_non_exhaustive()
    }
}

impl TrafficHandle {
    pub(crate) fn new(now: Instant) -> Self {
        let (clients, keys) = (Rows::default(), Rows::default());
        Self(Arc::new(Mutex::new(Counted { begun: now, clients, keys })))
    }

    /// Who asks, and for which keys, as of now.
    #[must_use]
    pub fn current(&self) -> Traffic {
        lock(&self.0).told(Instant::now())
    }

    /// Counts a request that was answered.
    pub(crate) fn count(
        &self,
        now: Instant,
        unix: UnixTime,
        from: Principal<'_>,
        incoming: &Incoming<'_>,
        handled: &Handled,
    ) {
        if matches!(handled.verdict, Verdict::Dropped(_)) {
            return;
        }
        let is_refused = u64::from(matches!(handled.verdict, Verdict::Refused(_)));
        let Counted { begun, clients, keys } = &mut *lock(&self.0);
        let at = half_lives(now.saturating_duration_since(*begun));
        let client = clients.asked(from.client_id().unwrap_or_default().as_bytes(), at);
        client.verified = from.is_verified();
        client.requests += 1;
        client.refused += is_refused;
        if let Some(stamp) = incoming.timestamp().and_then(|text| HlcRef::parse(text).ok()) {
            client.ahead_ms = Some(ahead_ms(unix, stamp.wall()));
        }
        let Ok(command) = Command::decode(incoming.payload) else { return };
        let key = keys.asked(command.key(), at);
        key.requests += 1;
        key.refused += is_refused;
        let is_write =
            matches!(command.kind(), CommandKind::Set | CommandKind::Del | CommandKind::VDel);
        key.writes += u64::from(is_write);
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

struct Counted {
    begun: Instant,
    clients: Rows<OfClient>,
    keys: Rows<OfKey>,
}

#[derive(Clone, Copy, Default)]
struct OfClient {
    verified: bool,
    requests: u64,
    refused: u64,
    ahead_ms: Option<i64>,
}

#[derive(Clone, Copy, Default)]
struct OfKey {
    requests: u64,
    writes: u64,
    refused: u64,
}

impl Counted {
    fn told(&self, now: Instant) -> Traffic {
        let at = half_lives(now.saturating_duration_since(self.begun));
        let clients = self.clients.most_first(at).into_iter().map(|(name, per_second, counts)| {
            let OfClient { verified, requests, refused, ahead_ms } = *counts;
            let client_id = String::from_utf8_lossy(name).into_owned();
            ClientTraffic { client_id, verified, requests, refused, per_second, ahead_ms }
        });
        let keys = self.keys.most_first(at).into_iter().map(|(name, per_second, counts)| {
            let OfKey { requests, writes, refused } = *counts;
            let key = Bytes::copy_from_slice(name);
            KeyTraffic { key, requests, writes, refused, per_second }
        });
        Traffic { clients: clients.collect(), keys: keys.collect() }
    }
}

/// Counts by name. What was asked later weighs more, twice for each half-life, so that nothing has to be made less as time goes by.
#[derive(Default)]
struct Rows<R> {
    rows: BTreeMap<Box<[u8]>, (f64, R)>,
    /// The time at which a request weighs one, in half-lives.
    base: f64,
}

impl<R: Default> Rows<R> {
    /// The row of whoever asks now, in half-lives.
    fn asked(&mut self, name: &[u8], at: f64) -> &mut R {
        if at - self.base > SCALED_AFTER {
            let scale = (self.base - at).exp2();
            self.rows.values_mut().for_each(|(weight, _)| *weight *= scale);
            self.base = at;
        }
        let name = name.get(..NAME_BYTES_MAX).unwrap_or(name);
        if self.rows.len() >= ROWS_MAX && !self.rows.contains_key(name) {
            let least = self.rows.iter().min_by(|(_, one), (_, other)| one.0.total_cmp(&other.0));
            if let Some(least) = least.map(|(name, _)| name.clone()) {
                self.rows.remove(&least);
            }
        }
        let (weight, row) = self.rows.entry(name.into()).or_default();
        *weight += (at - self.base).exp2();
        row
    }

    /// Name, requests a second and counts.
    fn most_first(&self, at: f64) -> Vec<(&[u8], f64, &R)> {
        let scale = (self.base - at).exp2() * core::f64::consts::LN_2 / HALF_LIFE.as_secs_f64();
        let rows = self.rows.iter().map(|(name, (weight, row))| (&**name, weight * scale, row));
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by(|one, other| other.1.total_cmp(&one.1));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<R: Default>(rows: &Rows<R>, at: f64) -> Vec<&[u8]> {
        rows.most_first(at).into_iter().map(|(name, ..)| name).collect()
    }

    #[test]
    fn who_asks_most_at_the_time_comes_first() {
        let mut rows = Rows::<u64>::default();
        let mut at = 0.0;
        // A steady ten a second, for a minute; then half as many of another.
        for _ in 0..600 {
            at += half_lives(Duration::from_millis(100));
            *rows.asked(b"first", at) += 1;
        }
        let rate = rows.most_first(at).first().map(|(_, rate, _)| *rate).unwrap_or_default();
        assert!((9.0..11.0).contains(&rate), "{rate}");
        for _ in 0..300 {
            at += half_lives(Duration::from_millis(200));
            *rows.asked(b"second", at) += 1;
        }
        assert_eq!(names(&rows, at), [&b"second"[..], b"first"]);
        let rates: Vec<_> =
            rows.most_first(at).iter().map(|(_, rate, count)| (*rate, **count)).collect();
        let [(second, 300), (first, 600)] = rates[..] else { panic!("{rates:?}") };
        assert!((4.5..5.5).contains(&second) && first < 0.5, "{rates:?}");
    }

    #[test]
    fn a_flood_of_names_keeps_who_asks_often() {
        let mut rows = Rows::<u64>::default();
        for number in 0..100_000_u32 {
            let at = half_lives(Duration::from_millis(u64::from(number)));
            rows.asked(&number.to_be_bytes(), at);
            if number % 50 == 0 {
                *rows.asked(b"often", at) += 1;
            }
        }
        assert_eq!(rows.rows.len(), ROWS_MAX);
        let at = half_lives(Duration::from_secs(100));
        let rows = rows.most_first(at);
        let (name, rate, count) = rows.first().expect("rows");
        assert_eq!((*name, **count), (&b"often"[..], 2_000));
        assert!((18.0..22.0).contains(rate), "{rate}");
    }

    #[test]
    fn weights_stay_numbers_for_as_long_as_it_runs() {
        let mut rows = Rows::<u64>::default();
        for year in 0..100 {
            let at = half_lives(Duration::from_secs(year * 365 * 24 * 3_600));
            rows.asked(b"yearly", at);
            rows.asked(&[b'x'; 10_000], at);
            rows.asked(&[b'x'; 20_000], at);
            let rates: Vec<_> =
                rows.most_first(at).iter().map(|(name, rate, _)| (name.len(), *rate)).collect();
            let [(NAME_BYTES_MAX, long), (6, short)] = rates[..] else { panic!("{rates:?}") };
            assert!((1.9..2.1).contains(&(long / short)), "{rates:?}");
            assert!((0.06..0.08).contains(&short), "{rates:?}");
        }
    }
}
