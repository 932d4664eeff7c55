//! The conformance suite over the loopback, for tests of this project's own store.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use statestore_loopback::{Hub, Message, RawClient};
use statestore_mqtt::topic;
use statestore_proto::transport::{Correlation, Qos};
use statestore_verify::wire::{self, Connection, Connector, Lost, Pending};
use statestore_verify::{CASES, Case, CaseReport, Report, Run, Settings, Verdict};

/// The cases in which a store with an external broker differs. It cannot see that a request had
/// QoS 2, disconnect a client, detect the end of a connection, or reach a client without a
/// subscription.
pub const EXTERNAL_BROKER: [&str; 5] = [
    "request/qos-2",
    "request/reserved-response",
    "request/topic-as-response",
    "watch/direct",
    "watch/ends",
];

/// Changes messages in transit.
pub type Interceptor = Box<dyn FnMut(&mut Message) + Send>;

/// The client id of the store.
const STORE: &str = "statestore";

/// A broker in this process, with an interceptor that changes what clients send and what they
/// receive from the store.
#[derive(Clone)]
pub struct Loopback {
    hub: Hub,
    interceptor: Option<Arc<Mutex<Interceptor>>>,
}

impl Loopback {
    /// Connects clients to this broker.
    #[must_use]
    pub fn new(hub: Hub, interceptor: Option<Interceptor>) -> Self {
        Self { hub, interceptor: interceptor.map(|interceptor| Arc::new(Mutex::new(interceptor))) }
    }

    fn intercept(&self, message: &mut Message) {
        if let Some(interceptor) = &self.interceptor {
            let mut interceptor: MutexGuard<'_, Interceptor> =
                interceptor.lock().unwrap_or_else(PoisonError::into_inner);
            interceptor(message);
        }
    }
}

impl Connector for Loopback {
    fn connect<'a>(&'a self, client_id: &'a str) -> Pending<'a, Box<dyn Connection>> {
        Box::pin(async move {
            let client = self.hub.raw_client(client_id).map_err(Lost::because)?;
            let (client_id, filters) = (client_id.into(), Vec::new());
            let client = Client { client, client_id, filters, loopback: self.clone() };
            Ok(Box::new(client) as Box<dyn Connection>)
        })
    }
}

struct Client {
    client: RawClient,
    client_id: Arc<str>,
    filters: Vec<String>,
    loopback: Loopback,
}

impl Client {
    /// Waits for the next message that still matches a subscription after the interceptor changed
    /// it.
    async fn next_message(&self) -> Result<Message, Lost> {
        loop {
            let mut message = self.client.next().await.map_err(Lost::because)?;
            if *message.sender == *STORE {
                self.loopback.intercept(&mut message);
            }
            if self.filters.iter().any(|filter| topic::matches(filter, &message.topic)) {
                return Ok(message);
            }
        }
    }
}

impl Connection for Client {
    fn subscribe<'a>(&'a mut self, filter: &'a str) -> Pending<'a, u8> {
        Box::pin(async move {
            self.client.subscribe(filter);
            self.filters.push(filter.into());
            Ok(1)
        })
    }

    fn publish<'a>(&'a mut self, message: &'a wire::Message) -> Pending<'a, u8> {
        Box::pin(async move {
            let message = message.clone();
            let properties = message.user_properties.into_iter();
            let mut message = Message {
                sender: Arc::clone(&self.client_id),
                topic: message.topic.into(),
                payload: message.payload,
                qos: match message.qos {
                    0 => Qos::AtMostOnce,
                    1 => Qos::AtLeastOnce,
                    _ => Qos::ExactlyOnce,
                },
                response_topic: message.response_topic.map(Into::into),
                correlation_data: message.correlation_data.map(|data| Correlation::new(&data)),
                content_type: message.content_type.map(Into::into),
                message_expiry: message.message_expiry,
                user_properties: properties.map(|(name, value)| (name.into(), value)).collect(),
                delivery: None,
                arrived: None,
            };
            self.loopback.intercept(&mut message);
            self.client.publish(message);
            // The store needs a turn to respond.
            tokio::task::yield_now().await;
            Ok(0)
        })
    }

    fn next(&mut self) -> Pending<'_, wire::Message> {
        Box::pin(async move {
            let message = self.next_message().await?;
            let properties = message.user_properties.into_iter();
            Ok(wire::Message {
                topic: (*message.topic).into(),
                payload: message.payload,
                qos: message.qos as u8,
                retain: false,
                response_topic: message.response_topic.as_deref().map(Into::into),
                correlation_data: message
                    .correlation_data
                    .map(|data| data.as_bytes().to_vec().into()),
                content_type: message.content_type.map(Into::into),
                message_expiry: message.message_expiry,
                user_properties: properties.map(|(name, value)| (name.into(), value)).collect(),
            })
        })
    }

    fn disconnect(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            drop(self);
            tokio::task::yield_now().await;
            Ok(())
        })
    }
}

/// Runs every case with every row of the vectors.
///
/// # Panics
/// If no store responds.
pub async fn every_case(connector: Arc<dyn Connector>) -> Report {
    let mut run = Run::start(connector, thorough("verify")).await.expect("a store");
    for case in CASES {
        run.case(case).await;
    }
    run.finish().await
}

/// Runs only these cases.
///
/// # Panics
/// If no store responds.
pub async fn some_cases(connector: Arc<dyn Connector>, cases: &[&'static Case]) -> Report {
    let mut run = Run::start(connector, thorough("verify")).await.expect("a store");
    for case in cases {
        run.case(case).await;
    }
    run.finish().await
}

fn thorough(run: &str) -> Settings {
    Settings { is_thorough: true, ..Settings::new(run) }
}

/// Asserts that the store breaks no rule, leaves no key, and differs in exactly these cases.
///
/// # Panics
/// If the report differs.
#[track_caller]
pub fn assert_conformant(report: &Report, differs: &[&str]) {
    let is_unexpected = |case: &&CaseReport| {
        let expected = match differs.contains(&case.case.name) {
            true => Verdict::Differs,
            false => Verdict::Pass,
        };
        case.verdict != expected
    };
    let mut text = String::new();
    for case in report.cases.iter().filter(is_unexpected) {
        let _ = writeln!(text, "{}: {:?} {:#?}", case.case.name, case.verdict, case.findings);
    }
    assert!(text.is_empty(), "{text}");
    assert!(report.left.is_empty(), "{:?}", report.left);
    assert_eq!(report.dialect(), "each client in its own");
    assert_eq!(report.cases.len(), CASES.len());
}
