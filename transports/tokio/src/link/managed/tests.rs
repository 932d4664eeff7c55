//! Tests of a link over a scripted connector, in simulated time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use statestore_proto::transport::{PublishToken, SubscribeToken};
use tokio::sync::mpsc;
use tokio::time::sleep;

use bytes::Bytes;
use statestore_proto::transport::{Incoming, ReasonCode};

use super::super::active::{ECHO_MAX, SHUTDOWN_MAX};
use super::super::connector::{Negotiated, Ticket};
use super::*;
use crate::link::connector::PacketId;

/// A message with a topic and a payload.
#[derive(Debug)]
struct Text(String, Bytes, bool);

impl AsIncoming for Text {
    fn as_incoming(&self) -> Option<Incoming<'_>> {
        let mut incoming = Incoming::new(&self.0, &self.1);
        incoming.retain = self.2;
        Some(incoming).filter(|incoming| !incoming.topic.is_empty())
    }
}

type Event = Result<ConnectionEvent<Text>, LinkError>;

/// Scripted behaviour of one address.
enum Script {
    /// The attempt fails with this error.
    Fails(LinkError),
    /// The attempt never ends.
    Hangs,
    /// The connection opens, has a queue of this capacity, and these events.
    Opens(Negotiated, usize, mpsc::Receiver<Event>),
}

/// Actions of the link.
type Log = Arc<Mutex<Vec<String>>>;

#[derive(Default)]
struct Fake {
    scripts: VecDeque<Script>,
    log: Log,
}

struct FakeConnection {
    capacity: usize,
    events: mpsc::Receiver<Event>,
    log: Log,
}

fn note(log: &Log, line: impl Into<String>) {
    log.lock().expect("no panic elsewhere").push(line.into());
}

fn take(log: &Log) -> Vec<String> {
    mem::take(&mut log.lock().expect("no panic elsewhere"))
}

impl Connector for Fake {
    type Connection = FakeConnection;

    async fn open(
        &mut self,
        opening: Opening<'_>,
    ) -> Result<(FakeConnection, Negotiated), LinkError> {
        note(&self.log, format!("open {}", opening.address));
        match self.scripts.pop_front().expect("a script") {
            Script::Fails(error) => Err(error),
            Script::Hangs => std::future::pending().await,
            Script::Opens(negotiated, capacity, events) => {
                let log = Arc::clone(&self.log);
                Ok((FakeConnection { capacity, events, log }, negotiated))
            }
        }
    }
}

impl Connection for FakeConnection {
    type Message = Text;

    fn try_send(&mut self, packet: Outgoing) -> Result<(), Outgoing> {
        if self.capacity == 0 {
            return Err(packet);
        }
        self.capacity -= 1;
        note(
            &self.log,
            match packet {
                Outgoing::Publish(publish) => format!("request {}", publish.topic),
                Outgoing::Plain { topic, payload, retain, .. } => {
                    let retained = if retain { "retained " } else { "" };
                    format!("{retained}{topic} {}", String::from_utf8_lossy(&payload))
                }
                Outgoing::Subscribe { filter, .. } => format!("subscribe {filter}"),
                Outgoing::Unsubscribe { filter } => format!("unsubscribe {filter}"),
            },
        );
        Ok(())
    }

    async fn next_event(&mut self, _: bool) -> Event {
        let Some(event) = self.events.recv().await else { return std::future::pending().await };
        if matches!(event, Ok(ConnectionEvent::Writable)) {
            self.capacity = usize::MAX;
        }
        event
    }

    fn acknowledge(&mut self, id: PacketId) {
        note(&self.log, format!("ack {}", id.id));
    }

    async fn close(self) {
        note(&self.log, "close");
        std::future::pending().await
    }
}

fn opens() -> (Script, mpsc::Sender<Event>) {
    opens_with(Negotiated::default(), usize::MAX)
}

fn opens_with(negotiated: Negotiated, capacity: usize) -> (Script, mpsc::Sender<Event>) {
    let (sender, events) = mpsc::channel(100);
    (Script::Opens(negotiated, capacity, events), sender)
}

fn options() -> Options {
    Options::new("c1", "a", 1883)
}

fn fake(scripts: impl IntoIterator<Item = Script>) -> (Fake, Log) {
    let fake = Fake { scripts: scripts.into_iter().collect(), log: Log::default() };
    let log = Arc::clone(&fake.log);
    (fake, log)
}

