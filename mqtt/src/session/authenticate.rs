//! Enhanced authentication: the exchange of AUTH packets.

use super::error::{Error, SendError, Violation};
use super::event::Event;
use super::properties::PropertyBytes;
use super::{Phase, Session};
use crate::kind::Kind;
use crate::packet::{Notice, Packet};
use crate::property::{Encode, Place, Properties, Property};
use crate::reason::Reason;

/// Whose turn it is in an exchange of AUTH packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exchange {
    /// No exchange is in progress.
    None,
    Client,
    Server,
}

impl Session {
    /// Responds to [`Authenticate`](Event::Authenticate) with AUTH, *continue authentication*.
    ///
    /// # Errors
    /// [`SendError`]; nothing has changed then.
    pub fn authenticate<P: Encode>(
        &mut self,
        data: Option<&[u8]>,
        properties: P,
    ) -> Result<(), SendError> {
        if self.exchange != Exchange::Client {
            return Err(SendError::NoAuthentication);
        }
        self.put_auth(Reason::CONTINUE_AUTHENTICATION, data, &properties)
    }

    /// Starts a re-authentication with the method of the CONNECT.
    /// [`Authenticated`](Event::Authenticated) or [`Disconnected`](Event::Disconnected) ends it.
    ///
    /// # Errors
    /// [`SendError`]; nothing has changed then.
    pub fn reauthenticate<P: Encode>(
        &mut self,
        data: Option<&[u8]>,
        properties: P,
    ) -> Result<(), SendError> {
        if self.phase != Phase::Connected {
            return Err(SendError::NotConnected);
        }
        if self.exchange != Exchange::None {
            return Err(SendError::NoAuthentication);
        }
        self.put_auth(Reason::RE_AUTHENTICATE, data, &properties)
    }

    fn put_auth<P: Encode>(
        &mut self,
        reason: Reason,
        data: Option<&[u8]>,
        properties: &P,
    ) -> Result<(), SendError> {
        let Some(method) = &self.requested.authentication_method else {
            return Err(SendError::NoAuthentication);
        };
        let method = Property::AuthenticationMethod(method);
        let all = (method, (data.map(Property::AuthenticationData), properties));
        let properties = super::encode(&mut self.scratch, &all, Place::Packet(Kind::Auth))?;
        let packet = Packet::Auth(Notice { reason, properties });
        let size = packet.encoded_len().map_err(SendError::Unwritable)?;
        // Before the CONNACK the client does not know a limit.
        let limit = self.server.as_ref().map_or(usize::MAX, super::Server::packet_limit);
        if size > limit {
            return Err(SendError::TooLarge { size, limit });
        }
        packet.encode(&mut self.out.output).map_err(SendError::Unwritable)?;
        self.exchange = Exchange::Server;
        Ok(())
    }

    pub(super) fn handle_auth(&mut self, notice: &Notice<Properties<'_>>) -> Result<(), Error> {
        if self.exchange != Exchange::Server {
            return Err(Error::Protocol(Violation::Unexpected(Kind::Auth)));
        }
        self.check_method(&notice.properties)?;
        let properties = PropertyBytes::copy(&notice.properties);
        match notice.reason {
            Reason::CONTINUE_AUTHENTICATION => {
                self.exchange = Exchange::Client;
                self.out.events.push(Event::Authenticate(properties));
            }
            Reason::SUCCESS if self.phase == Phase::Connected => {
                self.exchange = Exchange::None;
                self.out.events.push(Event::Authenticated(properties));
            }
            _ => return Err(Error::Protocol(Violation::Unexpected(Kind::Auth))),
        }
        Ok(())
    }

    /// Checks that a method of the server is that of the CONNECT.
    pub(super) fn check_method(&self, properties: &Properties<'_>) -> Result<(), Error> {
        let received = properties.find(|property| match property {
            Property::AuthenticationMethod(method) => Some(method),
            _ => None,
        });
        let own = self.requested.authentication_method.as_deref();
        match received {
            Some(method) if own != Some(method) => {
                Err(Error::Protocol(Violation::AuthenticationMethod))
            }
            _ => Ok(()),
        }
    }
}
