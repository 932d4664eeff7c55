//! The `Debug` output of every type that holds values, passwords or tokens never contains them.

use std::fmt::Debug;

use bytes::Bytes;
use statestore_fuzz_bodies::machines::{ClientOp, ClientRig};
use statestore_models::machines::request::StoreRequest;
use statestore_mqtt::packet::{self, Packet};
use statestore_mqtt::property::{Pieces, Property};
use statestore_mqtt::{Qos, Reason, session, wire};
use statestore_proto::client::{Client, ClientConfig, Request};
use statestore_proto::hlc::FencingToken;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::{
    Command, Condition, Notification, Operand, PageEncoder, Reply, RequestKind, Response, Scan,
};
use statestore_proto::resp::Frame;
use statestore_proto::rules::{KeyState, Stored, decide};
use statestore_proto::store::{Durability, Store, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::transport::{Incoming, Transmit};
use statestore_sim::{ClientIndex, Clock, Faults, Message, TraceEvent, World};

const VALUE: &str = "hunter2-hunter2";

#[track_caller]
fn assert_hidden(what: &dyn Debug) {
    let (short, long) = (format!("{what:?}"), format!("{what:#?}"));
    let digits = format!("{:?}", VALUE.as_bytes()).replace(['[', ']'], "");
    for text in [short, long] {
        assert!(!text.contains("hunter2") && !text.contains(&digits), "{text}");
    }
}

const fn now() -> Now {
    Now::new(Instant::from_millis(1_000), UnixTime::from_millis(1_696_374_425_000))
}

fn set() -> Command<&'static [u8]> {
    let (key, value) = (b"k".as_slice(), VALUE.as_bytes());
    Command::Set { key, value, condition: Condition::Always, expiry: None }
}

#[test]
fn messages_and_rules_hide_values() {
    let operand = Operand::new(VALUE.as_bytes()).expect("no word of SET");
    assert_hidden(&operand);
    assert_hidden(&Condition::IfAbsentOrEqualTo(operand));
    assert_hidden(&set());
    assert_hidden(&Request::set("k", VALUE));
    assert_hidden(&Reply::Value(VALUE.as_bytes()));
    assert_hidden(&Frame::Blob(VALUE.as_bytes()));
    // A token may contain a key.
    assert_hidden(&Scan { pattern: b"*".as_slice(), token: Some(VALUE.as_bytes()) });
    let page = PageEncoder { keys: &[VALUE.as_bytes()], token: Some(VALUE.as_bytes()) };
    assert_hidden(&page);
    assert_hidden(&Response::decode(&page.encode(), RequestKind::Scan).expect("a page"));
    assert_hidden(&Notification::Set(VALUE.as_bytes()));
    let entry = Some(Stored { value: VALUE.as_bytes(), fence: None });
    let state = KeyState { stored: entry, ..KeyState::default() };
    assert_hidden(&state);
    assert_hidden(&decide(state, &Command::Get { key: b"k".as_slice() }, None));
    let payload = Bytes::from(set().encode());
    let incoming = Incoming::new("topic", &payload);
    assert_hidden(&incoming);
    assert_hidden(&Input::Message(&incoming));
}

#[test]
fn client_and_its_output_hide_values() {
    let mut client = Client::new(ClientConfig::new("c", [0; 8])).expect("a plain name");
    client.submit(now(), Request::set("k", VALUE)).expect("room");
    client.handle(now(), Input::Connected { session_present: false });
    assert_hidden(&client);
    while let Some(transmit) = client.poll_transmit() {
        if let Transmit::Subscribe { token, .. } = transmit {
            client.handle(
                now(),
                Input::Subscribed(token, statestore_proto::transport::ReasonCode::GRANTED_QOS_1),
            );
        }
        assert_hidden(&transmit);
        assert_hidden(&client);
    }
}

#[test]
fn client_events_hide_values() {
    // With a store and a second writer, in every intermediate state.
    let mut rig = ClientRig::new(1);
    let steps = [ClientOp::Connect, ClientOp::Watch]
        .into_iter()
        .chain([ClientOp::PollPackets, ClientOp::Up, ClientOp::Write, ClientOp::Down].repeat(6));
    for op in steps {
        // The written value is the byte 213.
        rig.apply((op, [3, 213, 1, 0, 0]));
        let text = format!("{:?}", rig.client);
        assert!(!text.contains("\\xd5") && !text.contains("213"), "{text}");
    }
}

#[test]
fn store_and_its_records_hide_values() {
    let config = StoreConfig::new(0).durability(Durability::All);
    let mut store = Store::new(config);
    let request = StoreRequest::new("c", 1, &set());
    let handled = request.submit_to(now(), &mut store);
    assert_hidden(&handled);
    let batch = store.poll_records().expect("a record");
    assert_hidden(&batch);
    store.handle_persisted(batch.id);
    StoreRequest::new("c", 2, &Command::Get { key: b"k".as_slice() }).submit_to(now(), &mut store);
    assert_hidden(&store);
    while let Some(transmit) = store.poll_transmit() {
        assert_hidden(&transmit);
    }
    let stored = store.get(now(), b"k").expect("it was just set");
    assert_eq!(stored.value, VALUE.as_bytes());
    assert_hidden(&stored);
    assert_hidden(&stored.to_record(now()));
}

