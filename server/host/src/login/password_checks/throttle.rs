//! Throttles logins after wrong passwords.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use statestore_broker::network;

/// Wrong passwords from one address for one name before the first pause. A user mistypes, or a
/// device has an old password.
const NAME_FAILURES_FREE: u32 = 4;

/// Maximum pause of one address for one name.
const NAME_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Wrong passwords from one address, for any names, before the first pause.
const ADDRESS_FAILURES_FREE: u32 = 20;

/// Maximum pause of an address. It is short, since several clients may share the address.
const ADDRESS_PAUSE_MAX: Duration = Duration::from_secs(4);

/// First pause. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Time without a wrong password after which the count restarts.
const RESET_AFTER: Duration = Duration::from_secs(600);

/// Maximum number of entries. Beyond it the entry whose pause ended first is evicted. Names are at
/// most 256 bytes.
const ENTRIES_MAX: usize = 2_048;

/// Significant bytes of a name.
const NAME_MAX: usize = 256;

/// Recent failures, by address and name. A name is only throttled for the address that failed, so
/// an attacker cannot lock a user out elsewhere.
#[derive(Default)]
pub(super) struct LoginThrottle {
    entries: BTreeMap<(IpAddr, Option<String>), Entry>,
}

struct Entry {
    wrong: u32,
    last: Instant,
    until: Instant,
}

impl LoginThrottle {
    /// Returns whether this address has to wait before it tries this name again.
    pub(super) fn is_throttled(&self, now: Instant, address: IpAddr, name: &str) -> bool {
        keys(address, name)
            .iter()
            .any(|key| self.entries.get(key).is_some_and(|entry| now < entry.until))
    }

    /// Records a wrong password.
    pub(super) fn record_failure(&mut self, now: Instant, address: IpAddr, name: &str) {
        for key in keys(address, name) {
            let (free, longest) = match key.1 {
                Some(_) => (NAME_FAILURES_FREE, NAME_PAUSE_MAX),
                None => (ADDRESS_FAILURES_FREE, ADDRESS_PAUSE_MAX),
            };
            if self.entries.len() >= ENTRIES_MAX && !self.entries.contains_key(&key) {
                self.evict();
            }
            let new = Entry { wrong: 0, last: now, until: now };
            let entry = self.entries.entry(key).or_insert(new);
            if now.duration_since(entry.last) >= RESET_AFTER {
                entry.wrong = 0;
            }
            entry.wrong = entry.wrong.saturating_add(1);
            entry.last = now;
            if let Some(beyond) = entry.wrong.checked_sub(free + 1) {
                // Each concurrent failure counts, too.
                entry.until = now + FIRST_PAUSE.saturating_mul(1 << beyond.min(16)).min(longest);
            }
        }
    }

    fn evict(&mut self) {
        let quiet = self.entries.iter().min_by_key(|(_, entry)| (entry.until, entry.last));
        if let Some(key) = quiet.map(|(key, _)| key.clone()) {
            self.entries.remove(&key);
        }
    }
}

/// Returns the keys that count a wrong password: the address with the name, and the address alone.
fn keys(address: IpAddr, name: &str) -> [(IpAddr, Option<String>); 2] {
    let address = network(address);
    let end = (0..=name.len().min(NAME_MAX)).rev().find(|end| name.is_char_boundary(*end));
    let name = name.get(..end.unwrap_or_default()).unwrap_or_default();
    [(address, Some(name.to_owned())), (address, None)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Returns the seconds for which this address and name have to wait.
    fn pause(throttle: &LoginThrottle, now: Instant, from: &str, name: &str) -> u32 {
        let is_over =
            |after: &u32| !throttle.is_throttled(now + SECOND * *after, address(from), name);
        (0..1_000).find(is_over).unwrap()
    }

    #[test]
    fn pauses_double_and_do_not_affect_other_addresses() {
        let (mut throttle, mut now) = (LoginThrottle::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..14 {
            throttle.record_failure(now, address("192.0.2.1"), "alice");
            pauses.push(pause(&throttle, now, "192.0.2.1", "alice"));
            now += SECOND * pauses[pauses.len() - 1];
        }
        assert_eq!(pauses, [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]);
        throttle.record_failure(now, address("192.0.2.1"), "alice");
        assert_eq!(pause(&throttle, now, "192.0.2.1", "bob"), 0);
        assert_eq!(pause(&throttle, now, "192.0.2.2", "alice"), 0);
        // An IPv4-mapped address is the same address.
        assert_eq!(pause(&throttle, now, "::ffff:192.0.2.1", "alice"), 60);
        let later = now + RESET_AFTER;
        throttle.record_failure(later, address("192.0.2.1"), "alice");
        assert_eq!(pause(&throttle, later, "192.0.2.1", "alice"), 0);
    }

    #[test]
    fn wrong_passwords_for_many_names_throttle_the_address() {
        let (mut throttle, now) = (LoginThrottle::default(), Instant::now());
        let mut pauses = Vec::new();
        for number in 0..25 {
            throttle.record_failure(
                now,
                address(&format!("2001:db8::{number}")),
                &format!("name {number}"),
            );
            pauses.push(pause(&throttle, now, "2001:db8::ffff", "bob"));
        }
        assert_eq!(pauses[19..], [0, 1, 2, 4, 4, 4]);
        assert_eq!(pause(&throttle, now, "2001:db8:0:1::1", "bob"), 0);
    }

    #[test]
    fn entries_are_bounded_and_longest_pause_is_not_evicted() {
        let (mut throttle, now) = (LoginThrottle::default(), Instant::now());
        for _ in 0..10 {
            throttle.record_failure(now, address("192.0.2.1"), "alice");
        }
        for number in 0..2_500_u32 {
            let from = IpAddr::V4(std::net::Ipv4Addr::from_bits(number));
            throttle.record_failure(now + SECOND, from, &"\u{e9}".repeat(1_000));
        }
        assert_eq!(throttle.entries.len(), ENTRIES_MAX);
        let longest =
            throttle.entries.keys().filter_map(|key| key.1.as_ref().map(String::len)).max();
        assert_eq!(longest, Some(NAME_MAX));
        assert!(throttle.is_throttled(now + SECOND, address("192.0.2.1"), "alice"));
    }
}