fn message(topic: &str, payload: &str, id: Option<u16>, dup: bool) -> Event {
    Ok(ConnectionEvent::Message(ReceivedPublish {
        message: Text(topic.to_owned(), payload.to_owned().into(), false),
        id: id.map(|id| PacketId { id, qos: Qos::AtLeastOnce }),
        dup,
        at: Instant::now(),
    }))
}

fn retained(topic: &str, payload: &str) -> Event {
    Ok(ConnectionEvent::Message(ReceivedPublish {
        message: Text(topic.to_owned(), payload.to_owned().into(), true),
        id: None,
        dup: false,
        at: Instant::now(),
    }))
}

async fn delivered(link: &mut ManagedLink<Fake>) -> (String, Option<Delivery>) {
    match link.next_event(true).await {
        Ok(LinkEvent::Message(message)) => {
            (message.message().0.clone(), message.as_incoming().expect("readable").delivery)
        }
        other => panic!("{other:?} instead of a message"),
    }
}

fn subscribe(filter: &str, token: u64) -> Transmit {
    Transmit::Subscribe { filter: filter.into(), token: SubscribeToken::from_raw(token) }
}

#[tokio::test(start_paused = true)]
async fn silent_address_times_out_and_the_next_is_tried() {
    let (script, _events) = opens();
    let (fake, log) = fake([Script::Hangs, script]);
    let options = options().add_address("b", 1884).connect_timeout(Duration::from_secs(3));
    let mut link = ManagedLink::for_client_with(options, fake);
    let begin = Instant::now();
    link.connect().await.expect("the second address accepts");
    assert_eq!(begin.elapsed(), Duration::from_secs(3));
    assert_eq!(take(&log), ["open a:1883", "open b:1884"]);
    assert_eq!(link.in_use().address(), Some(Address::new("b", 1884)));
}

#[tokio::test(start_paused = true)]
async fn time_out_names_the_address() {
    let (fake, _) = fake([Script::Hangs]);
    let mut link = ManagedLink::for_client_with(options(), fake);
    let error = link.connect().await.expect_err("it is silent");
    assert_eq!(error.kind(), LinkErrorKind::TimedOut);
    assert_eq!(error.to_string(), "the broker did not respond within 5 s (at a:1883)");
}

