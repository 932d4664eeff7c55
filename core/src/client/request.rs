//! A request as an application makes it.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;

use crate::hlc::FencingToken;
use crate::message::{Command, CommandKind, Condition, Expiry, Scan};

/// A command, or a page of a listing, and how it is to be asked for.
///
/// ```
/// use core::time::Duration;
/// use statestore_proto::client::Request;
/// use statestore_proto::message::Condition;
///
/// let get = Request::get("thermostat").timeout(Duration::from_secs(3));
/// let set = Request::set("thermostat", [21]).condition(Condition::IfAbsent).expires_after(Duration::from_secs(60));
/// # let _ = (get, set);
/// ```
#[derive(Clone, Debug)]
pub struct Request {
    pub(super) what: What,
    pub(super) fencing_token: Option<FencingToken>,
    pub(super) persist: bool,
    pub(super) timeout: Option<Duration>,
    pub(super) zero_expiry: bool,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) enum What {
    Command(Command<Bytes>),
    Page(Scan<Bytes>),
}

impl Request {
    /// A GET, SET, DEL or VDEL. To watch a key use [`Client::watch`](super::Client::watch).
    #[must_use]
    pub const fn new(command: Command<Bytes>) -> Self {
        Self::of(What::Command(command))
    }

    const fn of(what: What) -> Self {
        Self { what, fencing_token: None, persist: false, timeout: None, zero_expiry: false }
    }

    /// Asks for a page of the keys that match a [pattern](crate::glob): the first one, or the one that a
    /// [token](crate::message::Page::token) is of. [`Outcome::into_page`](super::Outcome::into_page) reads the answer.
    ///
    /// A page may have no keys and still not be the last. A token stays of use when its request has failed. Source: the
    /// deployed SDK's `list_keys`.
    ///
    /// ```
    /// use statestore_proto::client::{Outcome, Request, RequestError};
    ///
    /// /// What to ask for next, once all keys of a page were taken.
    /// fn after(outcome: Outcome) -> Result<Option<Request>, RequestError> {
    ///     let page = outcome.into_page()?;
    ///     for key in page.shared_keys() {
    ///         println!("{}", key.escape_ascii());
    ///     }
    ///     Ok(page.shared_token().map(|token| Request::scan("rooms/*", Some(token))))
    /// }
    /// # assert!(after(Outcome::Unknown).is_err() && Request::scan("rooms/*", None).command().is_none());
    /// ```
    #[must_use]
    pub fn scan(pattern: impl IntoBytes, token: Option<Bytes>) -> Self {
        Self::of(What::Page(Scan { pattern: pattern.into_bytes(), token }))
    }

    /// Reads a value. [`Outcome::into_value`](super::Outcome::into_value) reads the answer.
    #[must_use]
    pub fn get(key: impl IntoBytes) -> Self {
        Self::new(Command::get(key.into_bytes()))
    }

    /// Stores a value. [`Outcome::into_version`](super::Outcome::into_version) reads the answer.
    #[must_use]
    pub fn set(key: impl IntoBytes, value: impl IntoBytes) -> Self {
        Self::new(Command::set(key.into_bytes(), value.into_bytes()))
    }

    /// Removes a key. [`Outcome::into_removal`](super::Outcome::into_removal) reads the answer.
    #[must_use]
    pub fn del(key: impl IntoBytes) -> Self {
        Self::new(Command::del(key.into_bytes()))
    }

    /// Removes a key if it has this value. [`Outcome::into_removal`](super::Outcome::into_removal) reads the answer.
    #[must_use]
    pub fn vdel(key: impl IntoBytes, value: impl IntoBytes) -> Self {
        Self::new(Command::vdel(key.into_bytes(), value.into_bytes()))
    }

    /// When a SET applies. Other commands have no condition and stay as they are.
    #[must_use]
    pub fn condition(mut self, to: Condition<Bytes>) -> Self {
        if let What::Command(Command::Set { condition, .. }) = &mut self.what {
            *condition = to;
        }
        self
    }

    /// Sets the expiry of a SET's value, rounded up to whole milliseconds, counted by the store from the
    /// moment it applies the write. With zero the request is [not accepted](super::SubmitError::ZeroExpiry). Other
    /// commands stay as they are.
    #[must_use]
    pub fn expires_after(mut self, duration: Duration) -> Self {
        if let What::Command(Command::Set { expiry, .. }) = &mut self.what {
            *expiry = Expiry::after(duration);
            self.zero_expiry = duration.is_zero();
        }
        self
    }

    /// Carries a fencing token. Reads are never fenced and go without.
    #[must_use]
    pub fn fencing_token(mut self, token: FencingToken) -> Self {
        self.fencing_token = self.kind().is_write().then_some(token);
        self
    }

    /// Asks the store to keep the key of a SET on disk. No reply tells whether it does.
    #[must_use]
    pub const fn persist(mut self, persist: bool) -> Self {
        self.persist = persist;
        self
    }

    /// How long the request may take, counted from its submission; rounded up to whole milliseconds.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The command; `None` for a page.
    #[must_use]
    pub const fn command(&self) -> Option<&Command<Bytes>> {
        match &self.what {
            What::Command(command) => Some(command),
            What::Page(_) => None,
        }
    }

    /// Which command it is.
    #[must_use]
    pub const fn kind(&self) -> CommandKind {
        match &self.what {
            What::Command(command) => command.kind(),
            What::Page(_) => CommandKind::Scan,
        }
    }

    /// What it is about: the key, or the pattern of keys.
    #[must_use]
    pub const fn subject(&self) -> &Bytes {
        match &self.what {
            What::Command(command) => command.key(),
            What::Page(scan) => &scan.pattern,
        }
    }

    /// The fencing token that it carries.
    #[must_use]
    pub const fn token(&self) -> Option<&FencingToken> {
        self.fencing_token.as_ref()
    }

    /// How long it may take; `None` when that is left to the client.
    #[must_use]
    pub const fn time_limit(&self) -> Option<Duration> {
        self.timeout
    }

    pub(super) fn payload(&self) -> Bytes {
        match &self.what {
            What::Command(command) => command.encode().into(),
            What::Page(scan) => scan.encode().into(),
        }
    }
}

impl From<Command<Bytes>> for Request {
    fn from(command: Command<Bytes>) -> Self {
        Self::new(command)
    }
}

/// What a key or a value may be given as. Borrowed bytes are copied; [`Bytes`], vectors and strings are not.
pub trait IntoBytes {
    /// The bytes.
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
    &str => |it| Bytes::copy_from_slice(it.as_bytes());
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
