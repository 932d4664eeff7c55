//! The hub: connections, their failures and their limit.

use statestore_loopback::{Hub, Message};
use statestore_proto::transport::{Qos, ReasonCode, SubscribeToken, Transmit};
use statestore_tokio::{Link, LinkEvent, StoreService};

fn message(topic: &str) -> Message {
    Message {
        sender: "".into(),
        topic: topic.into(),
        payload: "payload".into(),
        qos: Qos::AtLeastOnce,
        response_topic: None,
        correlation_data: None,
        content_type: None,
        message_expiry: None,
        user_properties: Vec::new(),
        delivery: None,
        arrived: None,
    }
}

#[tokio::test(start_paused = true)]
async fn store_stops_with_the_last_clone_of_its_hub() {
    let hub = Hub::with_store().await.expect("the store starts");
    let mut status = hub.store().expect("the hub has a store").status();
    let clone = hub.clone();
    drop(hub);
    let client = clone.connect("c").expect("a valid client id");
    client.set("k", "v").await.expect("the store still runs");
    drop(clone);
    while status.changed().await.is_some() {}
}

#[tokio::test(start_paused = true)]
async fn configured_store_uses_its_configuration() {
    let builder = StoreService::builder().traffic(true);
    let hub = Hub::with_service(builder).await.expect("the store starts");
    assert!(hub.store().expect("the hub has a store").traffic().is_some());
    assert!(Hub::new().store().is_none());
}

#[tokio::test(start_paused = true)]
async fn newer_connection_closes_the_older_one_of_its_client_id() {
    let hub = Hub::new();
    let older = hub.raw_client("c").expect("the hub accepts clients");
    let newer = hub.raw_client("c").expect("the hub accepts clients");
    older.next().await.expect_err("the newer connection closed it");
    drop(older);
    newer.subscribe("t");
    newer.publish(message("t"));
    let received = newer.next().await.expect("it stays connected");
    assert_eq!((&*received.topic, &*received.sender), ("t", "c"));
}

#[tokio::test(start_paused = true)]
async fn stopped_hub_rejects_connections_until_it_restarts() {
    let hub = Hub::new();
    let client = hub.raw_client("c").expect("the hub accepts clients");
    hub.stop();
    client.next().await.expect_err("the hub closed the connection");
    assert!(hub.raw_client("c").expect_err("the hub is stopped").is_transient());
    hub.restart();
    hub.raw_client("c").expect("the hub accepts clients again");
}

#[tokio::test(start_paused = true)]
async fn store_receives_a_disconnect_after_the_messages_of_that_client() {
    let hub = Hub::new();
    let mut store = hub.store_link("statestore");
    store.connect().await.expect("the hub accepts stores");
    let token = SubscribeToken::from_raw(1);
    store.try_send(Transmit::Subscribe { filter: "t".into(), token }).expect("capacity");
    let client = hub.raw_client("c").expect("the hub accepts clients");
    client.publish(message("t"));
    drop(client);
    let mut client = hub.raw_client("c").expect("the hub accepts clients");
    client.publish(message("t"));
    client = hub.raw_client("other").expect("the hub accepts clients");
    let mut events = Vec::new();
    for _ in 0..5 {
        events.push(match store.next_event(true).await.expect("the store stays connected") {
            LinkEvent::Subscribed(_, reason) => format!("{reason:?}"),
            LinkEvent::Message(message) => format!("from {}", message.sender),
            LinkEvent::ClientGone(client_id) => format!("{client_id} gone"),
            other => format!("{other:?}"),
        });
    }
    let granted = format!("{:?}", ReasonCode::GRANTED_QOS_1);
    assert_eq!(events, [&*granted, "from c", "c gone", "from c", "c gone"]);
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn client_that_receives_nothing_is_disconnected_at_the_limit() {
    let hub = Hub::new();
    let slow = hub.raw_client("slow").expect("the hub accepts clients");
    slow.subscribe("t");
    let sender = hub.raw_client("sender").expect("the hub accepts clients");
    for _ in 0..66_000 {
        sender.publish(message("t"));
    }
    let mut received = 0;
    while slow.next().await.is_ok() {
        received += 1;
    }
    assert_eq!(received, 65_537, "the message that exceeds the limit is the last");
}
