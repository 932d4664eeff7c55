//! Requests of an application: one builder per verb, and the [`Request`] that each converts into.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;

use crate::hlc::FencingToken;
use crate::message::{self, Command, Condition, Expiry, RequestKind, Scan};

/// A request with its options. [`Client::submit`](super::Client::submit) takes one, or a builder.
/// Its payload is a [`message::RequestPayload`](crate::message::RequestPayload).
///
/// [`get`](Self::get), [`set`](Self::set), [`del`](Self::del), [`vdel`](Self::vdel) and
/// [`scan`](Self::scan) return a builder with the options that the verb has:
///
/// ```
/// use core::time::Duration;
/// use statestore_proto::client::Request;
/// use statestore_proto::message::Condition;
///
/// let get = Request::get("thermostat").timeout(Duration::from_secs(3));
/// let set = Request::set("thermostat", [21])
///     .condition(Condition::IfAbsent)
///     .expires_after(Duration::from_secs(60));
/// # let _: [Request; 2] = [get.into(), set.into()];
/// ```
///
/// A GET cannot have a fencing token:
///
/// ```compile_fail,E0599
/// # use statestore_proto::{client::Request, hlc::FencingToken};
/// fn fenced(token: FencingToken) {
///     Request::get("thermostat").fencing_token(token);
/// }
/// ```
///
/// A caller that does not know the verb converts a [`Command`] or a
/// [`message::RequestPayload`](crate::message::RequestPayload), the payload without options, and uses
/// [`with_timeout`](Self::with_timeout), [`with_fencing_token`](Self::with_fencing_token) and
/// [`with_persist`](Self::with_persist). An option that the verb does not have is reported by
/// `submit`:
///
/// ```
/// use statestore_proto::client::{Client, ClientConfig, Request, SubmitError};
/// use statestore_proto::message::Command;
/// use statestore_proto::time::Now;
///
/// let mut client = Client::new(ClientConfig::new("c1", *b"8 random"))?;
/// let del = Request::new(Command::del("thermostat".into())).with_persist(true);
/// assert_eq!(client.submit(Now::default(), del), Err(SubmitError::PersistWithoutSet));
/// # Ok::<(), statestore_proto::client::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Request {
    pub(super) request: message::RequestPayload<Bytes>,
    pub(super) fencing_token: Option<FencingToken>,
    pub(super) persist: bool,
    pub(super) timeout: Option<Duration>,
    pub(super) zero_expiry: bool,
}

impl Request {
    /// Makes a request from a GET, SET, DEL or VDEL. To watch a key use
    /// [`Client::watch`](super::Client::watch).
    #[must_use]
    pub const fn new(command: Command<Bytes>) -> Self {
        Self::with_defaults(message::RequestPayload::Command(command))
    }

    const fn with_defaults(request: message::RequestPayload<Bytes>) -> Self {
        Self { request, fencing_token: None, persist: false, timeout: None, zero_expiry: false }
    }

    /// Reads a value. [`Outcome::into_value`](super::Outcome::into_value) reads the response.
    pub fn get(key: impl IntoBytes) -> ReadRequest {
        ReadRequest(Self::new(Command::get(key.into_bytes())))
    }

    /// Stores a value. [`Outcome::into_version`](super::Outcome::into_version) reads the response.
    pub fn set(key: impl IntoBytes, value: impl IntoBytes) -> SetRequest {
        SetRequest(Self::new(Command::set(key.into_bytes(), value.into_bytes())))
    }

    /// Removes a key. [`Outcome::into_removal`](super::Outcome::into_removal) reads the response.
    pub fn del(key: impl IntoBytes) -> DelRequest {
        DelRequest(Self::new(Command::del(key.into_bytes())))
    }

    /// Removes a key if it has this value. [`Outcome::into_removal`](super::Outcome::into_removal)
    /// reads the response.
    pub fn vdel(key: impl IntoBytes, value: impl IntoBytes) -> DelRequest {
        DelRequest(Self::new(Command::vdel(key.into_bytes(), value.into_bytes())))
    }

