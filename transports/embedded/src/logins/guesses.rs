//! Wrong passwords, and the pauses that come of them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use tokio::time::Instant;

/// Wrong passwords of one address for one name without a pause: somebody mistypes, or a device has an old one.
const OF_NAME_FREE: u32 = 4;

/// The longest pause of one address for one name.
const OF_NAME_MAX: Duration = Duration::from_secs(60);

/// Wrong passwords of one address for whatever names without a pause.
const OF_ADDRESS_FREE: u32 = 20;

/// The longest pause of an address: a short one, since others may share it.
const OF_ADDRESS_MAX: Duration = Duration::from_secs(4);

/// The first pause; each is twice as long as the one before.
const FIRST: Duration = Duration::from_secs(1);

/// After so long without a wrong password those before are forgotten.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// What is remembered at a time; beyond it what has been quiet for longest is forgotten. Names are 256 bytes at most here.
const ENTRIES_MAX: usize = 2_048;

/// Bytes of a name that count.
const NAME_MAX: usize = 256;

/// Who has guessed wrong lately. A name is kept with the address that guesses it, so that nobody keeps others from logging in
/// from elsewhere by guessing their passwords.
#[derive(Default)]
pub(super) struct Guesses {
    entries: BTreeMap<(IpAddr, Option<String>), Entry>,
}

struct Entry {
    wrong: u32,
    last: Instant,
    until: Instant,
}

impl Guesses {
    /// Whether this address has to wait before it tries again with this name.
    pub(super) fn is_paused(&self, now: Instant, address: IpAddr, name: &str) -> bool {
        keys(address, name)
            .iter()
            .any(|key| self.entries.get(key).is_some_and(|entry| now < entry.until))
    }

    /// This password was wrong.
    pub(super) fn add(&mut self, now: Instant, address: IpAddr, name: &str) {
        for key in keys(address, name) {
            let (free, longest) = match key.1 {
                Some(_) => (OF_NAME_FREE, OF_NAME_MAX),
                None => (OF_ADDRESS_FREE, OF_ADDRESS_MAX),
            };
            if self.entries.len() >= ENTRIES_MAX && !self.entries.contains_key(&key) {
                self.forget_one();
            }
            let new = Entry { wrong: 0, last: now, until: now };
            let entry = self.entries.entry(key).or_insert(new);
            if now.duration_since(entry.last) >= FORGOTTEN {
                entry.wrong = 0;
            }
            entry.wrong = entry.wrong.saturating_add(1);
            entry.last = now;
            if let Some(beyond) = entry.wrong.checked_sub(free + 1) {
                // Of those that were under way at once each one counts.
                entry.until = now + FIRST.saturating_mul(1 << beyond.min(16)).min(longest);
            }
        }
    }

    fn forget_one(&mut self) {
        let quiet = self.entries.iter().min_by_key(|(_, entry)| (entry.until, entry.last));
        if let Some(key) = quiet.map(|(key, _)| key.clone()) {
            self.entries.remove(&key);
        }
    }
}

/// What counts wrong passwords: the address with the name, and the address.
fn keys(address: IpAddr, name: &str) -> [(IpAddr, Option<String>); 2] {
    let address = match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        // One machine has as many as it likes of them.
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
    };
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

    /// For how many seconds this one has to wait.
    fn pause(guesses: &Guesses, now: Instant, from: &str, name: &str) -> u32 {
        let is_over = |after: &u32| !guesses.is_paused(now + SECOND * *after, address(from), name);
        (0..1_000).find(is_over).unwrap()
    }

    #[test]
    fn pauses_grow_and_hit_nobody_elsewhere() {
        let (mut guesses, mut now) = (Guesses::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..14 {
            guesses.add(now, address("192.0.2.1"), "alice");
            pauses.push(pause(&guesses, now, "192.0.2.1", "alice"));
            now += SECOND * pauses[pauses.len() - 1];
        }
        assert_eq!(pauses, [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]);
        guesses.add(now, address("192.0.2.1"), "alice");
        assert_eq!(pause(&guesses, now, "192.0.2.1", "bob"), 0);
        assert_eq!(pause(&guesses, now, "192.0.2.2", "alice"), 0);
        // The same machine by another of its addresses is not elsewhere.
        assert_eq!(pause(&guesses, now, "::ffff:192.0.2.1", "alice"), 60);
        let later = now + FORGOTTEN;
        guesses.add(later, address("192.0.2.1"), "alice");
        assert_eq!(pause(&guesses, later, "192.0.2.1", "alice"), 0);
    }

    #[test]
    fn many_names_from_one_address_are_guesses_too() {
        let (mut guesses, now) = (Guesses::default(), Instant::now());
        let mut pauses = Vec::new();
        for number in 0..25 {
            guesses.add(now, address(&format!("2001:db8::{number}")), &format!("name {number}"));
            pauses.push(pause(&guesses, now, "2001:db8::ffff", "bob"));
        }
        assert_eq!(pauses[19..], [0, 1, 2, 4, 4, 4]);
        assert_eq!(pause(&guesses, now, "2001:db8:0:1::1", "bob"), 0);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_worst_is_not_forgotten() {
        let (mut guesses, now) = (Guesses::default(), Instant::now());
        for _ in 0..10 {
            guesses.add(now, address("192.0.2.1"), "alice");
        }
        for number in 0..2_500_u32 {
            let from = IpAddr::V4(std::net::Ipv4Addr::from_bits(number));
            guesses.add(now + SECOND, from, &"\u{e9}".repeat(1_000));
        }
        assert_eq!(guesses.entries.len(), ENTRIES_MAX);
        let longest =
            guesses.entries.keys().filter_map(|key| key.1.as_ref().map(String::len)).max();
        assert_eq!(longest, Some(NAME_MAX));
        assert!(guesses.is_paused(now + SECOND, address("192.0.2.1"), "alice"));
    }
}
