//! A client without an allocator: it uses fixed buffers and this crate without features.
//!
//! Run `cargo run -p statestore-proto --no-default-features --example bare_metal [HOST:PORT]` with
//! a store at that address.
//!
//! The program is `no_std`, so the compiler checks that [`device`] needs only `core`. The exception
//! is [`host`], which simulates a board with a network and a clock. The MQTT packets are from
//! `statestore-mqtt`, which does not allocate either.
#![no_std]

/// The code that would run on the device.
pub mod device {
    use core::fmt::{self, Display, Write as _};
    use core::num::NonZeroU16;
    use core::time::Duration;

    use statestore_mqtt::packet::{
        Ack, Connect, Header, Packet, Publish, Subscribe, Subscription, SubscriptionOptions,
        Subscriptions,
    };
    use statestore_mqtt::property::{Encode, Property, id};
    use statestore_mqtt::wire::{Sink, put_binary, put_text};
    use statestore_mqtt::{Malformed, Qos, Reason, Unwritable};
    use statestore_proto::hlc::{HybridClock, NodeIdRef, Timestamp, VersionRef};
    use statestore_proto::message::property::{self, RequestProperties};
    use statestore_proto::message::{Command, Refusal, Reply};
    use statestore_proto::time::UnixTime;
    use statestore_proto::topic::{self, ResponseTopic};

    /// Maximum length of a packet in bytes, in both directions.
    const PACKET_MAX: usize = 1_024;

    /// Timeout of a request.
    const TIMEOUT: Duration = Duration::from_secs(10);

    /// Functions of the board.
    pub trait Board {
        /// Sends all of `bytes`.
        fn send(&mut self, bytes: &[u8]) -> Result<(), Error>;

        /// Waits for bytes and copies them to the start of `buffer`. Returns their number.
        fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, Error>;

        /// Reads the wall clock.
        fn unix_time(&mut self) -> UnixTime;
    }

