//! What went wrong, what to do next, and the exit code for it.

use std::process::ExitCode;
use std::{fmt, io};

use bytes::Bytes;
use rustix::io::Errno;
use statestore_proto::message::{Refusal, ServiceError};
use statestore_proto::mqtt::ReasonCode;
use statestore_rumqttc::REFUSED;
use statestore_sqlite::OpenError;
use statestore_tokio::{Error, StateStore, StoreClosed};

use crate::escape::on_one_line;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The input cannot be used, or the store refused it.
    Refused(String),
    /// There was no answer.
    Unreachable(String),
    /// What comes back cannot be printed.
    Unprinted(String),
    /// What is written cannot be kept, for want of room or for an error of the disk.
    Unkept(String),
}

impl Failure {
    pub(crate) fn bad_input(what: impl fmt::Display) -> Self {
        Self::Refused(what.to_string())
    }

    pub(crate) fn unreachable(what: impl fmt::Display) -> Self {
        Self::Unreachable(what.to_string())
    }

    /// What this machine refuses.
    pub(crate) fn system(error: impl fmt::Display) -> Self {
        Self::Refused(format!("cannot go on: {error}"))
    }

    pub(crate) fn output(error: impl fmt::Display) -> Self {
        Self::Unprinted(format!("cannot print it: {error}"))
    }

    /// Why a directory of a store is of no use. What room or another try may mend is told apart from the rest.
    pub(crate) fn directory(error: &OpenError) -> Self {
        match error {
            OpenError::Full(_) | OpenError::Io { .. } => Self::Unkept(error.to_string()),
            _ => Self::Refused(error.to_string()),
        }
    }

