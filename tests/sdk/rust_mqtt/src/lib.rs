//! The client machine over the MQTT library rust-mqtt, for a device with an allocator and without
//! `std`. The connection is anything with the traits `Read` and `Write` of `embedded-io-async`.
//!
//! `main.rs` runs it on a computer. The example `bare_metal` of `statestore-proto` needs no
//! allocator, and no MQTT library.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::collections::BTreeMap;
use alloc::string::ToString as _;
use alloc::vec::Vec;
use core::fmt;
use core::future::Future;
use core::num::NonZeroU16;
use core::ops::ControlFlow;
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;

use rust_mqtt::Bytes;
use rust_mqtt::buffer::AllocBuffer;
use rust_mqtt::client::event::{Event, Publish as Received};
use rust_mqtt::client::options::{
    ConnectOptions, DisconnectOptions, PublicationOptions, SubscriptionOptions, TopicReference,
};
use rust_mqtt::client::{Client as MqttClient, MqttError};
use rust_mqtt::config::KeepAlive;
use rust_mqtt::header::FixedHeader;
use rust_mqtt::io::Transport;
use rust_mqtt::types::{
    IdentifiedQoS, MqttBinary, MqttString, MqttStringPair, ReasonCode as MqttReason, TopicFilter,
    TopicName,
};
use statestore_proto::client::Client;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::time::{Instant, Now};
use statestore_proto::transport::{
    Incoming, Publish, PublishToken, Qos, ReasonCode, SubscribeToken, Transmit,
};

/// SUBSCRIBE packets without a SUBACK.
const SUBSCRIBES: usize = 4;

/// Messages of the broker that are not acknowledged.
const RECEIVE_MAXIMUM: usize = 8;

/// Requests that the broker has not acknowledged.
const IN_FLIGHT: usize = 8;

/// User properties of a packet. A request has at most six.
const USER_PROPERTIES: usize = 8;

/// Keep alive in seconds.
const KEEP_ALIVE: u16 = 30;

/// Time without a sent packet after which a PINGREQ is due. A broker disconnects after one and a
/// half times the keep alive.
const PING_AFTER: Duration = Duration::from_secs(20);

type Mqtt<'c, N> = MqttClient<
    'c,
    'c,
    N,
    AllocBuffer,
    SUBSCRIBES,
    RECEIVE_MAXIMUM,
    IN_FLIGHT,
    0,
    USER_PROPERTIES,
    0,
    0,
>;

type MqttEvent<'c> = Event<'c, 0, USER_PROPERTIES>;

/// Functions of the board.
pub trait Board {
    /// Reads both clocks.
    fn now(&self) -> Now;

    /// Waits until `deadline`; forever if it is `None`.
    fn wait_until(&self, deadline: Option<Instant>) -> impl Future<Output = ()>;
}

/// Error that ended the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The broker refused the connection or sent DISCONNECT, with this reason code.
    Broker(ReasonCode),
    /// The byte stream failed.
    Network,
    /// The broker violated MQTT, or rust-mqtt does not support a packet.
    Mqtt,
    /// The client id or a topic is not valid in MQTT.
    Invalid,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broker(reason) => write!(f, "refused or disconnected by the broker: {reason}"),
            Self::Network => f.write_str("the connection was lost"),
            Self::Mqtt => f.write_str("MQTT protocol error"),
            Self::Invalid => f.write_str("invalid client id or topic"),
        }
    }
}

impl core::error::Error for Error {}

impl<const P: usize> From<MqttError<'_, P>> for Error {
    fn from(error: MqttError<'_, P>) -> Self {
        match error {
            MqttError::Network(_) => Self::Network,
            MqttError::Disconnect { reason, .. } => Self::Broker(reason_code(reason)),
            _ => Self::Mqtt,
        }
    }
}

fn reason_code(reason: MqttReason) -> ReasonCode {
    ReasonCode(reason.value())
}

/// Connects over `stream` and drives `client` until the application breaks, or the connection is
/// lost.
///
/// The application is called after every event. It submits requests, polls events of the client,
/// and returns the time of its next call at the latest.
///
/// # Errors
/// [`Error`]. The client has received the disconnection and can be driven again over another
/// connection.
pub async fn drive<N: Transport>(
    client: &mut Client,
    stream: N,
    board: &impl Board,
    application: impl FnMut(Now, &mut Client) -> ControlFlow<(), Option<Instant>>,
) -> Result<(), Error> {
    let driven = run(client, stream, board, application).await;
    client.handle(board.now(), Input::Disconnected);
    driven
}

