//! Requests as packets.

use crate::wire::packets::{Publish, PublishProperties, Qos};
use bytes::Bytes;
use statestore_proto::client::{Client, ClientConfig, Request};
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::{Command, Condition};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::transport::{ReasonCode, Transmit};

/// A SET of a key if it is absent, of the client `client_id`.
///
/// # Panics
/// If the machine refuses the client id.
#[must_use]
pub fn set_if_absent(client_id: &str, key: &'static str) -> Publish {
    command(
        client_id,
        Command::Set {
            key: Bytes::from_static(key.as_bytes()),
            value: Bytes::from_static(b"value"),
            condition: Condition::IfAbsent,
            expiry: None,
        },
    )
}

/// A DEL of a key.
///
/// # Panics
/// If the machine refuses the client id.
#[must_use]
pub fn del(client_id: &str, key: &'static str) -> Publish {
    command(client_id, Command::Del { key: Bytes::from_static(key.as_bytes()) })
}

/// A KEYNOTIFY of a key.
///
/// # Panics
/// If the machine refuses the client id.
#[must_use]
pub fn watch(client_id: &str, key: &'static str) -> Publish {
    let now = Now::new(Instant::default(), UnixTime::from_millis(1_696_374_425_000));
    let mut client = Client::new(ClientConfig::new(client_id, [0; 8])).expect("a client id");
    client.handle(now, Input::Connected { session_present: false });
    client.watch(now, Bytes::from_static(key.as_bytes())).expect("room");
    request(client, now)
}

fn command(client_id: &str, command: Command<Bytes>) -> Publish {
    let now = Now::new(Instant::default(), UnixTime::from_millis(1_696_374_425_000));
    let nonce = command.kind() as u64;
    let config = ClientConfig::new(client_id, nonce.to_be_bytes());
    let mut client = Client::new(config).expect("a client id");
    client.handle(now, Input::Connected { session_present: false });
    client.submit(now, Request::new(command)).expect("room");
    request(client, now)
}

/// The first request of a client that is connected.
fn request(mut client: Client, now: Now) -> Publish {
    loop {
        match client.poll_transmit().expect("a request") {
            Transmit::Subscribe { token, .. } => {
                client.handle(now, Input::Subscribed(token, ReasonCode::GRANTED_QOS_1));
            }
            Transmit::Publish(request) => {
                let properties = PublishProperties {
                    response_topic: request.response_topic.as_deref().map(Into::into),
                    correlation_data: request
                        .correlation_data
                        .as_ref()
                        .map(|data| Bytes::copy_from_slice(data.as_bytes())),
                    message_expiry_interval: request.message_expiry,
                    user_properties: request
                        .user_properties()
                        .map(|(name, value)| (name.into(), value.to_string()))
                        .collect(),
                    ..PublishProperties::default()
                };
                let (topic, qos) = (&*request.topic, Qos::AtLeastOnce);
                return Publish::new(topic, qos, request.payload, Some(properties));
            }
            other => panic!("{other:?}"),
        }
    }
}
