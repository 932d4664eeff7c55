//! Slow requests: a store passes, however long some of them take.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use statestore_testkit::conformance::suite::{Loopback, some_cases};
use statestore_verify::wire::{Connection, Connector, Message, Pending};
use statestore_verify::{CASES, Verdict};
use tokio::time::sleep;

use super::served;

/// The connections of a loopback. One of all requests takes two seconds.
struct OneDelayed {
    loopback: Arc<Loopback>,
    requests: Arc<Requests>,
}

struct Requests {
    sent: AtomicUsize,
    delayed: usize,
}

struct Delayed {
    connection: Box<dyn Connection>,
    requests: Arc<Requests>,
}

impl Connector for OneDelayed {
    fn connect<'a>(&'a self, client_id: &'a str) -> Pending<'a, Box<dyn Connection>> {
        Box::pin(async move {
            let connection = self.loopback.connect(client_id).await?;
            let requests = Arc::clone(&self.requests);
            Ok(Box::new(Delayed { connection, requests }) as Box<dyn Connection>)
        })
    }
}

impl Connection for Delayed {
    fn subscribe<'a>(&'a mut self, filter: &'a str) -> Pending<'a, u8> {
        self.connection.subscribe(filter)
    }

    fn publish<'a>(&'a mut self, message: &'a Message) -> Pending<'a, u8> {
        Box::pin(async move {
            if self.requests.sent.fetch_add(1, Ordering::Relaxed) == self.requests.delayed {
                sleep(Duration::from_secs(2)).await;
            }
            self.connection.publish(message).await
        })
    }

    fn next(&mut self) -> Pending<'_, Message> {
        self.connection.next()
    }

    fn disconnect(self: Box<Self>) -> Pending<'static, ()> {
        self.connection.disconnect()
    }
}

/// The kit chooses expiries by the durations of the latest requests, so they change during a case.
#[tokio::test(start_paused = true)]
async fn slow_request_before_or_during_a_case_about_expiry_does_not_fail_it() {
    let names = ["value/set-get", "expiry/expires", "expiry/restarts", "expiry/removed"];
    let cases = CASES.iter().filter(|case| names.contains(&case.name)).collect::<Vec<_>>();
    assert_eq!(cases.len(), names.len());
    for delayed in 0..60 {
        let (loopback, _service) = served(None).await;
        let requests = Requests { sent: AtomicUsize::new(0), delayed };
        let connector = OneDelayed { loopback, requests: Arc::new(requests) };
        let report = some_cases(Arc::new(connector), &cases).await;
        for case in report.cases {
            assert_eq!(
                case.verdict,
                Verdict::Pass,
                "{delayed}: {}: {:#?}",
                case.case.name,
                case.findings
            );
        }
    }
}