async fn run<N: Transport>(
    client: &mut Client,
    stream: N,
    board: &impl Board,
    mut application: impl FnMut(Now, &mut Client) -> ControlFlow<(), Option<Instant>>,
) -> Result<(), Error> {
    let mut buffer = AllocBuffer;
    let mut connection = Connection::open(client.client_id(), stream, &mut buffer).await?;
    client.handle(board.now(), Input::Connected { session_present: false });
    let mut last_sent = board.now().instant;
    loop {
        // 1. Call the application.
        let step = application(board.now(), client);
        // 2. Send the outputs in order, while the broker accepts more.
        while connection.has_capacity() {
            let Some(transmit) = client.poll_transmit() else { break };
            connection.send(client, board.now(), &transmit).await?;
            last_sent = board.now().instant;
        }
        let ControlFlow::Continue(wake) = step else {
            connection.mqtt.disconnect(&DisconnectOptions::new()).await?;
            return Ok(());
        };
        // 3. Wait for a packet until the earliest deadline.
        let ping_at = last_sent + PING_AFTER;
        let deadline = [client.poll_timeout(), wake].into_iter().flatten().fold(ping_at, Ord::min);
        let header = if board.now().instant < deadline {
            header_before(&mut connection.mqtt, board.wait_until(Some(deadline))).await?
        } else {
            None
        };
        // 4. Pass the packet and the current time to the machine.
        if let Some(header) = header {
            let event = connection.mqtt.poll_body(header).await?;
            connection.handle(client, board.now(), event);
        } else {
            let now = board.now();
            client.handle(now, Input::Timeout);
            if now.instant >= ping_at {
                connection.mqtt.ping().await?;
                last_sent = now.instant;
            }
        }
    }
}

/// Waits for the first bytes of a packet, or for the deadline. rust-mqtt keeps the bytes of an
/// incomplete header when the wait is cancelled.
async fn header_before<N: Transport>(
    mqtt: &mut Mqtt<'_, N>,
    deadline: impl Future<Output = ()>,
) -> Result<Option<FixedHeader>, Error> {
    let mut header = pin!(mqtt.poll_header());
    let mut deadline = pin!(deadline);
    core::future::poll_fn(|cx| {
        if let Poll::Ready(header) = header.as_mut().poll(cx) {
            return Poll::Ready(header.map(Some).map_err(Error::from));
        }
        deadline.as_mut().poll(cx).map(|()| Ok(None))
    })
    .await
}

/// A connection of a client machine.
struct Connection<'c, N: Transport> {
    mqtt: Mqtt<'c, N>,
    /// At most [`SUBSCRIBES`].
    subscribes: BTreeMap<NonZeroU16, SubscribeToken>,
    /// At most [`IN_FLIGHT`].
    publishes: BTreeMap<NonZeroU16, Option<PublishToken>>,
}

impl<'c, N: Transport> Connection<'c, N> {
    async fn open(client_id: &str, stream: N, buffer: &'c mut AllocBuffer) -> Result<Self, Error> {
        let mut mqtt = Mqtt::new(buffer);
        let keep_alive =
            NonZeroU16::new(KEEP_ALIVE).map_or(KeepAlive::Infinite, KeepAlive::Seconds);
        let options = ConnectOptions::new().clean_start().keep_alive(keep_alive);
        let client_id = MqttString::from_str(client_id).map_err(|_| Error::Invalid)?;
        mqtt.connect(stream, &options, Some(client_id)).await?;
        Ok(Self { mqtt, subscribes: BTreeMap::new(), publishes: BTreeMap::new() })
    }

    /// Returns whether another packet can be sent.
    fn has_capacity(&self) -> bool {
        let maximum = self.mqtt.server_config().receive_maximum.get();
        self.publishes.len() < IN_FLIGHT.min(maximum.into()) && self.subscribes.len() < SUBSCRIBES
    }

