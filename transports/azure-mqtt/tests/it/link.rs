//! The link against a scripted broker.

use std::time::Duration;

use azure_iot_operations_mqtt::control_packet::{PublishProperties, TopicName};
use azure_iot_operations_mqtt::error::{CompletionError, DetachedError, SessionErrorKind};
use azure_iot_operations_mqtt::session::{Session, SessionOptionsBuilder};
use statestore_azure_mqtt::{
    Error, Link, LinkError, LinkErrorKind, LinkEvent, SessionLink, StateStore,
};
use statestore_proto::topic::{RESERVED, ResponseTopic};
use statestore_proto::transport::{ReasonCode, SubscribeToken, Transmit};
use statestore_sdk_tests::{RunningSession, settings};
use statestore_testkit::brokers::scripted::{Peer, Scripted, Welcome};
use statestore_testkit::process::timely;
use statestore_testkit::wire::packets::{Packet, Publish, Qos};
use tokio::runtime::Builder;

const SOON: Duration = Duration::from_millis(200);
const RESUMED: Welcome = Welcome {
    session_present: true,
    receive_maximum: None,
    max_packet_size: None,
    keep_alive: None,
    retain_available: None,
};

fn link_over(session: &RunningSession) -> SessionLink {
    SessionLink::new(session.client.clone(), session.monitor.clone())
}

/// Reads the UNSUBSCRIBE with which the link detects the connection, and responds to it.
async fn answer_probe(peer: &mut Peer) {
    let Some(Packet::Unsubscribe(probe)) = peer.read().await else { panic!("no probe") };
    assert_eq!(probe.filters, ["statestore-azure-mqtt/probe"]);
    unsuback(peer, probe.pkid).await;
}

async fn unsuback(peer: &mut Peer, id: u16) {
    let [high, low] = id.to_be_bytes();
    // No subscription existed.
    peer.send(&[0xb0, 4, high, low, 0, 0x11]).await;
}

/// Accepts the connection of a session with a link.
async fn welcome(broker: &Scripted, welcome: Welcome) -> Peer {
    let mut peer = broker.welcome(welcome).await;
    answer_probe(&mut peer).await;
    peer
}

async fn connected(broker: &Scripted, session: &RunningSession) -> (SessionLink, Peer) {
    let mut link = link_over(session);
    let (connected, peer) = tokio::join!(link.connect(), welcome(broker, Welcome::default()));
    assert!(!connected.expect("a connection").session_present);
    (link, peer)
}

/// A connected handle, and its peer after the first SUBSCRIBE.
async fn handle(broker: &Scripted, link: SessionLink) -> (StateStore, Peer) {
    let store = StateStore::builder().spawn(link).expect("a client id");
    let mut peer = welcome(broker, Welcome::default()).await;
    grant(&mut peer).await;
    store.wait_connected().await.expect("the session connects");
    (store, peer)
}

/// Grants the next SUBSCRIBE.
async fn grant(peer: &mut Peer) {
    let Some(Packet::Subscribe(subscribe)) = peer.read().await else { panic!("no SUBSCRIBE") };
    peer.grant(subscribe.pkid, 1).await;
}

/// Subscribes to responses, which have the topic `t` here.
async fn subscribed(link: &mut SessionLink, peer: &mut Peer, reason: u8) -> ReasonCode {
    subscribed_to("t", link, peer, reason).await
}

async fn subscribed_to(
    filter: &str,
    link: &mut SessionLink,
    peer: &mut Peer,
    reason: u8,
) -> ReasonCode {
    let token = SubscribeToken::from_raw(7);
    link.try_send(Transmit::Subscribe { filter: filter.into(), token }).expect("capacity");
    let respond = async {
        let Some(Packet::Subscribe(subscribe)) = peer.read().await else { panic!("no SUBSCRIBE") };
        assert_eq!(subscribe.filters, [filter]);
        peer.grant(subscribe.pkid, reason).await;
    };
    match tokio::join!(link.next_event(true), respond).0 {
        Ok(LinkEvent::Subscribed(reported, reason)) if reported == token => reason,
        other => panic!("{other:?}"),
    }
}

fn message(id: u16) -> Publish {
    message_to("t", id)
}

fn message_to(topic: &str, id: u16) -> Publish {
    let mut publish = Publish::new(topic, Qos::AtLeastOnce, id.to_string(), None);
    publish.pkid = id;
    publish
}

async fn is_silent(peer: &mut Peer) -> bool {
    tokio::time::timeout(SOON, peer.read()).await.is_err()
}

/// Whether a source of this error has this type.
fn has_source<T: std::error::Error + 'static>(error: &LinkError) -> bool {
    error.get_ref().is_some_and(|source| source.is::<T>())
}