#[test]
fn simulation_trace_hides_values() {
    let mut world = World::new(1, Faults::default(), StoreConfig::new(1));
    world.set_tracing(true);
    let client: ClientIndex = world.add_client("c", Clock::default()).expect("the first");
    world.run_for(core::time::Duration::from_secs(1));
    let (machine, at) = world.client(client).expect("it is there");
    machine.submit(at, Request::set("k", VALUE)).expect("room");
    world.run_for(core::time::Duration::from_secs(1));
    let mut seen = 0;
    for traced in world.take_trace() {
        seen += usize::from(matches!(&traced, TraceEvent::Message(Message { .. })));
        assert_hidden(&traced);
    }
    assert!(seen > 0, "nothing was traced");
    assert_hidden(&world);
    let token: Option<FencingToken> = None;
    assert_hidden(&token);
}

#[test]
fn mqtt_packets_and_properties_hide_payloads_and_logins() {
    let data = [
        Property::CorrelationData(VALUE.as_bytes()),
        Property::AuthenticationMethod("K8S-SAT"),
        Property::AuthenticationData(VALUE.as_bytes()),
        Property::User("name", VALUE),
    ];
    data.iter().for_each(|property| assert_hidden(property));
    let shown = [Property::ContentType("json"), Property::ReceiveMaximum(7)];
    assert_eq!(format!("{shown:?}"), r#"[ContentType("json"), ReceiveMaximum(7)]"#);
    let payload = VALUE.as_bytes();
    let will = packet::Will {
        qos: Qos::AtMostOnce,
        retain: false,
        properties: &[data[0], data[3]][..],
        topic: "t",
        payload,
    };
    let connect = packet::Connect {
        clean_start: true,
        keep_alive: 0,
        properties: &data[1..],
        client_id: "c",
        will: Some(will),
        user_name: Some("u"),
        password: Some(payload),
    };
    let publish = packet::Publish {
        dup: false,
        qos: Qos::AtMostOnce,
        retain: false,
        topic: "t",
        id: None,
        properties: &[data[0], data[3]][..],
        payload,
    };
    let auth = packet::Notice { reason: Reason(0x18), properties: &data[1..] };
    for packet in [Packet::Connect(connect), Packet::Publish(publish), Packet::Auth(auth)] {
        assert_hidden(&packet);
        let mut bytes = vec![0; packet.encoded_len().expect("short")];
        packet.encode_into(&mut bytes).expect("valid");
        let decoded = Packet::decode(&bytes).expect("valid");
        assert_hidden(&decoded);
        assert_hidden(&wire::Reader::new(&bytes));
        assert_hidden(&wire::Fixed::new(&mut bytes));
    }
    let mut bytes = [0; 128];
    let len = Packet::Auth(auth).encode_into(&mut bytes).expect("valid");
    let Ok(Packet::Auth(decoded)) = Packet::decode(&bytes[..len]) else { panic!("AUTH") };
    let properties = decoded.properties;
    assert_eq!(properties.iter().collect::<Vec<_>>(), data[1..]);
    assert_hidden(&properties);
    assert_hidden(&properties.iter());
    assert_hidden(&Pieces::new(properties.as_bytes()));
    Pieces::new(properties.as_bytes()).for_each(|piece| assert_hidden(&piece));
    let options = session::Options::new("c").user("u").password(VALUE);
    assert_hidden(&options.authentication("K8S-SAT", VALUE).user_property("name", VALUE));
    assert_hidden(&session::Will::new("t", VALUE));
}

#[test]
fn links_and_handles_hide_values_and_logins() {
    let proxy = statestore_tokio::Proxy::new("h", 1).credentials(VALUE, VALUE);
    assert_hidden(&proxy);
    assert_hidden(
        &statestore_tokio::Options::new("c", "h", 1).credentials("u", VALUE).proxy(proxy),
    );
    let event = statestore_tokio::PatternEvent::Changed {
        key: "k".into(),
        value: Some(VALUE.into()),
        version: None,
    };
    assert_hidden(&event);
    assert_hidden(&statestore_tokio::StoreService::builder().seed([("k", VALUE)]));
    let outgoing = statestore_tokio::adapter::Outgoing::Plain {
        topic: "t".into(),
        payload: VALUE.into(),
        qos: statestore_proto::transport::Qos::AtMostOnce,
        retain: false,
    };
    assert_hidden(&outgoing);
    let message = statestore_verify::wire::Message {
        payload: VALUE.into(),
        correlation_data: Some(VALUE.into()),
        user_properties: vec![("name".into(), VALUE.into())],
        ..Default::default()
    };
    assert_hidden(&message);
    let message = Message {
        sender: "c".into(),
        topic: "t".into(),
        payload: VALUE.into(),
        qos: statestore_proto::transport::Qos::AtMostOnce,
        response_topic: None,
        correlation_data: None,
        content_type: None,
        message_expiry: None,
        user_properties: vec![("name".into(), VALUE.into())],
        delivery: None,
        arrived: None,
    };
    assert_hidden(&message);
}

/// The text comes from a store that may be hostile.
#[test]
fn display_of_an_unknown_error_is_short_and_on_one_line() {
    let text = "\x1b[31m\u{202e}x".repeat(200);
    let error = statestore_proto::message::ServiceError::from_text(&text).expect("one line");
    assert_eq!(error.text(), text.as_bytes());
    let shown = error.to_string();
    let is_bad = |c: char| c.is_control() || c == '\u{202e}';
    assert!(!shown.contains(is_bad) && shown.ends_with("..."), "{shown}");
    assert!(shown.len() < 3 * 256, "{}", shown.len());
}
