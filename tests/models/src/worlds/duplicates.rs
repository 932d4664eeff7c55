//! Requests delivered once, twice or three times, between requests of another client, while time
//! passes.

use std::fmt::Write;

use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{Command, Condition};
use statestore_proto::store::{Store, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};

use super::SmallWorld;
use crate::machines::request::{Sent, StoreRequest};

/// Retention of the reply to a request without message expiry: the last millisecond and the
/// next.
const WAITS: [u64; 2] = [59_999, 1];

/// A request, its remaining deliveries, and its first reply with the time until which it is cached.
#[derive(Debug)]
struct Repeated {
    request: StoreRequest,
    left: u8,
    first: Option<(u64, Sent)>,
}

/// The world.
pub struct Duplicates {
    store: Store,
    repeated: [Repeated; 2],
    others: Vec<StoreRequest>,
    waits: Vec<u64>,
    now: u64,
}

impl Duplicates {
    /// A store with this many deduplication entries.
    #[must_use]
    pub fn new(dedup_entries_max: usize) -> Self {
        let limits = StoreLimits { dedup_entries_max, ..StoreLimits::default() };
        let key = b"k".as_slice();
        let set = |value, condition| Command::Set { key, value, condition, expiry: None };
        let repeated = [set(b"a".as_slice(), Condition::IfAbsent), Command::Del { key }];
        let mut number = 0;
        let mut request = |client: &str, command: &Command<&[u8]>| {
            number += 1;
            StoreRequest::new(client, number, command)
        };
        let repeated = repeated.map(|command| Repeated {
            request: request("A", &command),
            left: 3,
            first: None,
        });
        let mut others =
            vec![request("B", &set(b"b", Condition::Always)), request("B", &Command::Del { key })];
        others.reverse();
        Self {
            store: Store::new(StoreConfig::new(0).limits(limits)),
            repeated,
            others,
            waits: WAITS.iter().rev().copied().collect(),
            now: 0,
        }
    }

    fn now(&self) -> Now {
        Now::new(Instant::from_millis(self.now), UnixTime::from_millis(1_000_000 + self.now))
    }

    fn contents(&self) -> String {
        self.store.iter(self.now()).map(|entry| format!("{entry:?} {:?};", entry.value)).collect()
    }

    fn deliver(&mut self, which: usize) -> Result<(), String> {
        let now = self.now();
        let (contents, executed) = (self.contents(), self.store.counters().executed());
        let repeated = &mut self.repeated[which];
        repeated.left -= 1;
        repeated.request.submit_to(now, &mut self.store);
        let sent = Sent::drain(&mut self.store);
        let [answer @ Sent::Reply { .. }, Sent::Acknowledge(_)] = sent.as_slice() else {
            return Err(format!("{sent:?} is not a reply and its acknowledgement"));
        };
        let first = repeated.first.clone().filter(|(until, _)| self.now < *until);
        let Some((_, first)) = first else {
            // The broker does not redeliver an expired request; if it did, that would be a new
            // request.
            repeated.left = if repeated.first.is_some() { 0 } else { repeated.left };
            repeated.first = Some((self.now + 60_000, answer.clone()));
            return Ok(());
        };
        if first != *answer {
            return Err(format!("{answer:?} instead of {first:?}"));
        }
        if contents != self.contents() || executed != self.store.counters().executed() {
            return Err(format!("{contents} became {} by a duplicate", self.contents()));
        }
        Ok(())
    }
}

const DELIVER: [&str; 2] = ["SET NX of A arrives", "DEL of A arrives"];
const OTHER: &str = "a request of B arrives";
const WAIT: &str = "time passes";

impl SmallWorld for Duplicates {
    fn choices(&self) -> Vec<&'static str> {
        let options = [
            (self.repeated[0].left > 0, DELIVER[0]),
            (self.repeated[1].left > 0 && self.repeated[0].first.is_some(), DELIVER[1]),
            (!self.others.is_empty(), OTHER),
            (!self.waits.is_empty(), WAIT),
        ];
        options.into_iter().filter(|(can, _)| *can).map(|(_, name)| name).collect()
    }

    fn choose(&mut self, choice: &'static str) -> Result<(), String> {
        match choice {
            OTHER => {
                let now = self.now();
                if let Some(request) = self.others.pop() {
                    request.submit_to(now, &mut self.store);
                    let _ = Sent::drain(&mut self.store);
                }
                Ok(())
            }
            WAIT => {
                self.now += self.waits.pop().unwrap_or_default();
                Ok(())
            }
            _ => self.deliver(usize::from(choice == DELIVER[1])),
        }
    }

    fn describe(&self, out: &mut dyn Write) -> std::fmt::Result {
        let (repeated, others) = (&self.repeated, self.others.len());
        write!(out, "{:?} {repeated:?} {others} {} {}", self.store, self.now, self.contents())
    }
}
