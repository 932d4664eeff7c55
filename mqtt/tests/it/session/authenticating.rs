//! Enhanced authentication.

use statestore_mqtt::session::Violation;

use super::*;

const METHOD: Property<'static> = Property::AuthenticationMethod("method");

fn auth(reason: Reason, data: &'static [u8]) -> Vec<u8> {
    let properties = [METHOD, Property::AuthenticationData(data)];
    let mut bytes = BytesMut::new();
    let packet = Packet::Auth(Notice { reason, properties: &properties[..] });
    packet.encode(&mut bytes).unwrap();
    bytes.to_vec()
}

fn connecting() -> Rig {
    let mut rig = Rig::new(options().authentication("method", "hello"));
    rig.session.handle_connected(rig.now);
    rig.sent();
    rig
}

#[test]
fn enhanced_authentication_completes_with_the_connack() {
    let mut rig = connecting();
    assert_eq!(rig.session.authenticate(None, ()), Err(SendError::NoAuthentication));
    rig.receive_bytes(&auth(Reason::CONTINUE_AUTHENTICATION, b"challenge"));
    let events = rig.events();
    let [Event::Authenticate(properties)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(properties.authentication_data(), Some(&b"challenge"[..]));
    rig.session.authenticate(Some(b"response"), ()).unwrap();
    let expected = text([METHOD, Property::AuthenticationData(b"response")]);
    assert_eq!(rig.sent(), [Sent::Auth(Reason::CONTINUE_AUTHENTICATION, expected)]);
    assert_eq!(rig.session.authenticate(None, ()), Err(SendError::NoAuthentication));
    rig.connack(false, Reason::SUCCESS, &[METHOD, Property::AuthenticationData(b"done")]);
    let events = rig.events();
    let [Event::Connected(server)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(server.properties.authentication_data(), Some(&b"done"[..]));
}

#[test]
fn reauthentication_completes_on_an_open_connection() {
    let mut rig = connecting();
    rig.connack(false, Reason::SUCCESS, &[METHOD]);
    rig.events();
    rig.session.reauthenticate(Some(b"again"), Property::User("a", "b")).unwrap();
    let expected = text([METHOD, Property::AuthenticationData(b"again"), Property::User("a", "b")]);
    assert_eq!(rig.sent(), [Sent::Auth(Reason::RE_AUTHENTICATE, expected)]);
    assert_eq!(rig.session.reauthenticate(None, ()), Err(SendError::NoAuthentication));
    rig.receive_bytes(&auth(Reason::CONTINUE_AUTHENTICATION, b"more"));
    rig.session.authenticate(Some(b"x"), ()).unwrap();
    rig.receive_bytes(&auth(Reason::SUCCESS, b"ok"));
    let events = rig.events();
    assert!(
        matches!(events.as_slice(), [Event::Authenticate(_), Event::Authenticated(_)]),
        "{events:?}"
    );
    assert!(rig.session.is_connected());
}

#[test]
fn auth_without_a_method_or_out_of_turn_is_a_protocol_error() {
    let mut rig = Rig::new(options());
    rig.session.handle_connected(rig.now);
    rig.receive_bytes(&auth(Reason::CONTINUE_AUTHENTICATION, b""));
    rig.assert_refused(Reason::PROTOCOL_ERROR);

    let mut rig = connecting();
    rig.connack(false, Reason::SUCCESS, &[METHOD]);
    rig.events();
    rig.receive_bytes(&auth(Reason::CONTINUE_AUTHENTICATION, b""));
    rig.assert_refused(Reason::PROTOCOL_ERROR);

    for reason in [Reason::SUCCESS, Reason::RE_AUTHENTICATE] {
        let mut rig = connecting();
        rig.receive_bytes(&auth(reason, b""));
        rig.assert_refused(Reason::PROTOCOL_ERROR);
    }
}

#[test]
fn another_method_of_the_server_is_a_protocol_error() {
    let other = Property::AuthenticationMethod("other");
    let mut rig = connecting();
    rig.connack(false, Reason::SUCCESS, &[other]);
    assert_eq!(rig.end(), Error::Protocol(Violation::AuthenticationMethod));

    let mut rig = Rig::new(options());
    rig.session.handle_connected(rig.now);
    rig.connack(false, Reason::SUCCESS, &[other]);
    assert_eq!(rig.end(), Error::Protocol(Violation::AuthenticationMethod));
}

#[test]
fn reauthentication_needs_a_method_and_a_connection() {
    let mut rig = Rig::new(options());
    assert_eq!(rig.session.reauthenticate(None, ()), Err(SendError::NotConnected));
    rig.connect(false, &[]);
    assert_eq!(rig.session.reauthenticate(None, ()), Err(SendError::NoAuthentication));
}