#[tokio::test]
async fn message_is_acknowledged_after_it_was_handled() {
    timely(async {
        let broker = Scripted::start().await;
        let session = RunningSession::start("app", broker.port());
        let (mut link, mut peer) = connected(&broker, &session).await;
        assert_eq!(subscribed(&mut link, &mut peer, 1).await, ReasonCode::GRANTED_QOS_1);
        peer.deliver(message(1)).await;
        peer.deliver(message(2)).await;
        let idle = tokio::time::timeout(SOON, link.next_event(false)).await;
        assert!(idle.is_err(), "no message was requested: {idle:?}");
        let Ok(LinkEvent::Message(first)) = link.next_event(true).await else {
            panic!("a message")
        };
        let Ok(LinkEvent::Message(second)) = link.next_event(true).await else {
            panic!("a message")
        };
        assert_eq!(
            (&first.packet().payload[..], &second.packet().payload[..]),
            (&b"1"[..], &b"2"[..])
        );
        assert!(is_silent(&mut peer).await, "not handled yet");
        drop(second);
        assert!(is_silent(&mut peer).await, "acknowledgements are in order");
        drop(first);
        for id in [1, 2] {
            let acknowledged = peer.read().await;
            assert!(matches!(&acknowledged, Some(Packet::PubAck(ack)) if ack.pkid == id));
        }
        drop(link);
    })
    .await;
}

