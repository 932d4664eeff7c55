//! The conformance kit where our own tests need it: over the loopback, and with a store that must
//! pass.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use statestore_loopback::{Hub, Message, RawClient};
use statestore_mqtt::topic;
use statestore_proto::transport::{Correlation, Qos};
use statestore_verify::wire::{self, Connection, Lost, Pending, Place};
use statestore_verify::{CASES, Case, CaseReport, Report, Run, Settings, Verdict};

/// The cases in which a store differs that is no part of its broker: it cannot see that a request
/// came at QoS 2, have a client disconnected, know that one has gone, or notice one that does not
/// subscribe.
pub const BESIDE: [&str; 5] = [
    "request/qos-2",
    "request/reserved-response",
    "request/topic-as-response",
    "watch/direct",
    "watch/ends",
];

/// Changes messages on their way.
pub type Interceptor = Box<dyn FnMut(&mut Message) + Send>;

/// The client id of the store.
const STORE: &str = "statestore";

/// A broker in this process, and an interceptor that changes what clients send and what they
/// receive from the store.
#[derive(Clone)]
pub struct Loopback {
    hub: Hub,
    interceptor: Option<Arc<Mutex<Interceptor>>>,
}

impl Loopback {
    /// Uses this broker.
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

impl Place for Loopback {
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
            // Others are to have their turn.
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

/// Runs every case, each row of the vectors too.
///
/// # Panics
/// When no store answers.
pub async fn every_case(place: Arc<dyn Place>) -> Report {
    let mut run = Run::start(place, thorough("verify")).await.expect("a store");
    for case in CASES {
        run.case(case).await;
    }
    run.finish().await
}

/// Runs these cases and no others.
///
/// # Panics
/// When no store answers.
pub async fn some_cases(place: Arc<dyn Place>, cases: &[&'static Case]) -> Report {
    let mut run = Run::start(place, thorough("verify")).await.expect("a store");
    for case in cases {
        run.case(case).await;
    }
    run.finish().await
}

fn thorough(run: &str) -> Settings {
    Settings { is_thorough: true, ..Settings::new(run) }
}

/// Asserts that no rule is broken, no key is left, and that the store differs in these cases and no
/// others: where it is no part of its broker there are things it cannot know.
///
/// # Panics
/// When it is otherwise.
#[track_caller]
pub fn assert_ours(report: &Report, differs: &[&str]) {
    let is_as_expected = |case: &&CaseReport| {
        let expected = match differs.contains(&case.case.name) {
            true => Verdict::Differs,
            false => Verdict::Pass,
        };
        case.verdict != expected
    };
    let mut text = String::new();
    for case in report.cases.iter().filter(is_as_expected) {
        let _ = writeln!(text, "{}: {:?} {:#?}", case.case.name, case.verdict, case.findings);
    }
    assert!(text.is_empty(), "{text}");
    assert!(report.left.is_empty(), "{:?}", report.left);
    assert_eq!(report.dialect(), "each client in its own");
    assert_eq!(report.cases.len(), CASES.len());
}
