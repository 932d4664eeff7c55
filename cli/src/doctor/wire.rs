//! A connection that sees every reason code, and keeps what it hears.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU16;

use bytes::{Buf as _, Bytes, BytesMut};
use statestore_mqtt::packet::{
    Ack, ConnAck, Connect, Header, Notice, Packet, Publish, Subscribe, Subscription,
    SubscriptionOptions, Subscriptions,
};
use statestore_mqtt::property::{Encode, Properties, Property, id};
use statestore_mqtt::{Kind, Qos, Reason};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, timeout_at};

/// Bytes of the largest packet that is taken: a broker is told so, and one that sends more is not listened to.
pub(super) const PACKET_MAX: u32 = 2 << 20;

/// Messages that are kept, of whoever may publish to this client; more are only counted.
const HEARD_MAX: usize = 64;

/// Bytes of a payload that is kept.
const PAYLOAD_MAX: usize = 4 << 10;

/// What bytes go over.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A message that came.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) topic: String,
    pub(super) payload: Bytes,
    pub(super) correlation: Option<Vec<u8>>,
    pub(super) user: Vec<(String, String)>,
}

impl Heard {
    pub(super) fn user(&self, name: &str) -> Option<&str> {
        let found = self.user.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| &**value)
    }
}

/// What a CONNACK says of a broker, and of the limits that it sets.
#[derive(Clone, Debug, Default)]
pub(super) struct Welcome {
    pub(super) reason: Reason,
    pub(super) text: Option<String>,
    pub(super) packet_max: Option<u32>,
    pub(super) receive_max: Option<u16>,
    pub(super) alias_max: u16,
    pub(super) has_qos_1: bool,
    pub(super) has_wildcards: bool,
}

/// Why nothing more comes.
#[derive(Debug)]
pub(super) enum End {
    /// The broker has said why.
    Disconnected(Reason),
    /// The connection is closed, or was before it was MQTT.
    Io(io::Error),
    /// This is no MQTT 5.
    NotMqtt(String),
}

/// The connection.
pub(super) struct Wire {
    stream: Box<dyn Stream>,
    buffer: BytesMut,
    last_id: u16,
    pub(super) heard: Vec<Heard>,
    acks: BTreeMap<u16, Reason>,
    pub(super) end: Option<End>,
}