#[tokio::test]
async fn notifications_come_before_responses_sixteen_in_a_row() {
    timely(async {
        let broker = Scripted::start().await;
        let session = RunningSession::start("app", broker.port());
        let (mut link, mut peer) = connected(&broker, &session).await;
        let notifications = format!("{RESERVED}/617070/command/notify/+");
        for filter in ["t", &notifications] {
            let granted = subscribed_to(filter, &mut link, &mut peer, 1).await;
            assert_eq!(granted, ReasonCode::GRANTED_QOS_1);
        }
        for id in 1..=2 {
            peer.deliver(message(id)).await;
        }
        for id in 3..=34 {
            peer.deliver(message_to(&notifications.replace('+', "6B"), id)).await;
        }
        // The last message is in the queue of the link with all others.
        tokio::time::sleep(SOON).await;
        let mut received = Vec::new();
        for _ in 1..=34 {
            let Ok(LinkEvent::Message(message)) = link.next_event(true).await else {
                panic!("no message")
            };
            received.push(String::from_utf8_lossy(&message.packet().payload).into_owned());
        }
        let ids = (3..=18).chain([1]).chain(19..=34).chain([2]);
        assert_eq!(received, ids.map(|id: u16| id.to_string()).collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test]
async fn reason_codes_are_reported() {
    timely(async {
        let broker = Scripted::start().await;
        let session = RunningSession::start("app", broker.port());
        let (mut link, mut peer) = connected(&broker, &session).await;
        assert_eq!(subscribed(&mut link, &mut peer, 0x87).await, ReasonCode::NOT_AUTHORIZED);
        assert_eq!(subscribed(&mut link, &mut peer, 0).await, ReasonCode(0));
        drop((link, peer, session.exit().await));

        let session = RunningSession::start("app", broker.port());
        let (store, mut peer) = handle(&broker, link_over(&session)).await;
        for reason in [ReasonCode::NO_MATCHING_SUBSCRIBERS, ReasonCode::QUOTA_EXCEEDED] {
            let get = store.get("k");
            let reject = async {
                let request = peer.publish().await;
                peer.puback(request.pkid, reason.0).await;
            };
            assert_eq!(tokio::join!(get, reject).0, Err(Error::Undelivered(reason)));
        }
    })
    .await;
}

#[tokio::test]
async fn packets_beyond_the_limit_wait_for_acknowledgements() {
    timely(async {
        let broker = Scripted::start().await;
        let session = RunningSession::start("app", broker.port());
        let (store, mut peer) = handle(&broker, link_over(&session).max_in_flight(2)).await;
        let gets = statestore_testkit::links::gets(&store, 6);
        let mut requests = Vec::new();
        for _ in 0..3 {
            for _ in 0..2 {
                requests.push(peer.publish().await);
            }
            assert!(is_silent(&mut peer).await, "two are in flight");
            for request in requests.drain(..) {
                peer.puback(request.pkid, 0).await;
                peer.answer(&request).await;
            }
        }
        let answered = gets.join_all().await;
        assert_eq!(answered.len(), 6);
        assert!(answered.iter().all(|get| *get == Ok(None)), "{answered:?}");
    })
    .await;
}

#[tokio::test]
async fn request_waits_while_the_application_fills_the_queue_of_the_sdk() {
    timely(async {
        let broker = Scripted::start().await;
        let session = RunningSession::start("app", broker.port());
        let (store, mut peer) = handle(&broker, link_over(&session)).await;
        // The peer does not read, so the buffers of the sockets and the queue are filled.
        let client = session.client.clone();
        let filling = tokio::spawn(async move {
            for _ in 0..150 {
                let topic = TopicName::new("rooms/1").expect("a topic");
                let payload = vec![b'x'; 1 << 18];
                let properties = PublishProperties::default();
                client.publish_qos1(topic, false, payload, properties).await.expect("a session");
            }
        });
        tokio::time::sleep(SOON).await;
        assert!(!filling.is_finished(), "the queue is full");
        let gets = statestore_testkit::links::gets(&store, 3);
        tokio::time::sleep(SOON).await;
        let mut answered = 0;
        while answered < 3 {
            let publish = peer.publish().await;
            peer.puback(publish.pkid, 0).await;
            if publish.topic != "rooms/1" {
                peer.answer(&publish).await;
                answered += 1;
            }
        }
        let answered = gets.join_all().await;
        assert!(answered.iter().all(|get| *get == Ok(None)), "{answered:?}");
    })
    .await;
}

/// The session reconnects before the link looks at it.
#[tokio::test]
async fn loss_is_reported_after_the_session_has_reconnected() {
    timely(async {
        let broker = Scripted::start().await;
        let session = RunningSession::start("app", broker.port());
        let (mut link, mut peer) = connected(&broker, &session).await;
        assert_eq!(subscribed(&mut link, &mut peer, 1).await, ReasonCode::GRANTED_QOS_1);
        for _ in 0..20 {
            drop(peer);
            let mut next = broker.welcome(RESUMED).await;
            while !session.monitor.is_connected() {
                tokio::task::yield_now().await;
            }
            // A message of the new connection does not hide the loss.
            next.deliver(message(1)).await;
            let error = loop {
                match link.next_event(true).await {
                    Ok(LinkEvent::Message(_)) => {}
                    Ok(other) => panic!("{other:?}"),
                    Err(error) => break error,
                }
            };
            assert_eq!((error.kind(), error.is_transient()), (LinkErrorKind::Lost, true));
            let probe = async {
                let mut probe = next.read().await;
                if matches!(probe, Some(Packet::PubAck(_))) {
                    probe = next.read().await;
                }
                let Some(Packet::Unsubscribe(probe)) = probe else { panic!("{probe:?}") };
                unsuback(&mut next, probe.pkid).await;
            };
            let connected = tokio::join!(link.connect(), probe).0.expect("a connection");
            assert!(connected.session_present, "the SDK ends a session that is not present");
            peer = next;
        }
    })
    .await;
}

#[tokio::test]
async fn request_that_the_sdk_sends_again_after_a_loss_is_counted_and_not_reported() {
    timely(async {
        let broker = Scripted::start().await;
        let session = RunningSession::start("app", broker.port());
        let (store, mut peer) = handle(&broker, link_over(&session).max_in_flight(1)).await;
        let get = tokio::spawn({
            let get = store.get("first");
            async move { get.await }
        });
        let first = peer.publish().await;
        drop(peer);
        assert_eq!(get.await.expect("no panic"), Err(Error::ConnectionLost));
        let mut peer = broker.welcome(RESUMED).await;
        let Some(Packet::Publish(again)) = peer.read().await else { panic!("not sent again") };
        assert!(again.dup && again.payload == first.payload);
        answer_probe(&mut peer).await;
        assert!(is_silent(&mut peer).await, "one packet is in flight");
        peer.puback(again.pkid, 0).await;
        grant(&mut peer).await;
        let answer = async {
            let request = peer.publish().await;
            peer.puback(request.pkid, 0).await;
            peer.answer(&request).await;
        };
        assert_eq!(tokio::join!(store.get("second"), answer).0, Ok(None));
    })
    .await;
}

#[tokio::test]
async fn exit_of_the_session_ends_pending_requests_with_its_error() {
    timely(async {
        let broker = Scripted::start().await;
        let session = RunningSession::start("app", broker.port());
        let (store, mut peer) = handle(&broker, link_over(&session)).await;
        let get = tokio::spawn({
            let get = store.get("k");
            async move { get.await }
        });
        peer.publish().await;
        session.exit().await.expect("a graceful exit");
        let error = get.await.expect("no panic").expect_err("the session has ended");
        assert!(matches!(error, Error::ConnectionLost | Error::Closed(_)), "{error:?}");
        let Err(Error::Closed(closed)) = store.get("k").await else { panic!("it is closed") };
        let text = closed.to_string();
        assert!(text.contains("the session of the SDK has ended"), "{text}");
    })
    .await;
}

#[tokio::test]
async fn session_that_the_broker_has_lost_ends_the_handle() {
    timely(async {
        let broker = Scripted::start().await;
        let session = RunningSession::start("app", broker.port());
        let (store, peer) = handle(&broker, link_over(&session)).await;
        drop(peer);
        let _peer = broker.welcome(Welcome::default()).await;
        let error = session.wait_ended().await.expect_err("the session is lost");
        assert_eq!(error.kind(), SessionErrorKind::SessionLost);
        let Err(Error::Closed(closed)) = store.get("k").await else { panic!("it is closed") };
        assert!(closed.to_string().contains("the session of the SDK has ended"), "{closed}");
    })
    .await;
}

#[tokio::test]
async fn dropped_session_is_an_error_with_its_source() {
    timely(async {
        let broker = Scripted::start().await;
        let session = RunningSession::start("app", broker.port());
        let (mut link, peer) = connected(&broker, &session).await;
        session.exit().await.expect("a graceful exit");
        drop(peer);
        let error = link.next_event(true).await.expect_err("the connection is lost");
        assert!(error.is_transient(), "{error}");
        let error = link.connect().await.expect_err("the session has ended");
        assert!(!error.is_transient(), "{error}");
        assert!(has_source::<DetachedError>(&error) || has_source::<CompletionError>(&error));
    })
    .await;
}

#[tokio::test]
async fn shutdown_unsubscribes_from_responses_and_leaves_the_session() {
    timely(async {
        let broker = Scripted::start().await;
        let session = RunningSession::start("app", broker.port());
        let (store, mut peer) = handle(&broker, link_over(&session)).await;
        let watch = store.watch("k");
        let register = async {
            let Some(Packet::Subscribe(subscribe)) = peer.read().await else { panic!("no filter") };
            assert!(subscribe.filters.iter().all(|filter| filter.starts_with(RESERVED)));
        };
        let _ = tokio::join!(tokio::time::timeout(SOON, watch), register);
        let shutdown = tokio::spawn(store.shutdown());
        let Some(Packet::Unsubscribe(unsubscribe)) = peer.read().await else { panic!("no filter") };
        let responses = ResponseTopic::new("app").expect("a client id").to_string();
        assert_eq!(unsubscribe.filters, [responses]);
        unsuback(&mut peer, unsubscribe.pkid).await;
        shutdown.await.expect("no panic");
        assert!(is_silent(&mut peer).await, "neither another UNSUBSCRIBE nor a DISCONNECT");
        assert!(session.monitor.is_connected());
    })
    .await;
}

#[tokio::test]
async fn next_request_after_the_session_was_dropped_ends_the_handle() {
    timely(async {
        let broker = Scripted::start().await;
        let session = RunningSession::start("app", broker.port());
        let (store, _peer) = handle(&broker, link_over(&session)).await;
        session.abort();
        // The monitor does not report it.
        tokio::time::sleep(SOON).await;
        assert!(session.monitor.is_connected());
        let error = store.get("k").await.expect_err("the session has ended");
        assert!(matches!(error, Error::ConnectionLost | Error::Closed(_)), "{error:?}");
        let Err(Error::Closed(closed)) = store.get("k").await else { panic!("it is closed") };
        assert!(closed.to_string().contains("the session of the SDK has ended"), "{closed}");
    })
    .await;
}

#[tokio::test]
async fn handle_waits_for_a_session_that_runs_later() {
    timely(async {
        let broker = Scripted::start().await;
        let settings = settings("app", "127.0.0.1", broker.port()).build().expect("settings");
        let options = SessionOptionsBuilder::default().connection_settings(settings).build();
        let session = Session::new(options.expect("options")).expect("a session");
        let store = statestore_azure_mqtt::connect(&session).expect("a client id");
        let get = store.get("k");
        assert!(broker.receives_no_connection(SOON).await, "the link opens none");
        let running = tokio::spawn(session.run());
        let answer = async {
            let mut peer = welcome(&broker, Welcome::default()).await;
            let request = peer.publish().await;
            peer.puback(request.pkid, 0).await;
            peer.answer(&request).await;
            peer
        };
        let (found, _peer) = tokio::join!(get, answer);
        assert_eq!(found, Ok(None));
        running.abort();
    })
    .await;
}

/// A dropped message spawns the task that acknowledges it.
#[test]
fn runtime_with_unhandled_messages_ends() {
    for mut builder in [Builder::new_current_thread(), Builder::new_multi_thread()] {
        let runtime = builder.enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let broker = Scripted::start().await;
            let session = RunningSession::start("app", broker.port());
            let (mut link, mut peer) = connected(&broker, &session).await;
            assert_eq!(subscribed(&mut link, &mut peer, 1).await, ReasonCode::GRANTED_QOS_1);
            peer.deliver(message(1)).await;
            peer.deliver(message(2)).await;
            let Ok(LinkEvent::Message(first)) = link.next_event(true).await else {
                panic!("no message")
            };
            tokio::spawn(async move {
                let _handled = (first, link, session, peer);
                std::future::pending::<()>().await;
            });
            tokio::task::yield_now().await;
        });
    }
}