    /// The operation has failed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Error {
        /// The connection was lost, or a timeout expired.
        Network,
        /// A received packet is malformed.
        Malformed(Malformed),
        /// A packet does not fit in its buffer or is invalid.
        Unwritable(Unwritable),
        /// The broker rejected a packet, with this reason code.
        Broker(Reason),
        /// The store refused the request.
        Store(Option<Refusal>),
        /// A response is malformed.
        Answer,
        /// The wall clock is too far behind the store's clock to issue a timestamp.
        Clock,
        /// The client id is invalid.
        ClientId,
    }

    impl Display for Error {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::Network => f.write_str("connection lost or timed out"),
                Self::Malformed(error) => write!(f, "malformed packet: {error}"),
                Self::Unwritable(error) => write!(f, "cannot encode a packet: {error}"),
                Self::Broker(reason) => write!(f, "rejected by the broker: {reason}"),
                Self::Store(Some(refusal)) => write!(f, "refused by the store: {refusal}"),
                Self::Store(None) => f.write_str("refused by the store"),
                Self::Answer => f.write_str("malformed response"),
                Self::Clock => f.write_str("the wall clock is too far behind the store's clock"),
                Self::ClientId => f.write_str("invalid client id"),
            }
        }
    }

    impl From<Malformed> for Error {
        fn from(error: Malformed) -> Self {
            Self::Malformed(error)
        }
    }

    impl From<Unwritable> for Error {
        fn from(error: Unwritable) -> Self {
            Self::Unwritable(error)
        }
    }

    /// A value and its version.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Found<'a> {
        /// The value.
        pub value: &'a [u8],
        /// Its version.
        pub version: Option<VersionRef<'a>>,
    }

    /// A client with one request outstanding at a time.
    pub struct Device<'a, B> {
        board: B,
        client_id: &'a str,
        response_topic: Text<128>,
        clock: HybridClock<NodeIdRef<'a>>,
        /// Random for each run, to ignore responses to an earlier run.
        nonce: [u8; 8],
        asked: u64,
        packet_id: NonZeroU16,
        received: [u8; PACKET_MAX],
        /// Number of bytes in `received`, and the length of the last packet at their start.
        len: usize,
        read: usize,
    }

    impl<'a, B: Board> Device<'a, B> {
        /// Connects, then subscribes to responses: without the subscription, they would be lost.
        pub fn connect(board: B, client_id: &'a str, nonce: [u8; 8]) -> Result<Self, Error> {
            let mut response_topic = Text::default();
            let topic = ResponseTopic::new(client_id).map_err(|_| Error::ClientId)?;
            write!(response_topic, "{topic}").map_err(|_| Error::ClientId)?;
            let node = NodeIdRef::new(client_id).map_err(|_| Error::ClientId)?;
            let mut device = Self {
                board,
                client_id,
                response_topic,
                clock: HybridClock::new(node),
                nonce,
                asked: 0,
                packet_id: NonZeroU16::MAX,
                received: [0; PACKET_MAX],
                len: 0,
                read: 0,
            };
            let properties = [
                Property::ReceiveMaximum(1),
                Property::MaximumPacketSize(u32::try_from(PACKET_MAX).unwrap_or(u32::MAX)),
            ];
            let connect = Connect {
                clean_start: true,
                // No keep-alive: the program ends before a ping would be due.
                keep_alive: 0,
                properties: &properties[..],
                client_id,
                will: None,
                user_name: None,
                password: None,
            };
            send(&mut device.board, &Packet::Connect(connect))?;
            match device.next()? {
                Packet::ConnAck(connack) if connack.reason == Reason::SUCCESS => {}
                Packet::ConnAck(connack) => return Err(Error::Broker(connack.reason)),
                _ => return Err(Error::Answer),
            }
            let id = device.next_packet_id();
            let qos = Qos::AtLeastOnce;
            let options = SubscriptionOptions { qos, ..SubscriptionOptions::default() };
            let list = [Subscription { filter: device.response_topic.as_str(), options }];
            let subscriptions = Subscriptions::new(&list);
            let subscribe = Subscribe { id, properties: (), subscriptions };
            send(&mut device.board, &Packet::Subscribe(subscribe))?;
            match device.next()? {
                Packet::SubAck(suback) => match suback.reasons.first().copied().map(Reason) {
                    Some(reason) if reason.is_error() => Err(Error::Broker(reason)),
                    _ => Ok(device),
                },
                _ => Err(Error::Answer),
            }
        }

        /// Stores a value.
        pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<Option<VersionRef<'_>>, Error> {
            match self.ask(&Command::set(key, value))? {
                (Reply::Done, version) => Ok(version),
                (other, _) => Err(unexpected(other)),
            }
        }

        /// Reads a value.
        pub fn get(&mut self, key: &[u8]) -> Result<Option<Found<'_>>, Error> {
            match self.ask(&Command::get(key))? {
                (Reply::Value(value), version) => Ok(Some(Found { value, version })),
                (Reply::Absent, _) => Ok(None),
                (other, _) => Err(unexpected(other)),
            }
        }

        /// Sends a request and waits for its response.
        fn ask(&mut self, command: &Command<&[u8]>) -> Result<Answer<'_>, Error> {
            let mut payload = [0; PACKET_MAX / 2];
            let needed = Unwritable::NoRoom { needed: command.encoded_len() };
            let len = command.encode_into(&mut payload).map_err(|_| needed)?;
            // A new value for each request, greater than every value received.
            let now = self.board.unix_time();
            self.clock.restart_if_ahead(now);
            let timestamp = self.clock.tick(now).map_err(|_| Error::Clock)?;
            let properties =
                RequestProperties::new(self.client_id).timestamp(Timestamp::new(timestamp));
            self.asked += 1;
            let mut correlation = [0; 16];
            let (head, tail) = correlation.split_at_mut(8);
            head.copy_from_slice(&self.nonce);
            tail.copy_from_slice(&self.asked.to_be_bytes());

            let id = self.next_packet_id();
            let payload = payload.get(..len).unwrap_or_default();
            let about = [
                Property::MessageExpiry(10),
                Property::ContentType(property::CONTENT_TYPE),
                Property::ResponseTopic(self.response_topic.as_str()),
                Property::CorrelationData(&correlation),
            ];
            let publish = Publish {
                dup: false,
                qos: Qos::AtLeastOnce,
                retain: false,
                topic: topic::REQUEST,
                id: Some(id),
                properties: (&about[..], User(properties)),
                payload,
            };
            send(&mut self.board, &Packet::Publish(publish))?;

            // PUBACK and response may arrive in any order, with other messages between them.
            let sent = now;
            loop {
                if self.board.unix_time() > sent + TIMEOUT {
                    return Err(Error::Network);
                }
                match self.next()? {
                    Packet::Disconnect(disconnect) => {
                        return Err(Error::Broker(disconnect.reason));
                    }
                    Packet::PubAck(Ack { reason, .. })
                        if reason.is_error() || reason == Reason::NO_MATCHING_SUBSCRIBERS =>
                    {
                        return Err(Error::Broker(reason));
                    }
                    Packet::Publish(answer) if correlation_of(&answer) == Some(&correlation) => {
                        break;
                    }
                    _ => {}
                }
            }
            let now = self.board.unix_time();
            let Packet::Publish(answer) =
                Packet::decode(self.received.get(..self.read).unwrap_or_default())?
            else {
                return Err(Error::Answer);
            };
            let version = { answer.properties.user() }
                .find(|(name, _)| *name == property::TIMESTAMP)
                .and_then(|(_, text)| VersionRef::parse(text).ok());
            if let Some(version) = version {
                // The response is valid even if its version is too far ahead to follow.
                let _ = self.clock.receive(now, *version.hlc());
            }
            let reply = Reply::decode(answer.payload, command.kind()).map_err(|_| Error::Answer)?;
            Ok((reply, version))
        }

        /// Waits for the next packet. Acknowledges a message at once.
        fn next(&mut self) -> Result<Packet<'_>, Error> {
            self.received.copy_within(self.read..self.len, 0);
            self.len -= self.read;
            self.read = 0;
            let whole = loop {
                let there = self.received.get(..self.len).unwrap_or_default();
                match Header::read(there, PACKET_MAX)? {
                    Some(Header { len, .. }) if len <= self.len => break len,
                    _ => {}
                }
                let room = self.received.get_mut(self.len..).unwrap_or_default();
                match self.board.receive(room)? {
                    0 => return Err(Error::Network),
                    len => self.len += len.min(room.len()),
                }
            };
            self.read = whole;
            let packet = Packet::decode(self.received.get(..whole).unwrap_or_default())?;
            if let Packet::Publish(Publish { id: Some(id), .. }) = packet {
                let puback = Ack { id, reason: Reason::SUCCESS, properties: () };
                send(&mut self.board, &Packet::PubAck(puback))?;
            }
            Ok(packet)
        }

        fn next_packet_id(&mut self) -> NonZeroU16 {
            self.packet_id = self.packet_id.checked_add(1).unwrap_or(NonZeroU16::MIN);
            self.packet_id
        }
    }

    /// A reply and the version of the response.
    type Answer<'a> = (Reply<&'a [u8]>, Option<VersionRef<'a>>);

    fn unexpected(reply: Reply<&[u8]>) -> Error {
        match reply {
            Reply::Error(error) => Error::Store(error.known()),
            _ => Error::Answer,
        }
    }

    fn send<P: Encode>(board: &mut impl Board, packet: &Packet<'_, P>) -> Result<(), Error> {
        let mut buffer = [0; PACKET_MAX];
        let len = packet.encode_into(&mut buffer)?;
        board.send(buffer.get(..len).unwrap_or_default())
    }

    fn correlation_of<'a>(answer: &Publish<'a>) -> Option<&'a [u8]> {
        answer.properties.find(|property| match property {
            Property::CorrelationData(data) => Some(data),
            _ => None,
        })
    }

    /// Encoder of the user properties of a request.
    struct User<'a>(RequestProperties<'a>);

    impl Encode for User<'_> {
        fn put<S: Sink>(&self, sink: &mut S) -> Result<(), Unwritable> {
            self.0.into_iter().try_for_each(|(name, value)| {
                sink.put(&[id::USER]);
                put_binary(sink, name.as_bytes())?;
                put_text(sink, &value)
            })
        }
    }

    /// A text in a fixed buffer.
    struct Text<const N: usize> {
        bytes: [u8; N],
        len: usize,
    }

    impl<const N: usize> Default for Text<N> {
        fn default() -> Self {
            Self { bytes: [0; N], len: 0 }
        }
    }

    impl<const N: usize> Text<N> {
        fn as_str(&self) -> &str {
            let bytes = self.bytes.get(..self.len).unwrap_or_default();
            core::str::from_utf8(bytes).unwrap_or_default()
        }
    }

    impl<const N: usize> fmt::Write for Text<N> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let room = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(fmt::Error)?;
            room.copy_from_slice(text.as_bytes());
            self.len += text.len();
            Ok(())
        }
    }
}

