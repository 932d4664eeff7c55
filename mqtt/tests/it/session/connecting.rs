//! CONNECT, CONNACK, DISCONNECT.

use statestore_mqtt::session::{InvalidOptions, Violation, Will};
use statestore_mqtt::{Kind, Malformed};

use super::*;

fn connect_of(options: Options, check: impl FnOnce(Packet<'_>)) {
    let mut session = Session::new(options);
    session.handle_connected(seconds(1));
    let bytes = take_output(&mut session, seconds(1));
    check(Packet::decode(&bytes).expect("a CONNECT"));
}

#[test]
fn connect_contains_every_option() {
    let will = Will::new("will/topic", "gone").qos(Qos::AtLeastOnce).retain(true).delay(5);
    let options = Options::new("client")
        .clean_start(false)
        .keep_alive(30)
        .session_expiry(60)
        .receive_maximum(7)
        .maximum_packet_size(5_000)
        .topic_alias_maximum(3)
        .request_problem_information(false)
        .request_response_information(true)
        .user("user")
        .password("password")
        .will(will.properties(&[Property::ContentType("text"), Property::User("w", "x")]))
        .user_property("name", "value")
        .authentication("method", "data");
    connect_of(options, |packet| {
        let Packet::Connect(connect) = packet else { panic!("{packet:?}") };
        assert!(!connect.clean_start);
        assert_eq!((connect.keep_alive, connect.client_id), (30, "client"));
        assert_eq!((connect.user_name, connect.password), (Some("user"), Some(&b"password"[..])));
        let expected = [
            Property::SessionExpiry(60),
            Property::ReceiveMaximum(7),
            Property::MaximumPacketSize(5_000),
            Property::TopicAliasMaximum(3),
            Property::RequestProblemInformation(false),
            Property::RequestResponseInformation(true),
            Property::AuthenticationMethod("method"),
            Property::AuthenticationData(b"data"),
            Property::User("name", "value"),
        ];
        assert_eq!(connect.properties.iter().collect::<Vec<_>>(), expected);
        let will = connect.will.expect("a will");
        assert_eq!((will.topic, will.payload), ("will/topic", &b"gone"[..]));
        assert_eq!((will.qos, will.retain), (Qos::AtLeastOnce, true));
        let expected =
            [Property::WillDelay(5), Property::ContentType("text"), Property::User("w", "x")];
        assert_eq!(will.properties.iter().collect::<Vec<_>>(), expected);
    });
}

#[test]
fn default_options_send_no_default_properties() {
    let options = Options::new("c").receive_maximum(u16::MAX).topic_alias_maximum(0);
    connect_of(options, |packet| {
        let Packet::Connect(connect) = packet else { panic!("{packet:?}") };
        let properties: Vec<_> = connect.properties.iter().collect();
        assert_eq!(properties, [Property::MaximumPacketSize((1 << 20) + (64 << 10))]);
        assert_eq!((connect.will, connect.user_name, connect.password), (None, None, None));
    });
}

#[test]
fn invalid_options_end_the_connection_without_a_packet() {
    let long = "x".repeat(70_000);
    let cases = [
        Options::new("nul\0"),
        Options::new("c").receive_maximum(0),
        Options::new("c").maximum_packet_size(0),
        Options::new("c").will(Will::new("wild/#", "")),
        Options::new("c").will(Will::new("t", "").properties(&[Property::TopicAlias(1)])),
        Options::new("c").will(Will::new("t", "").properties(&[Property::ContentType(&long)])),
        Options::new("c").user(long.as_str()),
    ];
    for options in cases {
        let error = options.check().expect_err("invalid");
        let mut rig = Rig::new(options);
        rig.session.handle_connected(rig.now);
        assert_eq!(rig.end(), Error::Options(error));
        assert_eq!(rig.sent(), []);
        assert_eq!(rig.session.poll_timeout(), None);
    }
    let nul = Options::new("nul\0").check();
    assert_eq!(nul, Err(InvalidOptions::Malformed(Malformed::Text)));
}

#[test]
fn connack_event_contains_limits_and_effective_options() {
    let mut rig = Rig::new(Options::new("").keep_alive(60).session_expiry(10));
    rig.session.handle_connected(rig.now);
    rig.sent();
    let properties = [
        Property::SessionExpiry(5),
        Property::ReceiveMaximum(9),
        Property::MaximumQos(Qos::AtLeastOnce),
        Property::RetainAvailable(false),
        Property::MaximumPacketSize(100),
        Property::AssignedClientId("assigned"),
        Property::TopicAliasMaximum(4),
        Property::ReasonString("welcome"),
        Property::WildcardAvailable(false),
        Property::SubscriptionIdsAvailable(false),
        Property::SharedAvailable(false),
        Property::ServerKeepAlive(20),
        Property::User("a", "b"),
    ];
    rig.connack(false, Reason::SUCCESS, &properties);
    let Some(Event::Connected(server)) = rig.session.poll_event() else { panic!("connected") };
    assert_eq!(Some(&*server), rig.session.server());
    assert_eq!((server.session_expiry, server.keep_alive), (5, 20));
    assert_eq!((server.receive_maximum, server.topic_alias_maximum), (9, 4));
    assert_eq!((server.maximum_qos, server.maximum_packet_size), (Qos::AtLeastOnce, 100));
    assert!(!server.retain_available && !server.wildcard_available);
    assert!(!server.subscription_ids_available && !server.shared_available);
    assert_eq!(server.properties.reason_string(), Some("welcome"));
    assert_eq!(server.properties.user().collect::<Vec<_>>(), [("a", "b")]);
    assert_eq!(rig.session.client_id(), "assigned");
    rig.session.handle_disconnected();
    rig.session.handle_connected(rig.now);
    assert_eq!(rig.sent(), [Sent::Connect(false, "assigned".into())], "the id that was assigned");
}

#[test]
fn connack_without_properties_means_the_defaults_of_the_standard() {
    let rig = Rig::connected(options().keep_alive(33));
    let server = rig.session.server().expect("connected");
    assert_eq!((server.receive_maximum, server.maximum_packet_size), (u16::MAX, u32::MAX));
    assert_eq!((server.maximum_qos, server.topic_alias_maximum), (Qos::ExactlyOnce, 0));
    assert_eq!((server.keep_alive, server.session_expiry), (33, 3_600));
    assert!(server.retain_available && server.wildcard_available && server.shared_available);
}

#[test]
fn refused_connection_reports_reason_text_and_server_reference() {
    let mut rig = Rig::new(options());
    rig.session.handle_connected(rig.now);
    rig.sent();
    let properties = [Property::ReasonString("moved"), Property::ServerReference("other:1883")];
    rig.connack(false, Reason::SERVER_MOVED, &properties);
    let error = rig.end();
    assert!(matches!(error, Error::Refused(_)) && error.is_from_server());
    assert_eq!(error.reason(), Some(Reason::SERVER_MOVED));
    assert_eq!(error.reason_string(), Some("moved"));
    assert_eq!(error.server_reference(), Some("other:1883"));
    assert_eq!(rig.sent(), [], "nothing is sent to a server that refused");
}

#[test]
fn missing_connack_ends_the_connection_after_the_timeout() {
    let mut rig = Rig::new(options().connect_timeout(seconds(3)));
    rig.session.handle_connected(rig.now);
    rig.sent();
    let deadline = rig.now + seconds(3);
    assert_eq!(rig.session.poll_timeout(), Some(deadline));
    rig.session.handle_timeout(deadline - Duration::from_nanos(1));
    assert_eq!(rig.events(), []);
    rig.session.handle_timeout(deadline);
    assert_eq!(rig.end(), Error::ConnectTimeout);
    assert_eq!((rig.sent(), rig.session.poll_timeout()), (vec![], None));
}

#[test]
fn packets_before_the_connack_are_protocol_errors() {
    let packets: [Packet<'_, Properties<'_>>; 5] = [
        Packet::PingResp,
        Packet::PubAck(ack(1, Reason::SUCCESS)),
        Packet::PubRel(ack(1, Reason::SUCCESS)),
        Packet::SubAck(Acks { id: packet_id(1), properties: &[], reasons: &[0] }),
        Packet::Publish(Publish {
            dup: false,
            qos: Qos::AtMostOnce,
            retain: false,
            topic: "t",
            id: None,
            properties: &[],
            payload: b"",
        }),
    ];
    for packet in packets {
        let mut rig = Rig::new(options());
        rig.session.handle_connected(rig.now);
        rig.receive(packet);
        rig.assert_refused(Reason::PROTOCOL_ERROR);
    }
}

#[test]
fn packets_that_only_clients_send_are_protocol_errors() {
    let packets: [(Packet<'_, Properties<'_>>, Kind); 2] = [
        (Packet::PingReq, Kind::PingReq),
        (
            Packet::ConnAck(ConnAck {
                session_present: false,
                reason: Reason::SUCCESS,
                properties: &[],
            }),
            Kind::ConnAck,
        ),
    ];
    for (packet, kind) in packets {
        let mut rig = Rig::connected(options());
        rig.receive(packet);
        assert_eq!(rig.end(), Error::Protocol(Violation::Unexpected(kind)));
        assert_eq!(rig.sent(), [Sent::Disconnect(Reason::PROTOCOL_ERROR, vec![])]);
    }
}

/// The reason code of an unsupported version belongs to a CONNACK.
#[test]
fn connect_of_any_version_from_the_server_is_a_protocol_error() {
    for version in 3..=6 {
        let mut rig = Rig::connected(options());
        rig.receive_bytes(&[0x10, 0x0d, 0, 4, b'M', b'Q', b'T', b'T', version, 2, 0, 30, 0, 0, 0]);
        assert_eq!(rig.end(), Error::Protocol(Violation::Unexpected(Kind::Connect)), "{version}");
        assert_eq!(rig.sent(), [Sent::Disconnect(Reason::PROTOCOL_ERROR, vec![])]);
    }
}

#[test]
fn malformed_bytes_end_the_connection_with_the_reason_of_the_codec() {
    let cases: [(&[u8], Reason); 4] = [
        (&[0x00, 0x00], Reason::MALFORMED_PACKET),
        (&[0x40, 0x02, 0x00, 0x00], Reason::PROTOCOL_ERROR),
        (&[0x30, 0x04, 0x00, 0x01, b'#', 0x00], Reason::TOPIC_NAME_INVALID),
        (&[0x30, 0xff, 0xff, 0xff, 0x7f], Reason::PACKET_TOO_LARGE),
    ];
    for (bytes, reason) in cases {
        let mut rig = Rig::connected(options());
        rig.receive_bytes(bytes);
        assert!(rig.input.is_empty(), "what follows is discarded");
        rig.assert_refused(reason);
        rig.receive_bytes(&[0xd0, 0x00]);
        assert!(rig.input.is_empty() && rig.events().is_empty(), "the connection is over");
    }
}

#[test]
fn session_present_after_a_clean_start_is_a_protocol_error() {
    let mut rig = Rig::new(options().clean_start(true).accept_unknown_session(true));
    rig.session.handle_connected(rig.now);
    assert_eq!(rig.sent(), [Sent::Connect(true, "client".into())]);
    rig.connack(true, Reason::SUCCESS, &[]);
    rig.assert_refused(Reason::PROTOCOL_ERROR);
}

#[test]
fn unknown_session_is_a_protocol_error_unless_it_is_accepted() {
    for is_accepted in [false, true] {
        let options = options().clean_start(false).accept_unknown_session(is_accepted);
        let mut rig = Rig::new(options);
        rig.session.handle_connected(rig.now);
        rig.sent();
        rig.connack(true, Reason::SUCCESS, &[]);
        if is_accepted {
            assert!(matches!(rig.session.poll_event(), Some(Event::Connected(_))));
        } else {
            rig.assert_refused(Reason::PROTOCOL_ERROR);
            rig.session.handle_connected(rig.now);
            let expected = Sent::Connect(true, "client".into());
            assert_eq!(rig.sent(), [expected], "the next connection starts a new session");
        }
    }
}

#[test]
fn maximum_packet_size_without_space_for_acknowledgements_ends_the_connection() {
    for (size, sent) in [(3, 0), (4, 1), (7, 1)] {
        let mut rig = Rig::new(options());
        rig.session.handle_connected(rig.now);
        rig.sent();
        rig.connack(false, Reason::SUCCESS, &[Property::MaximumPacketSize(size)]);
        assert_eq!(rig.end(), Error::Protocol(Violation::MaximumPacketSize(size)));
        assert_eq!(rig.sent().len(), sent, "a DISCONNECT has 4 bytes");
    }
}

#[test]
fn later_connects_resume_while_the_session_has_an_expiry() {
    for (expiry, clean_start) in [(0, true), (60, false)] {
        let mut rig = Rig::connected(Options::new("client").session_expiry(expiry));
        rig.session.handle_disconnected();
        rig.session.handle_connected(rig.now);
        assert_eq!(rig.sent(), [Sent::Connect(clean_start, "client".into())]);
    }
}

#[test]
fn set_clean_start_applies_to_the_next_connect() {
    let mut rig = Rig::connected(options());
    rig.session.handle_disconnected();
    rig.session.set_clean_start(true);
    rig.session.handle_connected(rig.now);
    assert_eq!(rig.sent(), [Sent::Connect(true, "client".into())]);
    rig.connack(false, Reason::SUCCESS, &[]);
    rig.session.handle_disconnected();
    rig.session.handle_connected(rig.now);
    assert_eq!(rig.sent(), [Sent::Connect(false, "client".into())]);
}

#[test]
fn changed_options_apply_to_the_next_connect() {
    let mut rig = Rig::connected(options().password("old"));
    *rig.session.options_mut() = rig.session.options().clone().password("new");
    rig.session.handle_disconnected();
    rig.session.handle_connected(rig.now);
    let bytes = take_output(&mut rig.session, rig.now);
    let Packet::Connect(connect) = Packet::decode(&bytes).unwrap() else { panic!("CONNECT") };
    assert_eq!(connect.password, Some(&b"new"[..]));
}

#[test]
fn disconnect_follows_the_output_that_waits() {
    let mut rig = Rig::connected(options());
    rig.publish(Qos::AtMostOnce, "t").unwrap();
    let properties = [Property::ReasonString("bye"), Property::SessionExpiry(1)];
    rig.session.disconnect(Reason::DISCONNECT_WITH_WILL, &properties[..]);
    assert!(rig.session.is_closing() && !rig.session.is_connected());
    assert_eq!(rig.publish(Qos::AtMostOnce, "t"), Err(SendError::NotConnected));
    assert_eq!(rig.end(), Error::Requested(Reason::DISCONNECT_WITH_WILL));
    let sent = rig.sent();
    assert!(matches!(sent.first(), Some(Sent::Publish { .. })));
    let expected = Sent::Disconnect(Reason::DISCONNECT_WITH_WILL, text(properties));
    assert_eq!(sent.last(), Some(&expected));
    rig.session.handle_disconnected();
    assert_eq!(rig.events(), [], "the end is reported once");
}

#[test]
fn disconnect_omits_properties_that_it_cannot_have() {
    let long = "x".repeat(200);
    let cases: [(u32, &[Property<'_>]); 4] = [
        (60, &[Property::TopicAlias(1)]),
        (60, &[Property::ReasonString(&long)]),
        // An expiry of 0 cannot be changed (section 3.14.2.2.2).
        (0, &[Property::SessionExpiry(1)]),
        (60, &[Property::ReasonString("a"), Property::ReasonString("b")]),
    ];
    for (expiry, properties) in cases {
        let options = Options::new("c").session_expiry(expiry);
        let mut rig = Rig::with_server(options, &[Property::MaximumPacketSize(100)]);
        rig.session.disconnect(Reason::SUCCESS, properties);
        assert_eq!(rig.sent(), [Sent::Disconnect(Reason::SUCCESS, vec![])]);
    }
    let mut rig = Rig::connected(options());
    rig.session.disconnect(Reason::GRANTED_QOS_1, ());
    assert_eq!(rig.end(), Error::Requested(Reason::UNSPECIFIED_ERROR));
}

#[test]
fn disconnect_with_expiry_0_ends_the_session() {
    let mut rig = Rig::connected(options());
    rig.session.disconnect(Reason::SUCCESS, Property::SessionExpiry(0));
    rig.session.handle_disconnected();
    rig.session.handle_connected(rig.now);
    assert_eq!(rig.sent(), [Sent::Connect(true, "client".into())]);
}

#[test]
fn disconnect_before_the_connack_sends_nothing() {
    let mut rig = Rig::new(options());
    rig.session.handle_connected(rig.now);
    rig.sent();
    rig.session.disconnect(Reason::SUCCESS, ());
    assert_eq!(rig.end(), Error::Requested(Reason::SUCCESS));
    assert_eq!(rig.sent(), []);
}

#[test]
fn disconnect_of_the_server_reports_reason_and_server_reference() {
    let mut rig = Rig::connected(options());
    let properties: Properties<'_> =
        &[Property::ServerReference("other:1"), Property::ReasonString("why")];
    let reason = Reason::USE_ANOTHER_SERVER;
    rig.receive(Packet::Disconnect(Notice { reason, properties }));
    let error = rig.end();
    assert!(matches!(error, Error::Disconnected(_)) && error.is_from_server());
    assert_eq!((error.reason(), error.server_reference()), (Some(reason), Some("other:1")));
    assert_eq!(error.to_string(), "the server disconnected: use another server (\"why\")");
    assert_eq!(rig.sent(), [], "nothing follows the server's DISCONNECT");
}

#[test]
fn error_shows_the_beginning_of_a_long_reason_string() {
    let mut rig = Rig::connected(options());
    let text = "\u{1b}".repeat(5_000);
    let properties: Properties<'_> = &[Property::ReasonString(&text)];
    rig.receive(Packet::Disconnect(Notice { reason: Reason::SERVER_BUSY, properties }));
    let shown = rig.end().to_string();
    assert!(shown.len() < 2_000 && !shown.contains(char::is_control), "{shown}");
}

#[test]
fn lost_stream_is_reported_once_and_discards_output() {
    let mut rig = Rig::connected(options());
    rig.publish(Qos::AtMostOnce, "t").unwrap();
    rig.session.handle_disconnected();
    rig.session.handle_disconnected();
    assert_eq!(rig.events(), [Event::Disconnected(Error::ConnectionLost)]);
    assert_eq!((rig.session.output_len(), rig.session.poll_timeout()), (0, None));
}

#[test]
fn second_handle_connected_ends_the_first_connection() {
    let mut rig = Rig::connected(options());
    rig.session.handle_connected(rig.now);
    assert_eq!(rig.events(), [Event::Disconnected(Error::ConnectionLost)]);
    assert_eq!(rig.sent(), [Sent::Connect(false, "client".into())]);
}

#[test]
fn debug_output_contains_no_secrets() {
    let options = options().user("u5er").password("s3cret").authentication("m", "s3cret");
    let mut rig = Rig::new(options.will(Will::new("t", "s3cret")));
    let text = format!("{:?} {:?}", rig.session, rig.session.options());
    assert!(!text.contains("s3cret") && !text.contains("u5er"), "{text}");
    rig.connect(false, &[]);
    let payload = Bytes::from_static(b"s3cret");
    rig.publish_payload(Qos::AtLeastOnce, "t", payload).unwrap();
    let text = format!("{:?} {:?}", rig.session, rig.session.chunks());
    assert!(!text.contains("s3cret"), "{text}");
}
