//! The conformance kit where our own tests need it: over the loopback, and with a store that must pass.

use std::fmt::Write as _;
use std::sync::Arc;

use statestore_loopback::{Hub, HubClient, Message};
use statestore_proto::mqtt::{Correlation, Qos};
use statestore_verify::wire::{self, Connection, Lost, Pending, Place};
use statestore_verify::{CASES, Case, CaseReport, Report, Run, Settings, Verdict};

/// The cases in which a store differs that is no part of its broker: it cannot see that a request came at QoS 2, have a
/// client disconnected, know that one has gone, or tell one that does not subscribe.
pub const BESIDE: [&str; 5] = [
    "request/qos-2",
    "request/reserved-response",
    "request/topic-as-response",
    "watch/direct",
    "watch/ends",
];

/// A broker in this process.
#[derive(Clone, Debug)]
pub struct Loopback(pub Hub);

impl Place for Loopback {
    fn connect<'a>(&'a self, client_id: &'a str) -> Pending<'a, Box<dyn Connection>> {
        Box::pin(async move {
            let client = self.0.client(client_id).map_err(Lost::because)?;
            Ok(Box::new(Client(client)) as Box<dyn Connection>)
        })
    }
}

struct Client(HubClient);

impl Connection for Client {
    fn subscribe<'a>(&'a mut self, filter: &'a str) -> Pending<'a, u8> {
        Box::pin(async move {
            self.0.subscribe(filter);
            Ok(1)
        })
    }

    fn publish<'a>(&'a mut self, message: &'a wire::Message) -> Pending<'a, u8> {
        Box::pin(async move {
            let message = message.clone();
            let properties = message.user_properties.into_iter();
            self.0.publish(Message {
                sender: "".into(),
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
            });
            // Others are to have their turn.
            tokio::task::yield_now().await;
            Ok(0)
        })
    }

    fn next(&mut self) -> Pending<'_, wire::Message> {
        Box::pin(async move {
            let message = self.0.next().await.map_err(Lost::because)?;
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

/// Asserts that no rule is broken, no key is left, and that the store differs in these cases and no others: where it is
/// no part of its broker there are things it cannot know.
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
