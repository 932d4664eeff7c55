//! Requests and echoes on an MQTT library alone, the lower limit for an adapter.
//!
//! An adapter implements [`Library`], a connection without an adapter [`Bare`], and [`Echo`] if it
//! can also respond.

#[cfg(feature = "paho")]
mod paho;
mod rumqttc;
mod session;

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use bytes::Bytes;

use statestore_tokio::Link;

use crate::engines::KEYS;
use crate::race::Lap;
use statestore_benches::stage::{self, Operation};

#[cfg(feature = "paho")]
pub use paho::{BarePaho, Paho};
pub use rumqttc::{BareRumqttc, Rumqttc};
pub use session::{Client, Session};

const REQUEST: &str = "bare/request";

/// Message expiry interval of a request, in seconds.
const EXPIRY: u32 = 10;

/// Requests of a load, and their topics.
#[derive(Clone, Copy)]
pub struct Question {
    client_id: &'static str,
    topic: &'static str,
    response_topic: &'static str,
    /// Returns the payload of the request with this number.
    payload: fn(u64) -> Bytes,
}

/// Requests to the echo, as large as a GET.
pub const ECHO: Question = Question {
    client_id: "bare-load",
    topic: REQUEST,
    response_topic: "bare/response",
    payload: |_| Bytes::from_static(&[b'x'; 100]),
};

/// Requests to a store: a GET of `k`.
pub const GET: Question = Question {
    client_id: "bare-get",
    topic: statestore_proto::topic::REQUEST,
    response_topic: "clients/bare-get/response",
    payload: |_| Bytes::from_static(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"),
};

/// Requests to a store: a SET of one of many keys.
pub const SET: Question = Question {
    client_id: "bare-set",
    response_topic: "clients/bare-set/response",
    payload: |number| {
        stage::payload(Operation::Set, usize::try_from(number).unwrap_or_default() % KEYS)
    },
    ..GET
};

impl Question {
    const fn properties(&self) -> [(&'static str, &'static str); 3] {
        let timestamp = "1696374425000:0:bare-load";
        [("__ts", timestamp), ("__srcId", self.client_id), ("__protVer", "1.0")]
    }
}

/// Capacity of the queues of a library: above the number of requests in flight.
const CAPACITY: usize = 4_096;
const IN_FLIGHT: u16 = 1_024;

/// Error of a library, a broker or a server.
pub type Failure = Box<dyn Error + Send + Sync>;

/// An adapter of an MQTT library.
pub trait Library {
    /// Name of the adapter in the report.
    const NAME: &'static str;
    /// The adapter.
    type Link: Link;

    /// Returns a link for a client.
    fn client(client_id: &str, port: u16) -> Self::Link;
    /// Returns a link for a store.
    fn store(client_id: &str, port: u16) -> Self::Link;
}

/// A connection that sends requests and receives their echoes.
pub trait Bare: Sized {
    /// Connects, and subscribes to the response topic.
    fn connect(port: u16, question: Question) -> impl Future<Output = Result<Self, Failure>>;
    /// Sends a request.
    ///
    /// # Errors
    /// Those of the library.
    fn send(&mut self, correlation: [u8; 16], payload: Bytes) -> Result<(), Failure>;
    /// Waits for the next echo, and returns its correlation data.
    fn next(&mut self) -> impl Future<Output = Result<Vec<u8>, Failure>>;
}

/// A library on which an echo is implemented too.
pub trait Echo: Bare {
    /// Name of the echo in the report.
    const NAME: &'static str;

    /// Responds to every request with its own payload until the connection ends.
    fn echo(port: u16) -> impl Future<Output = Result<(), Failure>> + Send + 'static;
}

/// A closed loop over a connection.
pub struct Load<B> {
    bare: B,
    question: Question,
    sent: u64,
}

impl<B: Bare> Load<B> {
    /// Connects.
    ///
    /// # Errors
    /// Those of the library.
    pub async fn new(port: u16, question: Question) -> Result<Self, Failure> {
        Ok(Self { bare: B::connect(port, question).await?, question, sent: 0 })
    }

    /// Sends requests, `in_flight` at a time, and returns the latency of each.
    ///
    /// # Errors
    /// Those of the library.
    pub async fn run(
        &mut self,
        requests: usize,
        in_flight: usize,
    ) -> Result<Vec<Duration>, Failure> {
        let (mut waiting, mut times) = (BTreeMap::new(), Vec::with_capacity(requests));
        for _ in 0..in_flight.min(requests) {
            self.send(&mut waiting)?;
        }
        while times.len() < requests {
            let correlation = self.bare.next().await?;
            times.extend(waiting.remove(&*correlation).map(|lap: Lap| lap.time()));
            if times.len() + waiting.len() < requests {
                self.send(&mut waiting)?;
            }
        }
        Ok(times)
    }

    fn send(&mut self, waiting: &mut BTreeMap<Vec<u8>, Lap>) -> Result<(), Failure> {
        self.sent += 1;
        let correlation = u128::from(self.sent).to_be_bytes();
        waiting.insert(correlation.to_vec(), Lap::start());
        self.bare.send(correlation, (self.question.payload)(self.sent))
    }
}