impl Wire {
    pub(super) fn new(stream: Box<dyn Stream>) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
            last_id: 0,
            heard: Vec::new(),
            acks: BTreeMap::new(),
            end: None,
        }
    }

    /// Connects with a clean session; what the broker answers by then.
    pub(super) async fn connect(
        &mut self,
        client_id: &str,
        credentials: Option<&(String, String)>,
        token: Option<&[u8]>,
        until: Instant,
    ) -> Option<Welcome> {
        let mut properties =
            vec![Property::ReceiveMaximum(64), Property::MaximumPacketSize(PACKET_MAX)];
        if let Some(token) = token {
            properties.push(Property::AuthenticationMethod("K8S-SAT"));
            properties.push(Property::AuthenticationData(token));
        }
        let connect = Connect {
            clean_start: true,
            keep_alive: 60,
            properties: &properties[..],
            client_id,
            will: None,
            user_name: credentials.map(|(user, _)| &**user),
            password: credentials.map(|(_, password)| password.as_bytes()),
        };
        self.send(&Packet::Connect(connect), until).await;
        while self.end.is_none() {
            let packet = self.packet(until).await?;
            match Packet::decode(&packet) {
                Ok(Packet::ConnAck(connack)) => return Some(welcome(&connack)),
                // As a broker of MQTT 3.1.1 says that it is none of 5.
                _ if packet.starts_with(&[0x20, 2]) => {
                    let text = "it answers as a broker of MQTT 3.1.1".to_owned();
                    self.end = Some(End::NotMqtt(text));
                }
                Ok(other) => {
                    let text = format!("it answers CONNECT with {:?}", other.kind());
                    self.end = Some(End::NotMqtt(text));
                }
                Err(error) => self.end = Some(End::NotMqtt(error.to_string())),
            }
        }
        None
    }

    /// Subscribes with QoS 1; what the broker answers by then.
    pub(super) async fn subscribe(&mut self, filter: &str, until: Instant) -> Option<Reason> {
        let id = self.next_id();
        let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..Default::default() };
        let one = [Subscription { filter, options }];
        let subscriptions = Subscriptions::new(&one);
        let packet = Packet::Subscribe(Subscribe { id, properties: (), subscriptions });
        self.send(&packet, until).await;
        self.ack(id, until).await
    }

    /// Publishes with QoS 1, and gives the number of the packet.
    pub(super) async fn publish(
        &mut self,
        topic: &str,
        properties: &[Property<'_>],
        payload: &[u8],
        until: Instant,
    ) -> NonZeroU16 {
        let id = self.next_id();
        let publish = Publish {
            dup: false,
            qos: Qos::AtLeastOnce,
            retain: false,
            topic,
            id: Some(id),
            properties,
            payload,
        };
        self.send(&Packet::Publish(publish), until).await;
        id
    }

    /// Says goodbye, so that the broker logs no lost connection.
    pub(super) async fn close(mut self, until: Instant) {
        let notice = Notice { reason: Reason::SUCCESS, properties: () };
        self.send(&Packet::<()>::Disconnect(notice), until).await;
        let _ = timeout_at(until, self.stream.shutdown()).await;
    }

    /// What the broker says of the packet with this number by then.
    pub(super) async fn ack(&mut self, id: NonZeroU16, until: Instant) -> Option<Reason> {
        self.listen(until, |wire| wire.acks.contains_key(&id.get())).await;
        self.acks.remove(&id.get())
    }

    /// Listens until this is so, the connection ends, or it is too late; whether it is so.
    pub(super) async fn listen(
        &mut self,
        until: Instant,
        mut is_enough: impl FnMut(&Self) -> bool,
    ) -> bool {
        while !is_enough(self) {
            if self.end.is_some() {
                return false;
            }
            let Some(packet) = self.packet(until).await else { return false };
            self.take(&packet, until).await;
        }
        true
    }

    async fn take(&mut self, packet: &[u8], until: Instant) {
        match Packet::decode(packet) {
            Ok(Packet::Publish(publish)) => {
                let id = publish.id;
                if self.heard.len() < HEARD_MAX {
                    self.heard.push(heard(&publish));
                }
                if let Some(id) = id {
                    let ack = Ack { id, reason: Reason::SUCCESS, properties: () };
                    self.send(&Packet::<()>::PubAck(ack), until).await;
                }
            }
            Ok(Packet::PubAck(ack)) => self.note(ack.id, ack.reason),
            Ok(Packet::SubAck(acks)) => {
                let reason = acks.reasons.first().copied().unwrap_or(0x80);
                self.note(acks.id, Reason(reason));
            }
            Ok(Packet::Disconnect(notice)) => self.end = Some(End::Disconnected(notice.reason)),
            Ok(_) => {}
            Err(error) => self.end = Some(End::NotMqtt(error.to_string())),
        }
    }

    /// Only of what was sent: a broker may not fill this.
    fn note(&mut self, id: NonZeroU16, reason: Reason) {
        if id.get() <= self.last_id {
            self.acks.insert(id.get(), reason);
        }
    }

    /// The next whole packet; `None` when there is none by then, or no more at all.
    async fn packet(&mut self, until: Instant) -> Option<Bytes> {
        loop {
            // There is always something to read of a broker that floods.
            if Instant::now() >= until {
                return None;
            }
            let max = usize::try_from(PACKET_MAX).unwrap_or(usize::MAX);
            match Header::read(&self.buffer, max) {
                Ok(Some(Header { len, .. })) if self.buffer.len() >= len => {
                    return Some(self.buffer.split_to(len).freeze());
                }
                Ok(_) => {}
                Err(error) => {
                    let text = match self.buffer.first() {
                        // A TLS record of an alert.
                        Some(0x15) => "it answers with a TLS alert".to_owned(),
                        _ => format!("what it sends is no MQTT: {error}"),
                    };
                    self.buffer.clear();
                    self.end = Some(End::NotMqtt(text));
                    return None;
                }
            }
            match timeout_at(until, self.stream.read_buf(&mut self.buffer)).await {
                Ok(Ok(0)) => {
                    let closed =
                        io::Error::new(io::ErrorKind::UnexpectedEof, "it closes the connection");
                    self.end.get_or_insert(End::Io(closed));
                    return None;
                }
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    self.end.get_or_insert(End::Io(error));
                    return None;
                }
                Err(_) => return None,
            }
        }
    }

    async fn send<P: Encode>(&mut self, packet: &Packet<'_, P>, until: Instant) {
        let mut bytes = BytesMut::new();
        let sent = match packet.encode(&mut bytes) {
            Ok(_) => timeout_at(until, self.stream.write_all_buf(&mut bytes)).await,
            Err(error) => Ok(Err(io::Error::other(error.to_string()))),
        };
        match sent {
            Ok(Ok(())) => {}
            // What it has said before it closed is still to be read.
            Ok(Err(error)) if packet.kind() == Kind::Connect => drop(error),
            Ok(Err(error)) => {
                self.end.get_or_insert(End::Io(error));
            }
            Err(_) => {
                let late = io::Error::new(io::ErrorKind::TimedOut, "it takes no more bytes");
                self.end.get_or_insert(End::Io(late));
            }
        }
        debug_assert!(
            !bytes.has_remaining() || self.end.is_some() || packet.kind() == Kind::Connect
        );
    }

    /// Of a few dozen packets.
    fn next_id(&mut self) -> NonZeroU16 {
        self.last_id = self.last_id.saturating_add(1);
        NonZeroU16::new(self.last_id).unwrap_or(NonZeroU16::MIN)
    }
}

