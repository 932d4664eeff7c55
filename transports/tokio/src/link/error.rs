//! Error of a connection or of an attempt to connect.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use statestore_proto::transport::ReasonCode;

use super::address::Address;
use crate::chain::skip_shown;

/// Kind of a [`LinkError`], by what must change before a connection succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LinkErrorKind {
    /// No connection to the address: refused, no route, or an unknown host name.
    Unreachable,
    /// The broker did not respond in time.
    TimedOut,
    /// The proxy cannot be reached, refused the connection, did not respond in time, or sent an
    /// invalid response.
    Proxy,
    /// The TLS handshake failed, or the TLS configuration is invalid.
    Tls,
    /// The broker rejected the user name, the password or the authentication method.
    Credentials,
    /// The broker rejected the client id.
    ClientId,
    /// The broker does not authorize this client to connect.
    NotAuthorized,
    /// Another client has connected with the same client id.
    TakenOver,
    /// The broker sends this client to another server.
    Moved,
    /// The broker refused the connection for another reason.
    Refused,
    /// The broker ended the connection with a DISCONNECT.
    Disconnected,
    /// The connection was closed, or reading or writing failed.
    Lost,
    /// The broker sent a packet that violates MQTT.
    Protocol,
    /// The broker refused a subscription without which the connection is useless.
    SubscriptionRefused,
    /// More messages arrived than the link may queue.
    Overloaded,
    /// The broker or this build does not support an option.
    Unsupported,
    /// Not connected; the reason was reported before.
    NotConnected,
    /// Another failure.
    Other,
}

impl LinkErrorKind {
    /// Returns whether a retry with the same options can succeed.
    const fn is_transient(self) -> bool {
        !matches!(
            self,
            Self::Credentials
                | Self::ClientId
                | Self::NotAuthorized
                | Self::TakenOver
                | Self::Unsupported
        )
    }
}