    /// Lists a page of the keys that match a [pattern](crate::glob): the first page, or the one
    /// after the page that returned the [token](crate::message::Page::token).
    /// [`Outcome::into_page`](super::Outcome::into_page) reads the response.
    ///
    /// A page without keys may not be the last. A token stays valid when its request has failed.
    /// Source: `list_keys` of the deployed SDK.
    ///
    /// ```
    /// use statestore_proto::client::{Outcome, Request, RequestError, ReadRequest};
    ///
    /// /// Prints a page and returns the request for the next one.
    /// fn next(outcome: Outcome) -> Result<Option<ReadRequest>, RequestError> {
    ///     let page = outcome.into_page()?;
    ///     for key in page.shared_keys() {
    ///         println!("{}", key.escape_ascii());
    ///     }
    ///     Ok(page.shared_token().map(|token| Request::scan("rooms/*", Some(token))))
    /// }
    /// # assert!(next(Outcome::ConnectionLost).is_err());
    /// # assert!(Request::from(Request::scan("rooms/*", None)).command().is_none());
    /// ```
    pub fn scan(pattern: impl IntoBytes, token: Option<Bytes>) -> ReadRequest {
        ReadRequest(Scan { pattern: pattern.into_bytes(), token }.into())
    }

    /// Sets the fencing token. Only SET, DEL and VDEL have one; of any other request
    /// [`Client::submit`](super::Client::submit) reports it.
    #[must_use]
    pub fn with_fencing_token(mut self, token: FencingToken) -> Self {
        self.fencing_token = Some(token);
        self
    }

    /// Sets whether to ask the store to persist the key; no response confirms it. Only a SET can
    /// ask; of any other request [`Client::submit`](super::Client::submit) reports it.
    #[must_use]
    pub const fn with_persist(mut self, persist: bool) -> Self {
        self.persist = persist;
        self
    }

    /// Sets the time limit, counted from submission and rounded up to whole milliseconds.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The command; `None` for a page of keys.
    #[must_use]
    pub const fn command(&self) -> Option<&Command<Bytes>> {
        self.request.command()
    }

    /// The verb.
    #[must_use]
    pub const fn kind(&self) -> RequestKind {
        self.request.kind()
    }

    /// The key, or the pattern of keys.
    #[must_use]
    pub const fn subject(&self) -> &Bytes {
        self.request.subject()
    }

    /// The fencing token.
    #[must_use]
    pub const fn fencing_token(&self) -> Option<&FencingToken> {
        self.fencing_token.as_ref()
    }

    /// Returns whether the request asks the store to persist the key.
    #[must_use]
    pub const fn persist(&self) -> bool {
        self.persist
    }

    /// The time limit; `None` for the [default](super::ClientConfig::timeout) of the client.
    #[must_use]
    pub const fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    pub(super) fn payload(&self) -> Bytes {
        self.request.encode().into()
    }
}

impl From<message::RequestPayload<Bytes>> for Request {
    fn from(request: message::RequestPayload<Bytes>) -> Self {
        Self::with_defaults(request)
    }
}

impl From<Command<Bytes>> for Request {
    fn from(command: Command<Bytes>) -> Self {
        Self::new(command)
    }
}

impl From<Scan<Bytes>> for Request {
    fn from(scan: Scan<Bytes>) -> Self {
        Self::with_defaults(message::RequestPayload::Scan(scan))
    }
}

/// A request that a fencing token protects: SET, DEL or VDEL.
pub trait WriteRequest: Into<Request> + private::Sealed {
    /// Sets the fencing token.
    #[must_use]
    fn with_fencing_token(self, token: FencingToken) -> Self;
}

macro_rules! builders {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        #[must_use = "a request is sent after `Client::submit`"]
        pub struct $name(Request);

        impl $name {
            /// Sets the time limit, counted from submission and rounded up to whole milliseconds.
            pub const fn timeout(mut self, timeout: Duration) -> Self {
                self.0.timeout = Some(timeout);
                self
            }
        }

        impl From<$name> for Request {
            fn from(builder: $name) -> Self {
                builder.0
            }
        }
    )*};
}