    async fn send(
        &mut self,
        client: &mut Client,
        now: Now,
        transmit: &Transmit,
    ) -> Result<(), Error> {
        match transmit {
            Transmit::Subscribe { filter, token } => {
                let filter = MqttString::from_str(filter).ok().and_then(TopicFilter::new);
                let filter = filter.ok_or(Error::Invalid)?;
                let options = SubscriptionOptions::new().at_least_once();
                let id = self.mqtt.subscribe(filter, &options).await?;
                self.subscribes.insert(id.get(), *token);
            }
            Transmit::Publish(publish) => match self.publish(publish).await {
                Ok(()) => {}
                // The packet was not sent, and the connection continues.
                Err(MqttError::ServerMaximumPacketSizeExceeded) => {
                    if let Some(token) = publish.token {
                        client.handle(now, Input::Published(token, ReasonCode::PACKET_TOO_LARGE));
                    }
                }
                Err(error) => return Err(error.into()),
            },
            // Only stores have other outputs.
            _ => {}
        }
        Ok(())
    }

    async fn publish(&mut self, publish: &Publish) -> Result<(), MqttError<'c, 0>> {
        let user: Vec<_> =
            publish.user_properties().map(|(name, value)| (name, value.to_string())).collect();
        let text =
            |text| MqttString::from_str(text).map_err(|_| MqttError::PacketMaximumLengthExceeded);
        let name = |topic| {
            let name = TopicName::new(text(topic)?);
            name.ok_or(MqttError::PacketMaximumLengthExceeded)
        };
        let user: Vec<_> = user
            .iter()
            .map(|(name, value)| Ok(MqttStringPair::new(text(name)?, text(value)?)))
            .collect::<Result<_, MqttError<'c, 0>>>()?;
        let mut options = PublicationOptions::new(TopicReference::Name(name(&publish.topic)?));
        options = options.at_least_once();
        options.message_expiry_interval = publish.message_expiry;
        options.response_topic = publish.response_topic.as_deref().map(name).transpose()?;
        options.content_type = publish.content_type.map(text).transpose()?;
        options.user_properties = &user;
        if let Some(data) = &publish.correlation_data {
            let data = MqttBinary::from_slice(data.as_bytes());
            options.correlation_data =
                Some(data.map_err(|_| MqttError::PacketMaximumLengthExceeded)?);
        }
        let id = self.mqtt.publish(&options, Bytes::Borrowed(&publish.payload)).await?;
        self.publishes.extend(id.map(|id| (id.get(), publish.token)));
        Ok(())
    }

    /// Passes an event to the machine. rust-mqtt has acknowledged a message already.
    fn handle(&mut self, client: &mut Client, now: Now, event: MqttEvent<'c>) {
        let (id, reason) = match event {
            Event::Publish(message) => return receive(client, now, &message),
            Event::Suback(suback) => {
                if let Some(token) = self.subscribes.remove(&suback.packet_identifier.get()) {
                    let reason = reason_code(suback.reason_code);
                    client.handle(now, Input::Subscribed(token, reason));
                }
                return;
            }
            Event::PublishAcknowledged(puback) => (puback.packet_identifier, puback.reason_code),
            Event::PublishRejected(pubrej) => (pubrej.packet_identifier, pubrej.reason_code),
            _ => return,
        };
        if let Some(Some(token)) = self.publishes.remove(&id.get()) {
            client.handle(now, Input::Published(token, reason_code(reason)));
        }
    }
}

/// Passes a message to the machine.
fn receive(client: &mut Client, now: Now, message: &Received<'_, 0, USER_PROPERTIES>) {
    let TopicReference::Name(topic) = &message.topic else { return };
    let payload = bytes::Bytes::copy_from_slice(message.message.as_bytes());
    let mut incoming = Incoming::new(topic.as_ref().as_str(), &payload);
    if matches!(message.identified_qos, IdentifiedQoS::AtMostOnce) {
        incoming.qos = Qos::AtMostOnce;
    }
    incoming.retain = message.retain;
    incoming.message_expiry = message.message_expiry_interval;
    incoming.response_topic = message.response_topic.as_ref().map(|topic| topic.as_ref().as_str());
    incoming.correlation_data = message.correlation_data.as_ref().map(MqttBinary::as_bytes);
    for property in &message.user_properties {
        incoming.user_property(property.name.as_str(), property.value.as_str());
    }
    client.handle(now, Input::Message(&incoming));
}
