//! Notifications to all watchers of a key, against messages to as many subscribers of mosquitto.

use std::fs;
use std::sync::Arc;

use bytes::Bytes;
use statestore_benches::stage::{Operation, key, payload};
use statestore_client::{Options, SessionSocket};
use statestore_mqtt::Qos;
use statestore_mqtt::packet::Subscription;
use statestore_mqtt::property::Property;
use statestore_mqtt::session::{Event, Publish};
use statestore_proto::message::Command;
use statestore_proto::topic::{NotificationTopic, REQUEST};
use statestore_testkit::brokers::Mosquitto;
use tokio::sync::Semaphore;

use super::Suite;
use crate::bare::Failure;
use crate::engines::broker;
use crate::race::Lap;
use crate::report::Report;
use crate::server_thread::runtime;

pub(super) const SUITE: Suite = Suite {
    name: "fan-out",
    about: "a SET with watchers and an embedded broker, against a message to as many subscribers \
            of mosquitto: us per receiver (needs `ulimit -n 4096`)",
    run,
};

/// Open files that the suite needs: both ends of each connection to the embedded broker, and one end
/// of each connection to mosquitto.
const OPEN_FILES: u64 = 4_096;

const TIMESTAMP: (&str, &str) = ("__ts", "1696374425000:0:publisher");

fn run(report: &mut Report<'_>) -> Result<(), Failure> {
    let Some(mosquitto) = Mosquitto::start("fan-out") else {
        eprintln!("fan-out: skipped: mosquitto is not installed (apt-get install mosquitto)");
        return Ok(());
    };
    let limit = fs::read_to_string("/proc/self/limits").ok().and_then(|text| open_files(&text));
    if let Some(limit) = limit.filter(|limit| *limit < OPEN_FILES && !report.is_test()) {
        eprintln!("fan-out: skipped: {limit} open files are permitted (ulimit -n {OPEN_FILES})");
        return Ok(());
    }
    let embedded = broker(None)?;
    let counts: &[u32] = if report.is_test() { &[3] } else { &[100, 1_000] };
    for receivers in counts {
        // Each count has its own runtime, which closes its connections.
        let sides = compare(*receivers, embedded.port, mosquitto.port(), report);
        runtime()?.block_on(sides)?;
    }
    Ok(())
}

/// Returns the number of open files that a process may have, from its `/proc/PID/limits`. `None` if
/// it is unlimited.
fn open_files(limits: &str) -> Option<u64> {
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    limit.split_whitespace().next()?.parse().ok()
}

async fn compare(
    receivers: u32,
    embedded: u16,
    mosquitto: u16,
    report: &mut Report<'_>,
) -> Result<(), Failure> {
    let (rounds, times) = if report.is_test() { (1, 2) } else { (15, 20_000 / receivers) };
    eprintln!("fan-out/{receivers} ({rounds} rounds)");
    let mut ours = Side::connect(embedded, receivers, true).await?;
    let mut theirs = Side::connect(mosquitto, receivers, false).await?;
    let (mut our_times, mut their_times) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        our_times.push(ours.round(times).await?);
        their_times.push(theirs.round(times).await?);
    }
    let name = format!("fan-out/{receivers}/each");
    report.compare(&name, &our_times, "mosquitto", &their_times)?;
    Ok(())
}

/// A broker's clients: one publishes, and all others receive each message.
struct Side {
    publisher: SessionSocket,
    topic: String,
    payload: Bytes,
    /// One permit for each received message.
    received: Arc<Semaphore>,
    receivers: u32,
}