/// The simulated board.
mod host {
    extern crate std;

    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    pub(super) use std::process::ExitCode;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};
    use std::{eprintln, format, println};

    use statestore_proto::time::UnixTime;

    use super::device::{Board, Device, Error};

    struct Host(TcpStream);

    impl Board for Host {
        fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
            self.0.write_all(bytes).map_err(|_| Error::Network)
        }

        fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
            self.0.read(buffer).map_err(|_| Error::Network)
        }

        #[expect(clippy::disallowed_methods, reason = "the board reads its clock")]
        fn unix_time(&mut self) -> UnixTime {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            UnixTime::from_epoch(since)
        }
    }

    pub(super) fn main() -> ExitCode {
        let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:1883".into());
        match run(&address) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("bare_metal: {address}: {error}");
                ExitCode::FAILURE
            }
        }
    }

    fn run(address: &str) -> Result<(), Error> {
        let stream = TcpStream::connect(address).map_err(|_| Error::Network)?;
        let patience = Some(Duration::from_secs(10));
        stream.set_read_timeout(patience).map_err(|_| Error::Network)?;
        stream.set_nodelay(true).map_err(|_| Error::Network)?;
        let client_id = format!("device-{:04x}", fastrand::u16(..));
        let nonce = fastrand::u64(..).to_be_bytes();
        let mut device = Device::connect(Host(stream), &client_id, nonce)?;
        match device.set(b"example/device", b"21.5")? {
            Some(version) => println!("set example/device, version {version}"),
            None => println!("set example/device"),
        }
        let found = device.get(b"example/device")?.ok_or(Error::Answer)?;
        println!("get example/device: {}", found.value.escape_ascii());
        println!("get example/nothing: {:?}", device.get(b"example/nothing")?);
        Ok(())
    }
}

fn main() -> host::ExitCode {
    host::main()
}
