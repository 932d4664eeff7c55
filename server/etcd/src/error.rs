//! Errors of etcd and of its contents, with texts for operators.

use std::error::Error as _;

use etcd_client::Error;
use statestore_proto::message::KeyPreview;
use statestore_tokio::JournalError;

use crate::head::Head;
use crate::keys::Keys;

/// gRPC status codes that are handled separately.
const CANCELLED: i32 = 1;
const INVALID_ARGUMENT: i32 = 3;
const DEADLINE_EXCEEDED: i32 = 4;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const OUT_OF_RANGE: i32 = 11;
const UNAVAILABLE: i32 = 14;
const UNAUTHENTICATED: i32 = 16;

/// Invalid [options](crate::Options). No request was sent to etcd.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// The list of endpoints is empty.
    #[error("no etcd endpoint is given; give at least one, such as http://127.0.0.1:2379")]
    NoEndpoint,
    /// The endpoint with this number, from 1, is not a supported URL. It may contain a password.
    #[error(
        "etcd endpoint {0} is invalid; write http://HOST:PORT, or with certificates \
         https://HOST:PORT, which requires the feature `tls`"
    )]
    Endpoint(usize),
    /// An endpoint contains a user or a password, which messages with this endpoint would show.
    #[error(
        "an etcd endpoint contains a user; remove the part before the @, and give the user and the \
         password separately"
    )]
    EndpointWithUser,
    /// The prefix is invalid.
    #[error(
        "{0:?} is not a valid prefix; it must begin and end with a slash, contain no control \
         characters, and have at most {max} bytes",
        max = crate::limits::PREFIX_BYTES_MAX
    )]
    Prefix(String),
    /// The lease is not a whole number of seconds, or out of range.
    #[error(
        "a lease of {0} s is invalid; use whole seconds from {min} to {max}",
        min = crate::limits::LEASE_MIN,
        max = crate::limits::LEASE_MAX
    )]
    Lease(u64),
    /// A name or an address is too long or contains control characters.
    #[error(
        "{0:?} is not a valid name or address; use one line of at most {max} bytes",
        max = crate::limits::LABEL_BYTES_MAX
    )]
    Label(String),
    /// A certificate or key cannot be read.
    #[error("cannot read {path}: {reason}; give a file in PEM format that this user can read")]
    Tls {
        /// File.
        path: String,
        /// Error of the system.
        reason: String,
    },
}

/// Reason why an operation on etcd failed. The texts contain no values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Options(#[from] OptionsError),
    #[error(
        "cannot reach etcd at {endpoints}: {reason}; check that it runs, its address and, with TLS, \
         the certificates"
    )]
    Unreachable { endpoints: Box<str>, reason: String },
    #[error(
        "etcd at {endpoints} did not respond within {ms} ms; check that its members run and have a \
         leader, and that their disks are not overloaded"
    )]
    TimedOut { endpoints: Box<str>, ms: u128 },
    #[error(
        "the database of etcd is full (NOSPACE); compact it and defragment its members, raise \
         --quota-backend-bytes if necessary, then disarm the alarm"
    )]
    NoSpace,
    #[error("cannot read changes of etcd: they were compacted")]
    Compacted,
    #[error("etcd rejects this user: {0}; give the name and the password of an etcd user")]
    Unauthenticated(String),
    #[error(
        "this etcd user lacks permissions: {reason}; grant its role readwrite on the prefix {prefix}"
    )]
    Denied { reason: String, prefix: String },
    #[error(
        "etcd rejects the size of a request: {0}; start its members with at least the defaults, \
         --max-request-bytes 1572864 and --max-txn-ops 128"
    )]
    TooLarge(String),
    #[error(
        "cannot use the prefix {0}: it contains data that no state store wrote; choose another prefix"
    )]
    Foreign(String),
    #[error(
        "cannot use the prefix {prefix}: it has layout {found:?}, and this version supports \
         {known:?}; use the version that wrote it, or a later one"
    )]
    Later { prefix: String, found: String, known: String },
    #[error(
        "the value at {0} in etcd is damaged; restore a snapshot of etcd, or choose another prefix"
    )]
    Damaged(String),
    #[error(
        "etcd has lost data: {prefix}head was {seen} and is now {found}, because etcd was started \
         without its data or from an earlier snapshot, or because another program writes there; stop \
         all stores that use it, check its data, and start them again"
    )]
    WentBack { prefix: String, seen: String, found: String },
    #[error("deposed: {0}")]
    Deposed(String),
    #[error("not leading any more: {0}")]
    Lost(String),
    #[error(
        "a key and value of {bytes} bytes at {key} do not fit into an etcd transaction; limit the \
         store to {max} bytes for both together",
        max = crate::limits::MAX_VALUE_BYTES
    )]
    ValueTooLarge { key: String, bytes: usize },
    #[error("etcd: {0}")]
    Other(String),
}

