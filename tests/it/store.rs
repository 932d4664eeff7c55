//! Rules of the protocol as observed at a `Store`, one file per subject.

mod chunks;
mod client_share;
mod counters;
mod duplicates;
mod durability;
mod expiry_policy;
mod incarnation;
mod limits;
mod linearizable_reads;
mod memory;
mod packet_size;
mod records;
mod refusal_detail;
mod response_shares;
mod restart;
mod scan;
mod silenced;
mod transport;
mod watches;
mod writes;

use statestore_models::machines::request::{Sent, StoreRequest};
use statestore_proto::limits::StoreLimits;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::{Command, Condition, Expiry};
use statestore_proto::store::{Store, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};

const EPOCH: u64 = 1_696_374_425_000;

/// A store and its clock.
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

    fn request(&mut self, client: &str, command: &Command<&[u8]>) -> StoreRequest {
        self.number += 1;
        let mut request = StoreRequest::new(client, self.number, command);
        request.timestamp = Some(format!("{}:0:{client}", EPOCH + self.millis));
        request
    }

    /// Sends a request and returns every packet that the store emits.
    fn send(&mut self, request: &StoreRequest) -> Vec<Sent> {
        request.submit_to(self.now(), &mut self.store);
        Sent::drain(&mut self.store)
    }

    /// All packets but the reply and its acknowledgement, and the reply as payload and version.
    fn all(&mut self, request: &StoreRequest) -> (Vec<Sent>, (String, Option<String>)) {
        let mut sent = self.send(request);
        assert_eq!(sent.pop(), request.delivery.map(Sent::Acknowledge));
        match sent.pop() {
            Some(Sent::Reply { topic, correlation, payload, version, expiry }) => {
                assert!(
                    request.arrived.is_some() || expiry == request.expiry.map(|left| left.max(1))
                );
                assert_eq!(
                    (Some(topic), &correlation),
                    (request.response_topic.clone(), &request.correlation)
                );
                (sent, (payload, version))
            }
            other => panic!("{other:?} is not a reply"),
        }
    }

    /// The reply as payload and version; asserts that the request causes no other packet.
    fn reply(&mut self, request: &StoreRequest) -> (String, Option<String>) {
        let (sent, reply) = self.all(request);
        assert_eq!(sent, []);
        reply
    }

    fn answer(&mut self, client: &str, command: &Command<&[u8]>) -> String {
        let request = self.request(client, command);
        self.all(&request).1.0
    }

    /// Notifications that a request causes: client, payload, version.
    fn notified(&mut self, command: &Command<&[u8]>) -> Vec<(String, String, String)> {
        let request = self.request("writer", command);
        notifications(&self.all(&request).0)
    }

    fn timer(&mut self) -> Vec<(String, String, String)> {
        self.store.handle(self.now(), Input::Timeout);
        notifications(&Sent::drain(&mut self.store))
    }
}

fn notifications(sent: &[Sent]) -> Vec<(String, String, String)> {
    sent.iter()
        .map(|sent| match sent {
            Sent::Notification { client, payload, version, .. } => {
                (client.clone(), payload.clone(), version.clone().unwrap_or_default())
            }
            other => panic!("{other:?} is not a notification"),
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
