//! What goes wrong with etcd, as whoever runs the store should read it.

use std::error::Error as _;

use etcd_client::Error;
use statestore_proto::message::KeyPreview;
use statestore_tokio::JournalError;

use crate::head::Head;
use crate::keys::Keys;

/// Codes of gRPC that say more than that something failed.
const CANCELLED: i32 = 1;
const INVALID_ARGUMENT: i32 = 3;
const DEADLINE_EXCEEDED: i32 = 4;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const OUT_OF_RANGE: i32 = 11;
const UNAVAILABLE: i32 = 14;
const UNAUTHENTICATED: i32 = 16;

/// Why [options](crate::Options) cannot be used. Nothing was asked of etcd.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// There is no endpoint.
    #[error("no endpoint of etcd: give one at least, such as http://127.0.0.1:2379")]
    NoEndpoint,
    /// An endpoint is no URL that can be connected to.
    #[error(
        "{0:?} is no endpoint of etcd: write http://HOST:PORT, or with certificates https://HOST:PORT, which takes the feature `tls`"
    )]
    Endpoint(String),
    /// An endpoint has a user or a password in it, which would be shown with it.
    #[error(
        "an endpoint of etcd with a user in it: leave out what is before the @, and give the user and its password apart"
    )]
    EndpointWithUser,
    /// The prefix cannot be one.
    #[error("{0:?} is no prefix: it begins and ends with a slash, has no control characters and {max} bytes at most", max = crate::limits::PREFIX_BYTES_MAX)]
    Prefix(String),
    /// The lease is too short for etcd, or longer than anybody waits.
    #[error("a lease of {0} s: take {min} to {max} s", min = crate::limits::LEASE_MIN, max = crate::limits::LEASE_MAX)]
    Lease(u64),
    /// A name or an address cannot be told to others.
    #[error("{0:?} cannot be told to others: take one line of {max} bytes at most", max = crate::limits::LABEL_BYTES_MAX)]
    Label(String),
    /// A certificate or key cannot be read.
    #[error("{path}: {reason}: give a file in PEM format that this user may read")]
    Tls {
        /// The file.
        path: String,
        /// What the system says.
        reason: String,
    },
}

/// Why something asked of etcd was not done. No text of it holds a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Options(#[from] OptionsError),
    #[error(
        "no etcd answers at {endpoints}: {reason}: see that it runs, and that the address and, with TLS, the certificates are right"
    )]
    Unreachable { endpoints: Box<str>, reason: String },
    #[error(
        "etcd at {endpoints} did not answer within {ms} ms: see whether its members run, have a leader, and have a disk that is not busy"
    )]
    TimedOut { endpoints: Box<str>, ms: u128 },
    #[error(
        "the database of etcd is full (NOSPACE): compact it, defragment its members, raise --quota-backend-bytes if that is not enough, and disarm the alarm"
    )]
    NoSpace,
    #[error("etcd has compacted what was still to be read")]
    Compacted,
    #[error("etcd refuses this user ({0}): give the user and the password of an etcd user")]
    Unauthenticated(String),
    #[error(
        "etcd permits this user too little ({reason}): grant its role readwrite on the prefix {prefix}"
    )]
    Denied { reason: String, prefix: String },
    #[error(
        "etcd refuses a request of this size ({0}): start its members with --max-request-bytes of 1572864 and --max-txn-ops of 128 at least, which are the defaults"
    )]
    TooLarge(String),
    #[error("the prefix {0} holds what no state store has written: take another prefix")]
    Foreign(String),
    #[error(
        "the prefix {prefix} has layout {found:?}, and this version knows {known:?}: use the version that wrote it, or a later one"
    )]
    Later { prefix: String, found: String, known: String },
    #[error(
        "what etcd has at {0} is not what a store wrote there: put back a snapshot of etcd, or take another prefix"
    )]
    Damaged(String),
    #[error(
        "etcd has lost what it held: {prefix}head was {seen}, and is {found}. It was started anew without its data, or with an earlier snapshot, or somebody else writes there: end all stores that use it, see that it has what it should, and start them again"
    )]
    WentBack { prefix: String, seen: String, found: String },
    #[error("deposed: {0}")]
    Deposed(String),
    #[error("not leading any more: {0}")]
    Lost(String),
    #[error("a value of {bytes} bytes under {key} does not fit into a transaction of etcd: limit the store to {max} bytes for key and value together", max = crate::limits::MAX_VALUE_BYTES)]
    ValueTooLarge { key: String, bytes: usize },
    #[error("etcd: {0}")]
    Other(String),
}