builders! {
    /// A GET, or a request for a page of keys, with its options.
    ReadRequest
    /// A SET with its options.
    SetRequest
    /// A DEL or VDEL with its options.
    DelRequest
}

macro_rules! write_requests {
    ($($name:ident)*) => {$(
        impl $name {
            /// Sets the fencing token.
            pub fn fencing_token(self, token: FencingToken) -> Self {
                Self(self.0.with_fencing_token(token))
            }
        }

        impl WriteRequest for $name {
            fn with_fencing_token(self, token: FencingToken) -> Self {
                self.fencing_token(token)
            }
        }
    )*};
}

write_requests! { SetRequest DelRequest }

impl SetRequest {
    /// Sets the condition under which the SET is applied.
    pub fn condition(mut self, new: Condition<Bytes>) -> Self {
        if let message::RequestPayload::Command(Command::Set { condition, .. }) =
            &mut self.0.request
        {
            *condition = new;
        }
        self
    }

    /// Sets the expiry of the value, rounded up to whole milliseconds. The store counts it from the
    /// moment it applies the write. Zero is [rejected](super::SubmitError::ZeroExpiry).
    pub fn expires_after(mut self, duration: Duration) -> Self {
        if let message::RequestPayload::Command(Command::Set { expiry, .. }) = &mut self.0.request {
            *expiry = Expiry::after(duration);
            self.0.zero_expiry = expiry.is_none();
        }
        self
    }

    /// Asks the store to persist the key. No response confirms it.
    pub const fn persist(mut self, persist: bool) -> Self {
        self.0.persist = persist;
        self
    }
}

mod private {
    pub trait Sealed {}
    impl Sealed for super::SetRequest {}
    impl Sealed for super::DelRequest {}
}

/// A conversion into the bytes of a key or value. Borrowed and shared bytes are copied; [`Bytes`],
/// vectors and strings are not.
///
/// ```
/// use std::borrow::Cow;
/// use std::sync::Arc;
/// use statestore_proto::client::Request;
///
/// let name: Arc<str> = "thermostat".into();
/// let key: Cow<'_, str> = format!("rooms/{name}").into();
/// let requests: [Request; 2] = [Request::get(key).into(), Request::get(&name).into()];
/// assert_eq!(requests.map(|get| get.subject().to_vec()), [&b"rooms/thermostat"[..], b"thermostat"]);
/// ```
pub trait IntoBytes {
    /// Converts into bytes.
    fn into_bytes(self) -> Bytes;
}

macro_rules! into_bytes {
    ($($given:ty => |$it:ident| $bytes:expr;)*) => {$(
        impl IntoBytes for $given {
            fn into_bytes(self) -> Bytes {
                let $it = self;
                $bytes
            }
        }
    )*};
}

into_bytes! {
    Bytes => |it| it;
    &Bytes => |it| it.clone();
    Vec<u8> => |it| it.into();
    &Vec<u8> => |it| Bytes::copy_from_slice(it);
    Box<[u8]> => |it| it.into();
    &[u8] => |it| Bytes::copy_from_slice(it);
    String => |it| it.into();
    &String => |it| Bytes::copy_from_slice(it.as_bytes());
    Box<str> => |it| String::from(it).into();
    Arc<str> => |it| Bytes::copy_from_slice(it.as_bytes());
    &Arc<str> => |it| Bytes::copy_from_slice(it.as_bytes());
    &str => |it| Bytes::copy_from_slice(it.as_bytes());
}

impl IntoBytes for Cow<'_, str> {
    fn into_bytes(self) -> Bytes {
        self.into_owned().into()
    }
}

impl IntoBytes for Cow<'_, [u8]> {
    fn into_bytes(self) -> Bytes {
        self.into_owned().into()
    }
}

impl<const N: usize> IntoBytes for [u8; N] {
    fn into_bytes(self) -> Bytes {
        Bytes::copy_from_slice(&self)
    }
}

impl<const N: usize> IntoBytes for &[u8; N] {
    fn into_bytes(self) -> Bytes {
        Bytes::copy_from_slice(self)
    }
}