impl Failure {
    /// The head is earlier than one that was seen before, or belongs to another chain.
    pub(crate) fn went_back(keys: &Keys, seen: &Head, found: Option<&Head>) -> Self {
        let seen = Self::shown(Some(seen));
        Self::WentBack { prefix: keys.prefix(), seen, found: Self::shown(found) }
    }

    /// Formats a head for a message.
    fn shown(head: Option<&Head>) -> String {
        head.map_or_else(
            || "missing".to_owned(),
            |head| String::from_utf8_lossy(&head.encode()).into_owned(),
        )
    }

    /// The value of this key cannot be decoded.
    pub(crate) fn damaged(key: &[u8]) -> Self {
        Self::Damaged(preview(key))
    }

    /// Classifies an error of the client library.
    pub(crate) fn from_client(error: &Error, endpoints: &str, prefix: &str) -> Self {
        let Error::GRpcStatus(status) = error else {
            let (endpoints, reason) = (endpoints.into(), chain(error));
            return match error {
                Error::TransportError(_) | Error::IoError(_) => {
                    Self::Unreachable { endpoints, reason }
                }
                _ => Self::Other(reason),
            };
        };
        let message = status.message().trim_start_matches("etcdserver: ").to_owned();
        match status.code() as i32 {
            UNAVAILABLE | DEADLINE_EXCEEDED | CANCELLED => {
                Self::Unreachable { endpoints: endpoints.into(), reason: chain(error) }
            }
            RESOURCE_EXHAUSTED if message.contains("space exceeded") => Self::NoSpace,
            OUT_OF_RANGE if message.contains("compacted") => Self::Compacted,
            INVALID_ARGUMENT | RESOURCE_EXHAUSTED
                if message.contains("too large")
                    || message.contains("too many operations")
                    || message.contains("larger than max") =>
            {
                Self::TooLarge(message)
            }
            UNAUTHENTICATED => Self::Unauthenticated(message),
            INVALID_ARGUMENT
                if message.contains("user name") || message.contains("authentication") =>
            {
                Self::Unauthenticated(message)
            }
            // For example, a certificate that is not trusted.
            _ if message == "transport error" => {
                Self::Unreachable { endpoints: endpoints.into(), reason: chain(error) }
            }
            PERMISSION_DENIED => Self::Denied { reason: message, prefix: prefix.to_owned() },
            _ => Self::Other(chain(error)),
        }
    }

    /// Returns whether the same call may succeed later.
    pub(crate) const fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::TimedOut { .. } | Self::Other(_))
    }

    /// Returns whether a new attempt to lead may succeed.
    pub(crate) const fn may_pass(&self) -> bool {
        self.is_transient()
            || matches!(self, Self::NoSpace | Self::Compacted | Self::Deposed(_) | Self::Lost(_))
    }

    /// Returns whether a response exceeded the size limit of this client, so that a smaller page
    /// must be requested.
    pub(crate) fn is_too_long(&self) -> bool {
        matches!(self, Self::Other(text) if text.contains("message length too large"))
    }
}

impl From<Failure> for JournalError {
    fn from(failure: Failure) -> Self {
        Self::from_source(failure)
    }
}

/// Formats a key for messages and logs.
pub(crate) fn preview(key: &[u8]) -> String {
    format!("{:?}", KeyPreview(key))
}

/// Formats an error and its sources on one line; a gRPC status without its code.
fn chain(error: &Error) -> String {
    let (mut text, mut source) = match error {
        Error::GRpcStatus(status) => (status.message().to_owned(), status.source()),
        error => (error.to_string(), error.source()),
    };
    while let Some(error) = source {
        let cause = error.to_string();
        // Many errors repeat the text of their source.
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
