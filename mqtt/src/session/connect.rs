//! The CONNECT of a session.

use alloc::boxed::Box;

use bytes::BytesMut;

use super::options::{InvalidOptions, Options};
use super::will::Will;
use crate::error::Unwritable;
use crate::packet::{self, Packet};
use crate::property::{Encode, Property};
use crate::wire::Sink;

/// Content of the CONNECT of a connection.
#[derive(Debug, Default)]
pub(super) struct Requested {
    pub(super) clean_start: bool,
    pub(super) keep_alive: u16,
    pub(super) session_expiry: u32,
    /// With the accepted excess.
    pub(super) receive_maximum: u16,
    pub(super) maximum_packet_size: usize,
    pub(super) topic_alias_maximum: u16,
    pub(super) authentication_method: Option<Box<str>>,
}

impl Requested {
    pub(super) fn new(options: &Options, clean_start: bool) -> Self {
        Self {
            clean_start,
            keep_alive: options.keep_alive,
            session_expiry: options.session_expiry,
            receive_maximum: options.receive_maximum.saturating_add(options.receive_excess),
            maximum_packet_size: usize::try_from(options.maximum_packet_size).unwrap_or(usize::MAX),
            topic_alias_maximum: options.topic_alias_maximum,
            authentication_method: options
                .authentication
                .as_ref()
                .map(|(method, _)| method.clone()),
        }
    }
}

/// Properties of a CONNECT or of its will.
enum Part<'a> {
    Connect(&'a Options),
    Will(&'a Will),
}

impl Encode for Part<'_> {
    fn put<S: Sink>(&self, sink: &mut S) -> Result<(), Unwritable> {
        match self {
            Self::Connect(options) => options.put_properties(sink),
            Self::Will(will) => {
                if will.delay > 0 {
                    Property::WillDelay(will.delay).put(sink)?;
                }
                match &will.properties {
                    Ok(bytes) => sink.put(bytes),
                    Err(error) => return Err(*error),
                }
                Ok(())
            }
        }
    }
}

impl Options {
    /// Writes the CONNECT, and checks it as a server would.
    pub(super) fn connect(
        &self,
        clean_start: bool,
        client_id: &str,
    ) -> Result<BytesMut, InvalidOptions> {
        let will = self.will.as_ref().map(|will| packet::Will {
            qos: will.qos,
            retain: will.retain,
            properties: Part::Will(will),
            topic: &will.topic,
            payload: &will.payload,
        });
        let connect = Packet::Connect(packet::Connect {
            clean_start,
            keep_alive: self.keep_alive,
            properties: Part::Connect(self),
            client_id,
            will,
            user_name: self.user.as_deref(),
            password: self.password.as_deref(),
        });
        let mut bytes = BytesMut::new();
        connect.encode(&mut bytes).map_err(InvalidOptions::Unwritable)?;
        Packet::decode(&bytes).map_err(InvalidOptions::Malformed)?;
        Ok(bytes)
    }

    fn put_properties<S: Sink>(&self, sink: &mut S) -> Result<(), Unwritable> {
        let expiry = self.session_expiry;
        (expiry > 0).then_some(Property::SessionExpiry(expiry)).put(sink)?;
        let maximum = self.receive_maximum;
        (maximum < u16::MAX).then_some(Property::ReceiveMaximum(maximum)).put(sink)?;
        Property::MaximumPacketSize(self.maximum_packet_size).put(sink)?;
        let aliases = self.topic_alias_maximum;
        (aliases > 0).then_some(Property::TopicAliasMaximum(aliases)).put(sink)?;
        let is_unwanted = !self.problem_information;
        is_unwanted.then_some(Property::RequestProblemInformation(false)).put(sink)?;
        let is_wanted = self.response_information;
        is_wanted.then_some(Property::RequestResponseInformation(true)).put(sink)?;
        if let Some((method, data)) = &self.authentication {
            Property::AuthenticationMethod(method).put(sink)?;
            let data = (!data.is_empty()).then_some(Property::AuthenticationData(data));
            data.put(sink)?;
        }
        self.user_properties
            .iter()
            .try_for_each(|(name, value)| Property::User(name, value).put(sink))
    }
}