#[tokio::test(start_paused = true)]
async fn errors_are_diagnosed_until_the_first_connection() {
    let lost = || LinkError::new(LinkErrorKind::Lost, "closed");
    let (script, _events) = opens();
    let scripts = [Script::Fails(lost()), script, Script::Fails(lost())];
    let (fake, _) = fake(scripts);
    let mut link = ManagedLink::for_client_with(options(), fake).diagnose(|error, address| {
        Box::pin(async move {
            error.with_diagnosis(LinkErrorKind::Tls, format!("no TLS at {address}")).permanent()
        })
    });
    let error = link.connect().await.expect_err("it fails");
    assert_eq!((error.kind(), error.is_transient()), (LinkErrorKind::Tls, false));
    assert_eq!(error.to_string(), "no TLS at a:1883 (at a:1883)");
    link.connect().await.expect("a connection");
    assert_eq!(link.connect().await.expect_err("it fails").kind(), LinkErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn acknowledgements_keep_the_order_across_connections() {
    let ((first, events), (second, later)) = (opens(), opens());
    let (fake, log) = fake([first, second]);
    let store = ManagedLink::for_store_with(options(), fake);
    let mut link = store.without_claim();
    link.connect().await.expect("a connection");
    for id in 1..=2 {
        events.send(message("t", "", Some(id), false)).await.expect("capacity");
    }
    let one = delivered(&mut link).await.1.expect("it must be acknowledged");
    let two = delivered(&mut link).await.1.expect("it must be acknowledged");
    take(&log);
    assert!(link.try_send(Transmit::Acknowledge(two)).is_ok());
    assert_eq!(take(&log), [""; 0]);
    assert!(link.try_send(Transmit::Acknowledge(one)).is_ok());
    assert_eq!(take(&log), ["ack 1", "ack 2"]);
    link.connect().await.expect("a connection");
    later.send(message("t", "", Some(1), false)).await.expect("capacity");
    delivered(&mut link).await;
    take(&log);
    assert!(link.try_send(Transmit::Acknowledge(one)).is_ok());
    assert_eq!(take(&log), [""; 0], "it belongs to the earlier connection");
}

#[tokio::test(start_paused = true)]
async fn message_redelivered_first_twice_is_acknowledged_early() {
    let scripts: Vec<_> = (0..3).map(|_| opens()).collect();
    let (scripts, events): (Vec<_>, Vec<_>) = scripts.into_iter().unzip();
    let (fake, log) = fake(scripts);
    let mut link = ManagedLink::for_store_with(options(), fake).without_claim();
    for (at, events) in events.iter().enumerate() {
        link.connect().await.expect("a connection");
        take(&log);
        events.send(message("t", "", Some(7), at > 0)).await.expect("capacity");
        delivered(&mut link).await;
        let early: &[&str] = if at == 2 { &["ack 7"] } else { &[] };
        assert_eq!(take(&log), early, "connection {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn unreadable_and_presence_messages_are_not_passed_on() {
    let (script, events) = opens();
    let (fake, log) = fake([script]);
    let mut link =
        ManagedLink::for_store_with(options().read_mosquitto_log(true), fake).without_claim();
    link.connect().await.expect("a connection");
    let filters = mosquitto::FILTERS.map(|filter| format!("subscribe {filter}"));
    assert_eq!(take(&log)[1..], filters);
    events.send(message("", "", Some(1), false)).await.expect("capacity");
    let line = "1: Client c2 closed its connection.";
    events.send(message("$SYS/broker/log/N", line, None, false)).await.expect("capacity");
    match link.next_event(true).await {
        Ok(LinkEvent::ClientGone(client_id)) => assert_eq!(&*client_id, "c2"),
        other => panic!("{other:?}"),
    }
    assert_eq!(take(&log), ["ack 1"]);
}

#[tokio::test(start_paused = true)]
async fn invalid_and_too_long_filters_are_refused_by_the_link() {
    let negotiated = Negotiated { maximum_packet_size: Some(20), ..Negotiated::default() };
    let (script, _events) = opens_with(negotiated, usize::MAX);
    let (fake, log) = fake([script]);
    let mut link = ManagedLink::for_client_with(options(), fake);
    link.connect().await.expect("a connection");
    take(&log);
    for (token, filter, expected) in [
        (1, "a/#/b", ReasonCode::TOPIC_FILTER_INVALID),
        (2, "a filter that is too long", ReasonCode::PACKET_TOO_LARGE),
    ] {
        assert!(link.try_send(subscribe(filter, token)).is_ok());
        let Ok(LinkEvent::Subscribed(of, reason)) = link.next_event(false).await else {
            panic!("one")
        };
        assert_eq!((of.into_raw(), reason), (token, expected));
    }
    assert_eq!(take(&log), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn message_has_the_maximum_packet_size_of_the_broker() {
    let negotiated = Negotiated { maximum_packet_size: Some(3_000), ..Negotiated::default() };
    let (script, events) = opens_with(negotiated, usize::MAX);
    let (fake, _log) = fake([script]);
    let mut link = ManagedLink::for_store_with(options(), fake).without_claim();
    link.connect().await.expect("a connection");
    events.send(message("t", "", Some(1), false)).await.expect("capacity");
    let Ok(LinkEvent::Message(message)) = link.next_event(true).await else { panic!("a message") };
    assert_eq!(message.as_incoming().expect("readable").packet_bytes_max, Some(3_000));
}

#[tokio::test(start_paused = true)]
async fn full_queue_returns_the_packet_and_reports_capacity() {
    let (script, events) = opens_with(Negotiated::default(), 1);
    let (fake, log) = fake([script]);
    // The first presence packet fills the queue, and the second waits.
    let mut link = ManagedLink::for_client_with(options().read_mosquitto_log(true), fake);
    link.connect().await.expect("a connection");
    assert_eq!(link.try_send(subscribe("a", 1)), Err(subscribe("a", 1)));
    events.send(Ok(ConnectionEvent::Writable)).await.expect("capacity");
    assert!(matches!(link.next_event(true).await, Ok(LinkEvent::Writable)));
    assert_eq!(link.try_send(subscribe("a", 1)), Ok(()));
    let [.., last_own, machine] = &take(&log)[..] else { panic!("three packets") };
    assert_eq!((&**last_own, &**machine), ("subscribe $SYS/broker/log/E", "subscribe a"));
}

const CLAIM: &str = "clients/c1/services/statestore/instance";

/// The marker that the link has published.
fn marker(log: &Log) -> String {
    let marker = take(log).into_iter().find(|line| line.starts_with(CLAIM)).expect("a marker");
    marker.rsplit_once(' ').expect("a payload").1.to_owned()
}

#[tokio::test(start_paused = true)]
async fn store_claims_and_holds_earlier_messages() {
    let (script, events) = opens();
    let (fake, log) = fake([script]);
    let mut link = ManagedLink::for_store_with(options(), fake);
    events.send(message("early", "", Some(1), false)).await.expect("capacity");
    let settled = ConnectionEvent::Settled(Ticket::Other, ReasonCode::SUCCESS);
    events.send(Ok(settled)).await.expect("capacity");
    events.send(retained(CLAIM, "41:00000000000000ff")).await.expect("capacity");
    let echo = async {
        sleep(Duration::from_millis(1)).await;
        let echo = marker(&log);
        events.send(message(CLAIM, &echo, None, false)).await.expect("capacity");
    };
    let (connected, ()) = tokio::join!(link.connect(), echo);
    connected.expect("a connection");
    let packets = take(&log);
    assert_eq!(packets[0], format!("unsubscribe {CLAIM}"));
    assert!(packets[1].starts_with(&format!("retained {CLAIM} ")), "{packets:?}");
    assert_eq!(delivered(&mut link).await.0, "early");
    // A later flood of claims reaches no machine.
    events.send(message(CLAIM, "9:00000000000000ff", None, false)).await.expect("capacity");
    events.send(message("after", "", None, false)).await.expect("capacity");
    assert_eq!(delivered(&mut link).await.0, "after");
    link.disconnect().await;
    assert_eq!(take(&log), [format!("retained {CLAIM} "), "close".to_owned()]);
}

#[tokio::test(start_paused = true)]
async fn store_without_an_echo_serves_half_a_second_later() {
    let (script, _events) = opens();
    let (fake, log) = fake([script]);
    let mut link = ManagedLink::for_store_with(options(), fake);
    let begin = Instant::now();
    link.connect().await.expect("a connection");
    assert_eq!(begin.elapsed(), ECHO_MAX);
    assert!(!take(&log).iter().any(|packet| packet.starts_with("retained")));
}

#[tokio::test(start_paused = true)]
async fn disconnect_takes_a_second_at_most() {
    let (script, _events) = opens();
    let (fake, log) = fake([script]);
    let mut link = ManagedLink::for_client_with(options(), fake);
    link.connect().await.expect("a connection");
    let begin = Instant::now();
    link.disconnect().await;
    assert_eq!(begin.elapsed(), SHUTDOWN_MAX);
    assert_eq!(take(&log), ["open a:1883", "close"]);
    let error = link.next_event(true).await.expect_err("not connected");
    assert_eq!(error.kind(), LinkErrorKind::NotConnected);
}

#[tokio::test(start_paused = true)]
async fn takeover_is_permanent_unless_retries_are_enabled() {
    for retries in [false, true] {
        let (script, events) = opens();
        let (fake, _) = fake([script]);
        let mut link = ManagedLink::for_client_with(options().retry_after_takeover(retries), fake);
        link.connect().await.expect("a connection");
        let taken = LinkError::new(LinkErrorKind::TakenOver, "taken over");
        events.send(Err(taken)).await.expect("capacity");
        let error = link.next_event(true).await.expect_err("it is lost");
        assert_eq!(error.is_transient(), retries);
        // Packets for a lost connection are dropped.
        assert!(link.try_send(subscribe("a", 1)).is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn outcomes_reach_their_tokens() {
    let (script, events) = opens();
    let (fake, _) = fake([script]);
    let mut link = ManagedLink::for_client_with(options(), fake);
    link.connect().await.expect("a connection");
    let token = PublishToken::from_raw(5);
    for (ticket, reason) in [
        (Ticket::Publish(None), ReasonCode::NOT_AUTHORIZED),
        (Ticket::Publish(Some(token)), ReasonCode::NO_MATCHING_SUBSCRIBERS),
    ] {
        let settled = ConnectionEvent::Settled(ticket, reason);
        events.send(Ok(settled)).await.expect("capacity");
    }
    let Ok(LinkEvent::Published(of, reason)) = link.next_event(false).await else {
        panic!("a PUBACK")
    };
    assert_eq!((of, reason), (token, ReasonCode::NO_MATCHING_SUBSCRIBERS));
}
