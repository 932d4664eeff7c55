//! Reason for which a handle or a store ended.

use std::error::Error;
use std::fmt;

use crate::journal::JournalError;
use crate::link::{LinkError, LinkErrorKind};

/// Reason for which a handle or a store ended without a request to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The broker rejected the user name, the password or the authentication method.
    Credentials(LinkError),
    /// The broker rejected the client id.
    ClientId(LinkError),
    /// The broker does not authorize this client to connect.
    NotAuthorized(LinkError),
    /// Another client or store has connected with the same client id.
    TakenOver(LinkError),
    /// The broker is permanently at another address.
    Moved(LinkError),
    /// TLS is not possible, for example because of an invalid certificate.
    Tls(LinkError),
    /// The broker or this build does not support an option.
    Unsupported(LinkError),
    /// Another permanent failure of the connection.
    Link(LinkError),
    /// The journal of a store failed. What was not persisted was not acknowledged, so an external
    /// broker redelivers it to the next store.
    Journal(JournalError),
}

impl CloseReason {
    /// The error of the connection, unless the journal failed.
    #[must_use]
    pub const fn link_error(&self) -> Option<&LinkError> {
        match self {
            Self::Credentials(error)
            | Self::ClientId(error)
            | Self::NotAuthorized(error)
            | Self::TakenOver(error)
            | Self::Moved(error)
            | Self::Tls(error)
            | Self::Unsupported(error)
            | Self::Link(error) => Some(error),
            Self::Journal(_) => None,
        }
    }

    /// Returns whether the journal failed.
    #[must_use]
    pub const fn is_journal(&self) -> bool {
        matches!(self, Self::Journal(_))
    }
}

impl From<LinkError> for CloseReason {
    fn from(error: LinkError) -> Self {
        match error.kind() {
            LinkErrorKind::Credentials => Self::Credentials(error),
            LinkErrorKind::ClientId => Self::ClientId(error),
            LinkErrorKind::NotAuthorized => Self::NotAuthorized(error),
            LinkErrorKind::TakenOver => Self::TakenOver(error),
            LinkErrorKind::Moved => Self::Moved(error),
            LinkErrorKind::Tls => Self::Tls(error),
            LinkErrorKind::Unsupported => Self::Unsupported(error),
            _ => Self::Link(error),
        }
    }
}

impl From<JournalError> for CloseReason {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.link_error()) {
            (_, Some(error)) => error.fmt(f),
            (Self::Journal(error), _) => error.fmt(f),
            _ => Ok(()),
        }
    }
}

impl Error for CloseReason {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match (self, self.link_error()) {
            (_, Some(error)) => error.source(),
            (Self::Journal(error), _) => error.source(),
            _ => None,
        }
    }
}

/// The handle or the store has ended.
///
/// The text contains that of the reason, so [`Error::source`] continues with the cause of the
/// reason: a reporter that prints the whole chain prints nothing twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreClosed {
    /// The reason; `None` if a stop was requested, the runtime ended, or a journal or a link
    /// panicked.
    pub reason: Option<CloseReason>,
}

impl fmt::Display for StoreClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("closed")?;
        self.reason.as_ref().map_or(Ok(()), |reason| write!(f, ": {reason}"))
    }
}

impl Error for StoreClosed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.reason.as_ref().and_then(|reason| reason.source())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use statestore_proto::transport::ReasonCode;

    use super::*;
    use crate::link::ReasonDetails;
    use crate::link::address::Address;
    use crate::link::addresses::Addresses;
    use crate::link::options::Options;

    /// The texts of an error and of its sources, as a reporter prints them.
    fn texts(error: &dyn Error) -> Vec<String> {
        let mut texts = vec![error.to_string()];
        let mut next = error.source();
        while let Some(error) = next {
            texts.push(error.to_string());
            next = error.source();
        }
        texts
    }

    /// An error without the text of its source.
    #[derive(Debug, thiserror::Error)]
    #[error("reading failed")]
    struct Reading(#[source] io::Error);

    fn disk() -> io::Error {
        io::Error::other("disk full")
    }

    #[test]
    fn chain_of_a_closed_error_repeats_no_text() {
        let round = || {
            let options = Options::new("c1", "a", 1).add_address("b", 2);
            let mut addresses = Addresses::new(&options);
            addresses.begin_round(tokio::time::Instant::now());
            let fails = || LinkError::io(LinkErrorKind::Unreachable, disk());
            addresses.report_failure(fails()).expect("another address");
            addresses.report_failure(fails()).expect_err("all have failed")
        };
        let refused = ReasonCode::BAD_USER_NAME_OR_PASSWORD;
        let refused = LinkError::refused(refused, ReasonDetails::default());
        let reasons: [(CloseReason, usize); 9] = [
            (refused.with_source(Reading(disk())).into(), 1),
            (LinkError::fatal("why").into(), 1),
            (LinkError::from_source(LinkErrorKind::Tls, disk()).into(), 1),
            (LinkError::tls(Reading(disk())).into(), 2),
            (LinkError::io(LinkErrorKind::Lost, io::ErrorKind::TimedOut.into()).into(), 1),
            (LinkError::fatal("why").with_source(Reading(disk())).into(), 3),
            (round().into(), 1),
            (JournalError::from_source(disk()).into(), 1),
            (JournalError::new("not written").with_source(Reading(disk())).into(), 3),
        ];
        for (reason, count) in reasons {
            let text = reason.to_string();
            let closed = StoreClosed { reason: Some(reason) };
            for error in [
                Box::new(closed.clone()) as Box<dyn Error>,
                Box::new(crate::Error::Closed(closed.clone())),
                Box::new(crate::LockError::from(crate::Error::Closed(closed.clone()))),
            ] {
                let texts = texts(&*error);
                assert!(texts[0].ends_with(&text), "{texts:?}");
                assert_eq!(texts.len(), count, "{texts:?}");
                for (at, outer) in texts.iter().enumerate() {
                    let is_repeated = texts[at + 1..].iter().any(|inner| outer.contains(inner));
                    assert!(!is_repeated, "{texts:?}");
                }
            }
        }
    }

    #[test]
    fn cause_is_available_although_its_text_is_shown() {
        let error = LinkError::from_source(LinkErrorKind::Tls, disk());
        let error = error.with_address(&Address::new("a", 1));
        assert!(error.source().is_none());
        assert!(error.get_ref().is_some_and(|cause| cause.is::<io::Error>()));
        let error = JournalError::from_source(disk());
        assert!(error.source().is_none() && error.get_ref().is_some());
    }
}
