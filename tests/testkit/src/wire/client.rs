//! A blocking MQTT 5 client: the session of `statestore-mqtt`, driven over a byte stream.
//!
//! The time of the session does not advance, so it neither pings nor gives up. The stream has
//! timeouts.

use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

use bytes::BytesMut;
use statestore_mqtt::packet::{Header, Packet, Subscription};
use statestore_mqtt::session::{
    Error, Event, Message, Options, PropertyBytes, Publish as Sent, SendError, Server, Session,
};
use statestore_mqtt::{Qos, Reason};

use super::packets::{Publish, PublishProperties};

const NOW: Duration = Duration::ZERO;

/// Packet identifier and token of a PUBLISH that the session refuses to send.
pub const REFUSED: u16 = u16::MAX;

/// A connection and its session. What arrives is read only while an event is awaited.
pub struct Client<S> {
    session: Session,
    stream: S,
    input: BytesMut,
    tokens: u64,
}

impl<S: Read + Write> Client<S> {
    /// Options of a client that announces no limits and observes those of the server.
    #[must_use]
    pub fn options(client_id: &str) -> Options {
        Options::new(client_id)
            .receive_maximum(u16::MAX)
            .maximum_packet_size(u32::MAX)
            .topic_alias_maximum(0)
            .topic_aliases(0)
            .in_flight(u16::MAX)
            .publish_bytes(usize::MAX)
            .accept_unknown_session(true)
    }

    /// Sends CONNECT and waits for CONNACK. The inner error is the reason why the session ended.
    ///
    /// # Errors
    /// If the stream fails.
    pub fn connect(stream: S, options: Options) -> io::Result<Result<(Self, Server), Error>> {
        let (session, input) = (Session::new(options), BytesMut::new());
        let mut client = Self { session, stream, input, tokens: 0 };
        client.session.handle_connected(NOW);
        client.flush()?;
        match client.next_event()? {
            Some(Event::Connected(server)) => Ok(Ok((client, *server))),
            Some(Event::Disconnected(error)) => Ok(Err(error)),
            other => Err(io::Error::other(format!("{other:?} before the CONNACK"))),
        }
    }

    /// Publishes a message and returns the token of its acknowledgement.
    ///
    /// # Errors
    /// If the session refuses the message; nothing is sent then.
    pub fn publish(&mut self, publish: &Publish) -> Result<u64, SendError> {
        self.tokens += 1;
        let properties = publish.properties.as_ref().map(PublishProperties::list);
        let properties = properties.unwrap_or_default();
        let sent = Sent {
            topic: str::from_utf8(&publish.topic).map_err(|_| SendError::InvalidTopic)?,
            payload: publish.payload.clone(),
            qos: publish.qos,
            retain: publish.retain,
            properties: &properties[..],
            token: self.tokens,
        };
        self.session.publish(sent)?;
        Ok(self.tokens)
    }

    /// Subscribes to one filter and returns the token of the SUBACK.
    ///
    /// # Errors
    /// If the session refuses the filter; nothing is sent then.
    pub fn subscribe(&mut self, filter: &str, qos: Qos) -> Result<u64, SendError> {
        self.tokens += 1;
        self.session.subscribe(&[Subscription::new(filter, qos)], (), self.tokens)?;
        Ok(self.tokens)
    }

    /// Sends DISCONNECT.
    pub fn disconnect(&mut self, reason: Reason) {
        self.session.disconnect(reason, ());
    }

    /// Writes all output of the session.
    ///
    /// # Errors
    /// If the stream fails.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.session.output_len() > 0 {
            let mut len = 0;
            for chunk in self.session.chunks() {
                self.stream.write_all(chunk)?;
                len += chunk.len();
            }
            self.session.written(NOW, len);
        }
        self.stream.flush()
    }

    /// Writes a PUBLISH that the session refuses, with the packet identifier [`REFUSED`]. The
    /// PUBACK is reported as an event with the token [`REFUSED`].
    ///
    /// # Errors
    /// If the stream fails.
    ///
    /// # Panics
    /// If the packet cannot be written.
    pub fn publish_refused(&mut self, mut publish: Publish) -> io::Result<u64> {
        publish.pkid = REFUSED;
        self.flush()?;
        self.stream.write_all(&publish.to_bytes())?;
        Ok(REFUSED.into())
    }

    /// Removes the PUBACK of a refused PUBLISH from the input.
    fn take_refused(&mut self) -> Option<Event> {
        let mut at = 0;
        while let Ok(Some(header)) = Header::read(&self.input[at..], usize::MAX)
            && let Some(bytes) = self.input.get(at..at + header.len)
        {
            if let Ok(Packet::PubAck(ack)) = Packet::decode(bytes)
                && ack.id.get() == REFUSED
            {
                let reason = ack.reason;
                let rest = self.input.split_off(at + header.len);
                self.input.truncate(at);
                self.input.unsplit(rest);
                let (token, properties) = (REFUSED.into(), PropertyBytes::default());
                return Some(Event::Published { token, reason, properties });
            }
            at += header.len;
        }
        None
    }

    /// Waits for the next event; `None` once the stream is closed. A message is acknowledged.
    ///
    /// # Errors
    /// If the stream fails, or nothing arrives in time.
    pub fn next_event(&mut self) -> io::Result<Option<Event>> {
        let mut space = [0; 16 << 10];
        loop {
            if let Some(event) = self.take_refused() {
                return Ok(Some(event));
            }
            self.session.handle_bytes(NOW, &mut self.input);
            if let Some(event) = self.session.poll_event() {
                // The session reports the lost connection as an event.
                let _ = self.flush();
                return Ok(Some(event));
            }
            match self.stream.read(&mut space) {
                Ok(count) if count > 0 => self.input.extend_from_slice(&space[..count]),
                Err(error) if error.kind() != ErrorKind::ConnectionReset => return Err(error),
                Ok(_) | Err(_) => {
                    self.session.handle_disconnected();
                    return Ok(self.session.poll_event());
                }
            }
        }
    }
}

impl From<&Message> for Publish {
    fn from(message: &Message) -> Self {
        let has_properties = !message.properties().as_bytes().is_empty();
        Self {
            dup: message.dup(),
            qos: message.qos(),
            retain: message.retain(),
            topic: message.topic().as_bytes().to_vec().into(),
            pkid: message.packet_id().map_or(0, std::num::NonZeroU16::get),
            payload: message.payload_bytes(),
            properties: has_properties.then(|| PublishProperties::read(&message.properties())),
        }
    }
}