fn welcome(connack: &ConnAck<Properties<'_>>) -> Welcome {
    let properties = &connack.properties;
    Welcome {
        reason: connack.reason,
        text: properties.find(|property| match property {
            Property::ReasonString(text) => Some(text.to_owned()),
            Property::ServerReference(other) => Some(format!("there is {other}")),
            _ => None,
        }),
        packet_max: properties.find(|property| match property {
            Property::MaximumPacketSize(max) => Some(max),
            _ => None,
        }),
        receive_max: properties.find(|property| match property {
            Property::ReceiveMaximum(max) => Some(max),
            _ => None,
        }),
        alias_max: properties
            .find(|property| match property {
                Property::TopicAliasMaximum(max) => Some(max),
                _ => None,
            })
            .unwrap_or_default(),
        has_qos_1: properties.find(|property| match property {
            Property::MaximumQos(qos) => Some(qos),
            _ => None,
        }) != Some(Qos::AtMostOnce),
        has_wildcards: !properties.has(id::WILDCARD_AVAILABLE)
            || properties.find(|property| match property {
                Property::WildcardAvailable(is) => Some(is),
                _ => None,
            }) == Some(true),
    }
}

fn heard(publish: &Publish<'_>) -> Heard {
    let correlation = publish.properties.find(|property| match property {
        Property::CorrelationData(data) => Some(data.to_vec()),
        _ => None,
    });
    let short = |text: &str| text.chars().take(256).collect::<String>();
    let user = publish.properties.user().take(16);
    Heard {
        topic: publish.topic.to_owned(),
        payload: Bytes::copy_from_slice(&publish.payload[..publish.payload.len().min(PAYLOAD_MAX)]),
        correlation,
        user: user.map(|(name, value)| (short(name), short(value))).collect(),
    }
}
