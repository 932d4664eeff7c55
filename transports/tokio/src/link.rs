//! What an MQTT stack has to offer.

use std::fmt;
use std::sync::Arc;

use statestore_proto::mqtt::{Incoming, PublishToken, ReasonCode, SubscribeToken, Transmit};

use crate::address::Address;

/// One MQTT 5 connection after the other, to one broker at a time.
///
/// A link sends and receives; it decides nothing. The drive loop calls [`connect`](Self::connect), then
/// [`try_send`](Self::try_send) and [`next`](Self::next) until one of them says that the connection is lost, then `connect`
/// again. Nothing of a lost connection may be reported after the next `connect`.
pub trait Link: Send + 'static {
    /// A received PUBLISH in whatever form the stack has it.
    type Message: AsIncoming + Send + 'static;

    /// The MQTT client id that it connects with.
    fn client_id(&self) -> &str;

    /// Opens a fresh connection; what was on its way on the one before is forgotten. A link that has several
    /// [addresses](crate::Addresses) tries each of them once. May be dropped at any await.
    fn connect(&mut self) -> impl Future<Output = Result<Connected, LinkError>> + Send;

    /// Accepts one packet to send, without waiting.
    ///
    /// # Errors
    /// The packet itself when there is no room for it now; [`LinkEvent::Writable`] follows when there is.
    #[expect(clippy::result_large_err, reason = "the packet comes back to be offered again")]
    fn try_send(&mut self, transmit: Transmit) -> Result<(), Transmit>;

    /// What happens next. May be dropped at any await without losing anything. While `messages` is false no message is
    /// taken from the broker, and everything else goes on.
    fn next(
        &mut self,
        messages: bool,
    ) -> impl Future<Output = Result<LinkEvent<Self::Message>, LinkError>> + Send;

    /// Says goodbye after everything that was offered, waiting a moment for that at most.
    fn disconnect(&mut self) -> impl Future<Output = ()> + Send;
}

/// A message that a machine can read.
pub trait AsIncoming {
    /// The message as a machine takes it; `None` when it cannot be one, as with a topic that is not UTF-8.
    fn as_incoming(&self) -> Option<Incoming<'_>>;

    /// When it arrived, where the link noted that. A store drops a request that has waited since, in the link or
    /// anywhere else, past its message expiry.
    fn received(&self) -> Option<tokio::time::Instant> {
        None
    }
}

/// What is known of a new connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connected {
    /// Whether the broker kept the session.
    pub session_present: bool,
}

/// What happens on a connection.
#[derive(Debug)]
pub enum LinkEvent<M> {
    /// A SUBACK.
    Subscribed(SubscribeToken, ReasonCode),
    /// A PUBACK, or what the link says in its place when it cannot send the packet at all.
    Published(PublishToken, ReasonCode),
    /// A message.
    Message(M),
    /// Another client has gone, as far as the broker tells.
    ClientGone(Arc<str>),
    /// There may be room again for what [`Link::try_send`] gave back.
    Writable,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct LinkError {
    message: Box<str>,
    retry: bool,
    /// Whether it is about the one address alone, and where the broker says to go.
    elsewhere: Option<Box<str>>,
}

impl LinkError {
    /// A failure that may pass: try again after a while.
    #[must_use]
    pub fn transient(message: impl fmt::Display) -> Self {
        Self { message: message.to_string().into(), retry: true, elsewhere: None }
    }

    /// A failure that another try does not mend: wrong credentials, another client with the same id.
    #[must_use]
    pub fn fatal(message: impl fmt::Display) -> Self {
        Self { message: message.to_string().into(), retry: false, elsewhere: None }
    }

    /// The same, where another address may do better: the broker says to use another server, or what is in vain is so at
    /// this address. `server_reference` is what it says of the other one, if anything; it is followed only to an address of
    /// the [options](crate::Options::or_at).
    ///
    /// ```
    /// use statestore_tokio::LinkError;
    ///
    /// let moved = LinkError::fatal("server moved").elsewhere(Some("b.example:1883"));
    /// assert!(moved.is_elsewhere() && !moved.is_transient());
    /// ```
    #[must_use]
    pub fn elsewhere(mut self, server_reference: Option<&str>) -> Self {
        self.elsewhere = Some(server_reference.unwrap_or_default().into());
        self
    }

    /// Whether another try may succeed.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        self.retry
    }

    /// Whether another address may do better, also where another try at this one is in vain.
    #[must_use]
    pub const fn is_elsewhere(&self) -> bool {
        self.elsewhere.is_some()
    }

    /// Where the broker says to go, as it says it.
    pub(crate) fn server_reference(&self) -> Option<&str> {
        self.elsewhere.as_deref().filter(|named| !named.is_empty())
    }

    /// The same, and with which of several brokers.
    pub(crate) fn at(self, address: &Address) -> Self {
        Self { message: format!("{} (at {address})", self.message).into(), ..self }
    }
}