    /// Why a file or directory cannot be written; `name` is what it is called in a sentence.
    pub(crate) fn path(name: impl fmt::Display, error: &io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Self::Unkept(format!(
                "{name}: {error}; make room there, or take another disk, and run this again"
            )),
            Some(Errno::IO) => Self::Unkept(format!(
                "{name}: {error}; see what is wrong with that disk and run this again"
            )),
            _ => Self::Refused(format!(
                "{name}: {error}; see that the path is right and this user may write there"
            )),
        }
    }

    /// What cannot be printed of a request that was done, said so that it does not sound like one that failed.
    pub(crate) fn after(self, done: impl fmt::Display) -> Self {
        match self {
            Self::Unprinted(text) => Self::Unprinted(format!("{done}; {text}")),
            other => other,
        }
    }

    pub(crate) fn closed(closed: &StoreClosed) -> Self {
        if closed.is_journal {
            return Self::Refused(closed.reason.clone().unwrap_or_default());
        }
        let reason = closed.reason.as_deref().unwrap_or("the connection was closed");
        match reason.strip_prefix(REFUSED) {
            Some(code) if code.contains("ClientId") => Self::Refused(format!(
                "{reason}; client ids of users are their names or begin with these: give --user NAME, also beside a certificate or a token, or another --client-id"
            )),
            Some(code) if code.contains("AuthenticationMethod") => Self::Refused(format!(
                "{reason}; this broker takes no service account tokens: leave out --service-account-token-file"
            )),
            Some(code) if code.contains("ServerMoved") => Self::Unreachable(format!(
                "{reason}; name the broker that there is now with --broker"
            )),
            Some(_) => Self::Refused(format!(
                "{reason}; check --user and STATESTORE_PASSWORD, the certificate or the token if there is one, and whether this --client-id may connect"
            )),
            None if reason.contains("SessionTakenOver") => Self::Unreachable(format!(
                "{reason}; another client has connected with this --client-id: give each its own"
            )),
            // With advice of its own.
            None if reason.starts_with("the broker") => Self::Unreachable(reason.to_owned()),
            None => Self::Unreachable(format!("{reason}; check --broker, --user and --ca")),
        }
    }

    /// The end of what was to go on until it is told to stop; `reason` is what the link says.
    pub(crate) fn stopped(reason: Option<&str>) -> Self {
        Self::closed(&StoreClosed { reason: reason.map(ToOwned::to_owned), is_journal: false })
    }

    /// The end of a store that has served, so what it was given at the start is not to blame.
    pub(crate) fn ended(closed: &StoreClosed) -> Self {
        let reason = closed.reason.as_deref().unwrap_or("the connection was closed").to_owned();
        if closed.is_journal {
            return Self::Unkept(format!(
                "{reason}; what was not safe was not answered, and nothing that was answered is lost"
            ));
        }
        Self::Unreachable(reason)
    }

    /// What the store has answered, with what to do about it where somebody else has to do it.
    pub(crate) fn refused(error: &ServiceError<Bytes>) -> Self {
        let advice = match error.known() {
            Some(Refusal::NotAuthorized) => {
                "; ask whoever runs the store: `statestore policy explain` says which rule it would take"
            }
            Some(Refusal::QuotaExceeded) => {
                "; the store is full, or this client has its share, or the key or the value is too long: remove keys, or have \
                 whoever runs the store look at --max-keys, --max-bytes and --client-share of `statestore serve`"
            }
            _ => "",
        };
        Self::Refused(format!("the store refused: {error}{advice}"))
    }

    /// A failed request to this store.
    pub(crate) fn request(error: Error, store: &StateStore) -> Self {
        let status = store.status().current();
        let last_failure = status.reason();
        match error {
            Error::Refused(refused) => match (Self::refused(&refused), store.last_reason()) {
                (Self::Refused(text), Some(reason)) => {
                    Self::Refused(format!("{text} ({})", on_one_line(&reason)))
                }
                (refused, _) => refused,
            },
            Error::Invalid(_) => Self::Refused(error.to_string()),
            Error::Closed(closed) => Self::closed(&closed),
            Error::NotSent => Self::Unreachable(match last_failure {
                Some(reason) => format!("no connection to the broker: {reason}; check --broker"),
                None => "no connection to the broker in time; check --broker and --timeout".to_owned(),
            }),
            Error::Undelivered(reason) if reason.0 == 0x10 => Self::Unreachable(
                "no store is listening on this broker; start one with `statestore serve`".to_owned(),
            ),
            Error::Undelivered(ReasonCode::PACKET_TOO_LARGE) => Self::Refused(
                "the request is larger than the broker takes; try a smaller value".to_owned(),
            ),
            Error::Undelivered(reason @ ReasonCode::QUOTA_EXCEEDED) => Self::Refused(format!(
                "the broker took no more from this client for now: {reason}; ask more slowly, or have whoever runs it allow \
                 more (--rate-limit of `statestore serve`)"
            )),
            Error::TimedOut => Self::Unreachable(
                "no answer in time, so the request may have been applied; earlier ones were answered, so try a longer \
                 --timeout"
                    .to_owned(),
            ),
            Error::Unanswered { response_topic } => Self::Unreachable(format!(
                "no answer in time, so the request may have been applied; is a store running on this broker \
                 (`statestore serve`), and may this client read {response_topic}?"
            )),
            other => Self::Unreachable(other.to_string()),
        }
    }

    pub(crate) fn code(&self) -> ExitCode {
        match self {
            Self::Refused(_) => ExitCode::from(2),
            Self::Unreachable(_) => ExitCode::from(3),
            Self::Unprinted(_) => ExitCode::from(4),
            Self::Unkept(_) => ExitCode::from(5),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Refused(text)
        | Self::Unreachable(text)
        | Self::Unprinted(text)
        | Self::Unkept(text)) = self;
        f.write_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_connection_names_the_option_that_mends_it() {
        for (reason, is_refused, option) in [
            ("the broker refused the connection: BadUserNamePassword", true, "--user"),
            ("the broker refused the connection: NotAuthorized", true, "--client-id"),
            ("the broker refused the connection: ClientIdentifierNotValid", true, "--client-id"),
            ("the broker refused the connection: ServerMoved", false, "--broker"),
            ("disconnected by the broker: SessionTakenOver (0x8e)", false, "--client-id"),
            ("the broker speaks TLS on this port; mqtts://", false, "mqtts://"),
            ("something else", false, "--broker"),
        ] {
            let failure = Failure::stopped(Some(reason));
            let text = failure.to_string();
            assert!(text.starts_with(reason) && text.contains(option), "{text}");
            assert_eq!(matches!(failure, Failure::Refused(_)), is_refused, "{text}");
        }
    }

    #[test]
    fn what_room_mends_is_told_apart() {
        let path = || "dir".into();
        let io = |code| io::Error::from_raw_os_error(code);
        for (failure, is_unkept) in [
            (Failure::directory(&OpenError::Full(path())), true),
            (Failure::directory(&OpenError::Io { path: path(), source: io(5) }), true),
            (Failure::directory(&OpenError::InUse { dir: path(), pid: None }), false),
            (Failure::directory(&OpenError::ReadOnly(path())), false),
            (Failure::directory(&OpenError::Foreign(path())), false),
            (Failure::path("dir", &io(Errno::NOSPC.raw_os_error())), true),
            (Failure::path("dir", &io(Errno::DQUOT.raw_os_error())), true),
            (Failure::path("dir", &io(Errno::IO.raw_os_error())), true),
            (Failure::path("dir", &io(Errno::ACCESS.raw_os_error())), false),
            (Failure::path("dir", &io(Errno::NOENT.raw_os_error())), false),
        ] {
            assert!(failure.to_string().contains("dir"), "{failure}");
            assert_eq!(matches!(failure, Failure::Unkept(_)), is_unkept, "{failure}");
        }
    }
}
