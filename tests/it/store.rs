//! The rules of the protocol that can be seen at a store, one by one.

mod counters;
mod duplicates;
mod durability;
mod exact;
mod explained;
mod fit;
mod incarnation;
mod memory;
mod reads;
mod records;
mod restart;
mod scan;
mod shares;
mod transport;
mod watches;
mod writes;

use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{Command, Condition, Expiry};
use statestore_proto::store::{Store, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_tests::ask::{Ask, Told};

const EPOCH: u64 = 1_696_374_425_000;

/// A store and a time.
struct Rig {
    store: Store,
    millis: u64,
    number: u64,
}

impl Rig {
    fn new() -> Self {
        Self::with(StoreConfig::new(7))
    }

    fn with(config: StoreConfig) -> Self {
        Self { store: Store::new(config), millis: 0, number: 0 }
    }

    fn limited(limits: StoreLimits) -> Self {
        Self::with(StoreConfig::new(7).limits(limits))
    }

    fn now(&self) -> Now {
        Now::new(Instant::from_millis(self.millis), UnixTime::from_millis(EPOCH + self.millis))
    }

    fn ask(&mut self, client: &str, command: &Command<&[u8]>) -> Ask {
        self.number += 1;
        let mut ask = Ask::new(client, self.number, command);
        ask.timestamp = Some(format!("{}:0:{client}", EPOCH + self.millis));
        ask
    }

    /// Everything that the store says to a request.
    fn hand(&mut self, ask: &Ask) -> Vec<Told> {
        ask.hand_to(self.now(), &mut self.store);
        Told::drain(&mut self.store)
    }

    /// What is told to everybody, and the answer as payload and version.
    fn all(&mut self, ask: &Ask) -> (Vec<Told>, (String, Option<String>)) {
        let mut told = self.hand(ask);
        assert_eq!(told.pop(), ask.delivery.map(Told::Acknowledge));
        match told.pop() {
            Some(Told::Reply { topic, correlation, payload, version, expiry }) => {
                assert!(ask.arrived.is_some() || expiry == ask.expiry.map(|left| left.max(1)));
                assert_eq!(
                    (Some(topic), &correlation),
                    (ask.response_topic.clone(), &ask.correlation)
                );
                (told, (payload, version))
            }
            other => panic!("{other:?} is no answer"),
        }
    }

    /// The answer as payload and version; nobody else is told anything.
    fn reply(&mut self, ask: &Ask) -> (String, Option<String>) {
        let (told, reply) = self.all(ask);
        assert_eq!(told, []);
        reply
    }

    fn answer(&mut self, client: &str, command: &Command<&[u8]>) -> String {
        let ask = self.ask(client, command);
        self.all(&ask).1.0
    }

    /// What a request causes to be notified: client, payload, version.
    fn notified(&mut self, command: &Command<&[u8]>) -> Vec<(String, String, String)> {
        let ask = self.ask("writer", command);
        notifications(&self.all(&ask).0)
    }

    fn timer(&mut self) -> Vec<(String, String, String)> {
        self.store.handle_timeout(self.now());
        notifications(&Told::drain(&mut self.store))
    }
}

fn notifications(told: &[Told]) -> Vec<(String, String, String)> {
    told.iter()
        .map(|told| match told {
            Told::Notification { client, payload, version, .. } => {
                (client.clone(), payload.clone(), version.clone().unwrap_or_default())
            }
            other => panic!("{other:?} is no notification"),
        })
        .collect()
}

fn error(text: &str) -> (String, Option<String>) {
    (format!("-ERR {text}\\r\\n"), None)
}

fn version(millis: u64, counter: u64) -> String {
    format!("{}:{counter}:StateStore", EPOCH + millis)
}

fn set<'a>(key: &'a str, value: &'a str) -> Command<&'a [u8]> {
    set_if(key, value, Condition::Always, 0)
}

fn set_if<'a>(
    key: &'a str,
    value: &'a str,
    condition: Condition<&'a [u8]>,
    px: u64,
) -> Command<&'a [u8]> {
    let expiry = Expiry::from_millis(px);
    Command::Set { key: key.as_bytes(), value: value.as_bytes(), condition, expiry }
}

const fn get(key: &str) -> Command<&[u8]> {
    Command::Get { key: key.as_bytes() }
}

const fn del(key: &str) -> Command<&[u8]> {
    Command::Del { key: key.as_bytes() }
}

const fn vdel<'a>(key: &'a str, value: &'a str) -> Command<&'a [u8]> {
    Command::VDel { key: key.as_bytes(), value: value.as_bytes() }
}

const fn watch(key: &str) -> Command<&[u8]> {
    Command::Watch { key: key.as_bytes() }
}

const fn stop(key: &str) -> Command<&[u8]> {
    Command::Unwatch { key: key.as_bytes() }
}

const OK: &str = r"+OK\r\n";