/// Error of a connection or of an attempt to connect.
///
/// Its text consists of the failure, the address, and advice if there is any. Two errors are equal
/// if kind, reason code, text and address are equal, and both or neither are transient; sources are
/// not compared.
#[derive(Clone)]
pub struct LinkError(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: LinkErrorKind,
    reason: Option<ReasonCode>,
    message: Box<str>,
    advice: Option<Cow<'static, str>>,
    is_transient: bool,
    /// Set if another address may succeed; contains the Server Reference, or is empty.
    server_reference: Option<Box<str>>,
    address: Option<Address>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl LinkError {
    /// A failure of this kind. A retry can succeed unless the kind is
    /// [`Credentials`](LinkErrorKind::Credentials), [`ClientId`](LinkErrorKind::ClientId),
    /// [`NotAuthorized`](LinkErrorKind::NotAuthorized), [`TakenOver`](LinkErrorKind::TakenOver) or
    /// [`Unsupported`](LinkErrorKind::Unsupported).
    #[must_use]
    pub fn new(kind: LinkErrorKind, message: impl fmt::Display) -> Self {
        Self(Box::new(Inner {
            kind,
            reason: None,
            message: message.to_string().into(),
            advice: None,
            is_transient: kind.is_transient(),
            server_reference: None,
            address: None,
            source: None,
        }))
    }

    /// A failure of kind [`Other`](LinkErrorKind::Other) that may pass: a retry can succeed.
    #[must_use]
    pub fn transient(message: impl fmt::Display) -> Self {
        Self::new(LinkErrorKind::Other, message)
    }

    /// A failure of kind [`Other`](LinkErrorKind::Other) after which a retry is pointless.
    #[must_use]
    pub fn fatal(message: impl fmt::Display) -> Self {
        Self::new(LinkErrorKind::Other, message).permanent()
    }

    /// A failure of this kind with the text of its source.
    #[must_use]
    pub fn from_source(kind: LinkErrorKind, source: impl Error + Send + Sync + 'static) -> Self {
        Self::new(kind, &source).with_source(source)
    }

    /// The TLS configuration is invalid: a retry is pointless.
    #[must_use]
    pub fn tls(source: impl Error + Send + Sync + 'static) -> Self {
        Self::from_source(LinkErrorKind::Tls, source).permanent()
    }

    /// The options require TLS, and `package` was built without its feature `tls`.
    #[must_use]
    pub fn without_tls(package: &str) -> Self {
        let text = format!("{package} was built without its feature `tls`");
        Self::new(LinkErrorKind::Unsupported, text)
    }

    /// An I/O error of this kind.
    #[must_use]
    pub fn io(kind: LinkErrorKind, error: io::Error) -> Self {
        let message = match error.kind() {
            io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::TimedOut
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable => error.kind().to_string(),
            _ => error.to_string(),
        };
        Self::new(kind, message).with_source(error)
    }

    /// Sets the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// Sets a sentence that tells an operator what to do. It is the end of the text.
    ///
    /// ```
    /// use statestore_tokio::LinkError;
    ///
    /// let full = LinkError::transient("the broker is full").with_advice("raise its limit");
    /// assert_eq!(full.to_string(), "the broker is full; raise its limit");
    /// ```
    #[must_use]
    pub fn with_advice(mut self, advice: impl Into<Cow<'static, str>>) -> Self {
        self.0.advice = Some(advice.into());
        self
    }

    /// Sets the reason code that the broker sent.
    #[must_use]
    pub fn with_reason(mut self, reason: ReasonCode) -> Self {
        self.0.reason = Some(reason);
        self
    }

    /// Replaces kind and text with the advice, and keeps the rest. A diagnosis uses it for a more
    /// specific error.
    ///
    /// ```
    /// use statestore_tokio::{LinkError, LinkErrorKind};
    ///
    /// let lost = LinkError::new(LinkErrorKind::Lost, "the connection was closed");
    /// let tls = lost.with_diagnosis(LinkErrorKind::Tls, "the broker speaks TLS on this port");
    /// assert_eq!(tls.kind(), LinkErrorKind::Tls);
    /// ```
    #[must_use]
    pub fn with_diagnosis(mut self, kind: LinkErrorKind, message: impl fmt::Display) -> Self {
        (self.0.kind, self.0.message) = (kind, message.to_string().into());
        self.0.advice = None;
        self
    }

    /// Marks the error as permanent: a retry is pointless.
    #[must_use]
    pub fn permanent(mut self) -> Self {
        self.0.is_transient = false;
        self
    }

    /// Marks the error as transient: a retry can succeed.
    #[must_use]
    pub fn retriable(mut self) -> Self {
        self.0.is_transient = true;
        self
    }

    /// Marks the error as specific to this address: another address may succeed.
    ///
    /// `server_reference` is the Server Reference of the broker, if any. It is followed only to an
    /// address of the [options](crate::Options::add_address).
    ///
    /// ```
    /// use statestore_tokio::LinkError;
    ///
    /// let moved = LinkError::fatal("server moved").address_specific(Some("b.example:1883"));
    /// assert!(moved.is_address_specific() && !moved.is_transient());
    /// ```
    #[must_use]
    pub fn address_specific(mut self, server_reference: Option<&str>) -> Self {
        self.0.server_reference = Some(server_reference.unwrap_or_default().into());
        self
    }

    /// The same error as a transient one: the next attempt is made at another address.
    pub(crate) fn moved_on(mut self) -> Self {
        self.0.server_reference = None;
        self.retriable()
    }

    /// The error of a round in which all addresses failed, this one among them.
    pub(crate) fn all_failed(self, message: String) -> Self {
        let error = Self::new(self.kind(), message);
        let (reason, is_transient) = (self.0.reason, self.0.is_transient);
        let mut error = error.with_source(self);
        (error.0.reason, error.0.is_transient) = (reason, is_transient);
        error
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> LinkErrorKind {
        self.0.kind
    }

    /// The reason code of the CONNACK, DISCONNECT or SUBACK behind this error, if any.
    #[must_use]
    pub fn reason(&self) -> Option<ReasonCode> {
        self.0.reason
    }

    /// The cause, whether or not the text of this error contains its text.
    /// [`Error::source`] returns only causes whose text does not repeat that of this error.
    #[must_use]
    pub fn get_ref(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.0.source.as_deref()
    }

    /// The address of the broker: set for every failure of one address. The error of a round in
    /// which several addresses failed lacks it, and lists them in its text.
    #[must_use]
    pub fn address(&self) -> Option<&Address> {
        self.0.address.as_ref()
    }

    /// Returns whether a retry can succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.0.is_transient
    }

    /// Returns whether another address may succeed, even if a retry at this one is pointless.
    #[must_use]
    pub fn is_address_specific(&self) -> bool {
        self.0.server_reference.is_some()
    }

    /// The Server Reference of the broker, unparsed.
    pub(crate) fn server_reference(&self) -> Option<&str> {
        self.0.server_reference.as_deref().filter(|named| !named.is_empty())
    }

    /// Sets the address of the broker, unless it is set.
    #[must_use]
    pub fn with_address(mut self, address: &Address) -> Self {
        self.0.address.get_or_insert_with(|| address.clone());
        self
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if let Some(address) = &self.0.address {
            // The proxy has another address, which is part of the message.
            let relation = if self.0.kind == LinkErrorKind::Proxy { "for" } else { "at" };
            write!(f, " ({relation} {address})")?;
        }
        self.0.advice.as_ref().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

/// Kind and text on one line, since a program that returns an error from `main` prints this.
impl fmt::Debug for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl Error for LinkError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The text already has all that a refusal of the broker contains.
        if self.0.reason.is_some() {
            return None;
        }
        let source = self.get_ref().map(|source| source as &(dyn Error + 'static));
        skip_shown(&self.to_string(), source)
    }
}

impl PartialEq for LinkError {
    fn eq(&self, other: &Self) -> bool {
        let compared = |Self(inner): &Self| {
            let Inner { kind, reason, is_transient, .. } = **inner;
            (kind, reason, is_transient)
        };
        compared(self) == compared(other)
            && self.0.message == other.0.message
            && self.0.address == other.0.address
            && self.0.advice == other.0.advice
    }
}

impl Eq for LinkError {}