impl Side {
    /// Connects all clients. With a store, the receivers watch a key, and the publisher sets it.
    /// Otherwise they subscribe to a topic of the same length.
    async fn connect(port: u16, receivers: u32, has_store: bool) -> Result<Self, Failure> {
        let received = Arc::new(Semaphore::new(0));
        let shared = NotificationTopic::new("watcher-0000", &key(0))?.to_string();
        for number in 0..receivers {
            let id = format!("watcher-{number:04}");
            let topic = match has_store {
                true => NotificationTopic::new(&id, &key(0))?.to_string(),
                false => shared.clone(),
            };
            let mut socket = connect(port, &id, &topic).await?;
            if has_store {
                let watch = Command::Watch { key: key(0) }.encode().into();
                publish(&mut socket, &id, REQUEST, watch)?;
                assert_eq!(next_payload(&mut socket).await?, b"+OK\r\n"[..]);
            }
            tokio::spawn(receive(socket, Arc::clone(&received)));
        }
        let publisher = connect(port, "publisher", "unused").await?;
        let (topic, payload) = match has_store {
            true => (REQUEST.into(), payload(Operation::Set, 0)),
            // The subscribers of mosquitto receive what watchers receive: the payload of a
            // notification, which is longer than that of a SET.
            false => (shared, notification()),
        };
        Ok(Self { publisher, topic, payload, received, receivers })
    }

    /// Publishes messages one after the other: the next one when all receivers have the last one.
    /// Returns the microseconds of a message divided by the number of receivers.
    async fn round(&mut self, times: u32) -> Result<f64, Failure> {
        let lap = Lap::start();
        for _ in 0..times {
            publish(&mut self.publisher, "publisher", &self.topic, self.payload.clone())?;
            let mut received = std::pin::pin!(self.received.acquire_many(self.receivers));
            loop {
                tokio::select! {
                    permits = &mut received => break permits?.forget(),
                    event = self.publisher.next_event() => drop(event?),
                }
            }
        }
        Ok(lap.time().as_secs_f64() * 1e6 / f64::from(times) / f64::from(self.receivers))
    }
}

/// The payload of the notification of a SET.
fn notification() -> Bytes {
    use statestore_proto::message::{Dialect, Notification};
    Notification::Set(statestore_benches::stage::value()).encode(Dialect::Deployed).into()
}

/// Connects a client, and subscribes it to `topic` and to its response topic.
async fn connect(port: u16, id: &str, topic: &str) -> Result<SessionSocket, Failure> {
    let (mut socket, _) = SessionSocket::connect(&Options::new(id, "127.0.0.1", port)).await?;
    let response_topic = response_topic(id);
    let filters = [topic, &response_topic].map(|name| Subscription::new(name, Qos::AtLeastOnce));
    socket.session_mut().subscribe(&filters, (), 0)?;
    while !matches!(socket.next_event().await?, Event::Subscribed { .. }) {}
    Ok(socket)
}

fn response_topic(id: &str) -> String {
    format!("clients/{id}/response")
}

fn publish(
    socket: &mut SessionSocket,
    id: &str,
    topic: &str,
    payload: Bytes,
) -> Result<(), Failure> {
    let (response_topic, now) = (response_topic(id), socket.now());
    let correlation = now.as_nanos().to_be_bytes();
    let (name, value) = TIMESTAMP;
    let properties = [
        Property::ResponseTopic(&response_topic),
        Property::CorrelationData(&correlation),
        Property::User(name, value),
    ];
    let qos = Qos::AtLeastOnce;
    let properties = &properties[..];
    let publish = Publish { topic, payload, qos, retain: false, properties, token: 0 };
    socket.session_mut().publish(publish)?;
    Ok(())
}

async fn next_payload(socket: &mut SessionSocket) -> Result<Bytes, Failure> {
    loop {
        if let Event::Message(message) = socket.next_event().await? {
            return Ok(message.into_payload());
        }
    }
}

async fn receive(mut socket: SessionSocket, received: Arc<Semaphore>) {
    while let Ok(event) = socket.next_event().await {
        if matches!(event, Event::Message(_)) {
            received.add_permits(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::Effort;

    #[test]
    fn soft_limit_of_open_files_is_found() {
        let limits = "Max processes  15  15  processes\nMax open files  1024  524288  files\n";
        assert_eq!(open_files(limits), Some(1_024));
        assert_eq!(open_files("Max open files  unlimited  unlimited  files"), None);
        assert_eq!(open_files(""), None);
    }

    #[test]
    fn all_receivers_of_both_sides_receive_each_message() {
        run(&mut Report::new(Effort::TEST, &mut Vec::new())).unwrap();
    }
}