impl Failure {
    /// The chain is not what was seen of it.
    pub(crate) fn went_back(keys: &Keys, seen: &Head, found: Option<&Head>) -> Self {
        let seen = Self::shown(Some(seen));
        Self::WentBack { prefix: keys.prefix(), seen, found: Self::shown(found) }
    }

    /// A head for a message.
    fn shown(head: Option<&Head>) -> String {
        head.map_or_else(
            || "not there".to_owned(),
            |head| String::from_utf8_lossy(&head.encode()).into_owned(),
        )
    }

    /// Bytes at this key that cannot be read.
    pub(crate) fn damaged(key: &[u8]) -> Self {
        Self::Damaged(preview(key))
    }

    /// What the client library says, of etcd at these endpoints.
    pub(crate) fn of(error: &Error, endpoints: &str, prefix: &str) -> Self {
        let Error::GRpcStatus(status) = error else {
            let (endpoints, reason) = (endpoints.into(), chain(error));
            return match error {
                Error::TransportError(_) | Error::IoError(_) => {
                    Self::Unreachable { endpoints, reason }
                }
                _ => Self::Other(reason),
            };
        };
        let says = status.message().trim_start_matches("etcdserver: ").to_owned();
        match status.code() as i32 {
            UNAVAILABLE | DEADLINE_EXCEEDED | CANCELLED => {
                Self::Unreachable { endpoints: endpoints.into(), reason: chain(error) }
            }
            RESOURCE_EXHAUSTED if says.contains("space exceeded") => Self::NoSpace,
            OUT_OF_RANGE if says.contains("compacted") => Self::Compacted,
            INVALID_ARGUMENT | RESOURCE_EXHAUSTED
                if says.contains("too large")
                    || says.contains("too many operations")
                    || says.contains("larger than max") =>
            {
                Self::TooLarge(says)
            }
            UNAUTHENTICATED => Self::Unauthenticated(says),
            INVALID_ARGUMENT if says.contains("user name") || says.contains("authentication") => {
                Self::Unauthenticated(says)
            }
            // Such as a certificate that is not trusted.
            _ if says == "transport error" => {
                Self::Unreachable { endpoints: endpoints.into(), reason: chain(error) }
            }
            PERMISSION_DENIED => Self::Denied { reason: says, prefix: prefix.to_owned() },
            _ => Self::Other(chain(error)),
        }
    }

    /// Whether the same may succeed a little later.
    pub(crate) const fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::TimedOut { .. } | Self::Other(_))
    }

    /// Whether a store that is started again may find it gone.
    pub(crate) const fn may_pass(&self) -> bool {
        self.is_transient()
            || matches!(self, Self::NoSpace | Self::Compacted | Self::Deposed(_) | Self::Lost(_))
    }

    /// Whether a message was larger than this side reads, and a smaller one is to be asked for.
    pub(crate) fn is_too_long(&self) -> bool {
        matches!(self, Self::Other(says) if says.contains("message length too large"))
    }
}

impl From<Failure> for JournalError {
    fn from(failure: Failure) -> Self {
        Self::from_source(failure)
    }
}

/// A key as a log may show it.
pub(crate) fn preview(key: &[u8]) -> String {
    format!("{:?}", KeyPreview(key))
}

/// An error and what has led to it, on one line; of a status what it says, without its code.
fn chain(error: &Error) -> String {
    let (mut text, mut source) = match error {
        Error::GRpcStatus(status) => (status.message().to_owned(), status.source()),
        error => (error.to_string(), error.source()),
    };
    while let Some(error) = source {
        let says = error.to_string();
        // Many repeat what has led to them.
        if !text.contains(&says) {
            text = format!("{text}: {says}");
        }
        source = error.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
