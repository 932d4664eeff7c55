//! A client without an allocator: fixed buffers, and of this crate only what is there without the feature `alloc`.
//!
//! `cargo run -p statestore-proto --no-default-features --example bare_metal [HOST:PORT]`, with a store there.
//!
//! The whole program is `no_std`, so the compiler sees to it that [`device`] needs `core` only. The one exception is
//! [`host`], which stands for the board: a network and a clock. The MQTT packets are those of `statestore-mqtt`, which
//! needs no memory but what it is given either.
#![no_std]

/// What would run on the device.
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
    use statestore_proto::hlc::{HlcRef, HybridClock, NodeIdRef, VersionRef};
    use statestore_proto::message::property::{self, RequestProperties};
    use statestore_proto::message::{Command, Refusal, Reply};
    use statestore_proto::time::UnixTime;
    use statestore_proto::topic::{self, ResponseTopic};

    /// Bytes of the largest packet that is sent or taken.
    const PACKET_MAX: usize = 1_024;

    /// How long a request may take.
    const TIMEOUT: Duration = Duration::from_secs(10);

    /// What the board offers.
    pub trait Board {
        /// Sends all of this.
        fn send(&mut self, bytes: &[u8]) -> Result<(), Error>;

        /// Waits for bytes and puts them at the start of `buffer`; how many.
        fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, Error>;

        /// Reads the wall clock.
        fn unix_time(&mut self) -> UnixTime;
    }

    /// What can go wrong.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Error {
        /// The connection is lost, or nothing came in time.
        Network,
        /// A packet cannot be read.
        Malformed(Malformed),
        /// A packet cannot be written.
        Unwritable(Unwritable),
        /// The broker refused something, with this reason code.
        Broker(Reason),
        /// The store refused the request.
        Store(Option<Refusal>),
        /// An answer cannot be read.
        Answer,
        /// The wall clock is too far behind to issue a timestamp.
        Clock,
        /// The client id cannot be one.
        ClientId,
    }

    impl Display for Error {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::Network => f.write_str("the connection is lost, or nothing came in time"),
                Self::Malformed(error) => write!(f, "a packet cannot be read: {error}"),
                Self::Unwritable(error) => write!(f, "a packet cannot be written: {error}"),
                Self::Broker(reason) => write!(f, "the broker refused: {reason}"),
                Self::Store(Some(refusal)) => write!(f, "the store refused: {refusal}"),
                Self::Store(None) => f.write_str("the store refused"),
                Self::Answer => f.write_str("an answer cannot be read"),
                Self::Clock => f.write_str("the wall clock is behind"),
                Self::ClientId => f.write_str("the client id cannot be one"),
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

    /// What a key holds.
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
        /// Random for each run, so that an answer to an earlier run is not taken for one to this.
        nonce: [u8; 8],
        asked: u64,
        packet_id: NonZeroU16,
        received: [u8; PACKET_MAX],
        /// Bytes in `received`, and how many of them are the packet that was read last.
        len: usize,
        read: usize,
    }

    impl<'a, B: Board> Device<'a, B> {
        /// Connects and subscribes to answers, in this order: a request whose answer nobody takes is asked in vain.
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
                // No pings: this program is done before they would be due.
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

        /// Sends a request and waits for its answer and the version that comes with it.
        fn ask(&mut self, command: &Command<&[u8]>) -> Result<Told<'_>, Error> {
            let mut payload = [0; PACKET_MAX / 2];
            let needed = Unwritable::NoRoom { needed: command.encoded_len() };
            let len = command.encode_into(&mut payload).map_err(|_| needed)?;
            // One value for each request, greater than all that was seen.
            let now = self.board.unix_time();
            let timestamp = self.clock.tick(now).map_err(|_| Error::Clock)?;
            let properties = RequestProperties::new(self.client_id).timestamp(timestamp);
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

            // The acknowledgement of the broker and the answer of the store come in any order, and others in between.
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
                .and_then(|(_, text)| HlcRef::parse(text).ok());
            if let Some(version) = version {
                // Too far ahead to follow is no reason to lose the answer.
                let _ = self.clock.receive(now, version);
            }
            let reply = Reply::decode(answer.payload, command.kind()).map_err(|_| Error::Answer)?;
            Ok((reply, version.map(VersionRef::new)))
        }

        /// Waits for the next packet. A message is acknowledged at once.
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

    /// An answer, and the version that came with it.
    type Told<'a> = (Reply<&'a [u8]>, Option<VersionRef<'a>>);

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

    /// The properties of a request as the user properties of a packet.
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

    /// A text in a buffer of its own.
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

/// What stands for the board here.
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
            UnixTime::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
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
