//! A store with keys, watchers and prepared requests, and a client with prepared responses.

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use statestore_proto::client::{Client, ClientConfig, Event, Outcome, Request};
use statestore_proto::limits::{ClientLimits, StoreLimits};
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::{Command, Condition, Expiry};
use statestore_proto::store::{Store, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::topic::REQUEST;
use statestore_proto::transport::{Correlation, Incoming, ReasonCode, Transmit};

/// Length of each key in bytes.
pub const KEY_LEN: usize = 16;

/// Length of each value in bytes.
pub const VALUE_LEN: usize = 64;

/// Keys in a page of a listing.
pub const PAGE_LEN: usize = 100;

/// Maximum number of different requests. They take turns, so a large table is not measured by a few
/// cached entries.
const REQUESTS_MAX: usize = 65_536;

const RESPONSE_TOPIC: &str = "clients/client-1/services/statestore/_any_/command/invoke/response";
const TIMESTAMP: &str = "1696374425000:0:client-1";

/// Returns the time of all calls.
#[must_use]
pub const fn now() -> Now {
    Now::new(Instant::from_millis(1_000), UnixTime::from_millis(1_696_374_425_000))
}

/// Returns the key with this number.
#[must_use]
pub fn key(number: usize) -> Vec<u8> {
    format!("key-{number:012}").into_bytes()
}

/// Returns a value.
#[must_use]
pub fn value() -> Vec<u8> {
    vec![b'v'; VALUE_LEN]
}

/// Returns numbers below `keys`, each at most once, in an order that caches do not predict.
pub fn scattered(keys: usize) -> impl Iterator<Item = usize> {
    // A step without a common factor visits every number; the sizes used are powers of ten.
    (0..keys.min(REQUESTS_MAX)).map(move |turn| turn.wrapping_mul(7_919_477) % keys)
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// GET
    Get,
    /// SET
    Set,
    /// SET with PX
    SetPx,
    /// DEL
    Del,
}

/// A store with keys, and with watchers of each requested key.
pub struct Stage {
    store: Store,
    count: u64,
}

impl Stage {
    /// Creates a store with `keys` keys. `watchers` clients watch each requested key.
    #[must_use]
    pub fn new(keys: usize, watchers: usize) -> Self {
        let limits = StoreLimits {
            registrations_max: usize::MAX,
            registration_bytes_max: usize::MAX,
            outgoing_max: 1 << 20,
            page_bytes_max: PAGE_LEN * format!("${KEY_LEN}\r\n\r\n").len() + PAGE_LEN * KEY_LEN,
            ..StoreLimits::default()
        };
        let mut stage = Self { store: Store::new(StoreConfig::new(7).limits(limits)), count: 0 };
        for number in 0..keys {
            stage.run(&payload(Operation::Set, number));
        }
        for number in scattered(keys) {
            for watcher in 0..watchers {
                let payload = Bytes::from(Command::Watch { key: key(number) }.encode());
                let id = format!("watcher-{watcher}");
                let mut incoming = incoming(&payload, &id);
                let correlation = [number.to_be_bytes(), watcher.to_be_bytes()].concat();
                incoming.correlation_data = Some(&correlation);
                incoming.verified_sender = Some(&id);
                stage.store.handle_publish(now(), &incoming);
                while stage.store.poll_transmit().is_some() {}
            }
        }
        assert_eq!(
            (stage.store.len(), stage.store.registrations()),
            (keys, watchers * scattered(keys).count())
        );
        stage
    }

    /// Returns requests of one kind for keys in scattered order.
    #[must_use]
    pub fn requests(operation: Operation, keys: usize) -> Vec<Bytes> {
        scattered(keys).map(|number| payload(operation, number)).collect()
    }

    /// Passes one request to the store and polls all output. Returns the payload of the response.
    pub fn run(&mut self, payload: &Bytes) -> Option<Bytes> {
        self.count += 1;
        let mut correlation = *b"8 random\0\0\0\0\0\0\0\0";
        correlation[8..].copy_from_slice(&self.count.to_be_bytes());
        let mut incoming = incoming(payload, "client-1");
        incoming.correlation_data = Some(&correlation);
        self.store.handle_publish(now(), &incoming);
        let mut reply = None;
        while let Some(transmit) = self.store.poll_transmit() {
            if let Transmit::Publish(publish) = black_box(transmit)
                && publish.recipient().is_none()
            {
                reply = Some(publish.payload);
            }
        }
        reply
    }
}

/// Returns the payload of a request for the key with this number.
#[must_use]
pub fn payload(operation: Operation, number: usize) -> Bytes {
    let (key, condition) = (key(number), Condition::Always);
    let command = match operation {
        Operation::Get => Command::Get { key },
        Operation::Set => Command::Set { key, value: value(), condition, expiry: None },
        Operation::SetPx => {
            Command::Set { key, value: value(), condition, expiry: Expiry::from_millis(600_000) }
        }
        Operation::Del => Command::Del { key },
    };
    command.encode().into()
}

/// Returns a request as the deployed clients send it.
pub fn incoming<'a>(payload: &'a Bytes, source: &'a str) -> Incoming<'a> {
    let mut incoming = Incoming::new(REQUEST, payload);
    incoming.response_topic = Some(RESPONSE_TOPIC);
    incoming.message_expiry = Some(10);
    incoming.user_property("__ts", TIMESTAMP);
    incoming.user_property("__srcId", source);
    incoming.user_property("__protVer", "1.0");
    incoming
}

/// A connected client, and a response of the store.
pub struct ClientStage {
    client: Client,
    topic: Arc<str>,
    reply: Bytes,
}

impl Default for ClientStage {
    fn default() -> Self {
        Self::new()
    }
}

impl ClientStage {
    /// Creates a client that is ready.
    ///
    /// # Panics
    /// If the client does not subscribe first.
    #[must_use]
    pub fn new() -> Self {
        let config = ClientConfig::new("client-1", *b"8 random");
        let limits = ClientLimits { pending_max: 1_024, ..ClientLimits::default() };
        let mut client = Client::new(config.limits(limits)).expect("a client id");
        client.handle(now(), Input::Connected { session_present: false });
        let Some(Transmit::Subscribe { filter, token }) = client.poll_transmit() else {
            panic!("subscribes first")
        };
        client.handle(now(), Input::Subscribed(token, ReasonCode::GRANTED_QOS_1));
        assert_eq!(client.poll_event(), Some(Event::Ready));
        let reply = statestore_proto::message::Reply::Value(value())
            .encode(statestore_proto::message::Dialect::Deployed);
        Self { client, topic: filter, reply: reply.into() }
    }

    /// Submits a GET and takes its publish. Returns the correlation data.
    ///
    /// # Panics
    /// If the client does not send the request.
    pub fn request(&mut self) -> Correlation {
        self.submit();
        match black_box(self.client.poll_transmit()) {
            Some(Transmit::Publish(publish)) => publish.correlation_data.expect("a request"),
            other => panic!("{other:?}"),
        }
    }

    /// Delivers the response to a request. Returns whether the request is completed.
    pub fn respond(&mut self, correlation: &Correlation) -> bool {
        self.receive(correlation);
        self.client.poll_event().is_some_and(|event| has_response(&event))
    }

    /// Submits `in_flight` requests, sends them, and delivers their responses. Returns the number of
    /// completed requests.
    ///
    /// # Panics
    /// If the client refuses a request.
    pub fn run(&mut self, in_flight: usize) -> usize {
        for _ in 0..in_flight {
            self.submit();
        }
        let mut sent: Vec<Correlation> = Vec::with_capacity(in_flight);
        while let Some(transmit) = self.client.poll_transmit() {
            if let Transmit::Publish(publish) = black_box(transmit) {
                sent.extend(publish.correlation_data);
            }
        }
        for correlation in &sent {
            self.receive(correlation);
        }
        std::iter::from_fn(|| self.client.poll_event()).filter(has_response).count()
    }

    fn submit(&mut self) {
        let get = Request::get(Bytes::from_static(b"key-000000000001"));
        self.client.submit(now(), get).expect("the queue has capacity");
    }

    fn receive(&mut self, correlation: &Correlation) {
        let mut response = Incoming::new(&self.topic, &self.reply);
        response.correlation_data = Some(correlation.as_bytes());
        response.user_property("__ts", "1696374425000:1:StateStore");
        response.user_property("__stat", "200");
        self.client.handle(now(), Input::Message(&response));
    }
}

fn has_response(event: &Event) -> bool {
    matches!(event, Event::Completed { outcome: Outcome::Responded { .. }, .. })
}
