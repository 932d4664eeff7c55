//! Errors of commands: cause, remedy and exit code.

use std::{fmt, io};

use bytes::Bytes;
use rustix::io::Errno;
use statestore_proto::message::{Refusal, ServiceError};
use statestore_proto::transport::ReasonCode;
use statestore_server::OtherStore;
use statestore_sqlite::OpenError;
use statestore_tokio::{
    CloseReason, Error, JournalError, LinkError, LinkErrorKind, Status, StoreClosed,
};

use crate::escape::{on_one_line, preview};
use crate::exit::Exit;
use crate::sources::{PASSWORD_VARIABLE, TOKEN_FILE, setting_name, sources_notice, variables};

/// Error of a command.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The input is invalid, or the store or broker refused it.
    Refused(String),
    /// No response.
    Unreachable(String),
    /// The output could not be written.
    Output(String),
    /// A disk is full or failing.
    Storage(String),
}

impl Failure {
    pub(crate) fn bad_input(what: impl fmt::Display) -> Self {
        Self::Refused(what.to_string())
    }

    pub(crate) fn unreachable(what: impl fmt::Display) -> Self {
        Self::Unreachable(what.to_string())
    }

    /// Error of the operating system.
    pub(crate) fn system(error: impl fmt::Display) -> Self {
        Self::Refused(format!("operating system: {error}"))
    }

    pub(crate) fn output(error: impl fmt::Display) -> Self {
        Self::Output(format!("cannot write the output: {error}"))
    }

    /// Error of a data directory. A full or failing disk differs from a wrong path.
    pub(crate) fn directory(error: &OpenError) -> Self {
        match error {
            OpenError::Io { path, source } if is_wrong_path(source) => Self::Refused(format!(
                "data directory {}: {source}; check the path, and that this user may create it",
                path.display()
            )),
            OpenError::Full(_) | OpenError::Io { .. } => Self::Storage(error.to_string()),
            _ => Self::Refused(error.to_string()),
        }
    }

    /// Error of a file or directory; `name` is its name in the message.
    pub(crate) fn path(name: impl fmt::Display, error: &io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Self::Storage(format!(
                "{name}: {error}; free space there, or use another disk, and run this again"
            )),
            Some(Errno::IO) => {
                Self::Storage(format!("{name}: {error}; check that disk and run this again"))
            }
            _ => Self::Refused(format!(
                "{name}: {error}; check the path, and that this user may write there"
            )),
        }
    }

    /// Changes the text.
    pub(crate) fn map(self, change: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Refused(text) => Self::Refused(change(text)),
            Self::Unreachable(text) => Self::Unreachable(change(text)),
            Self::Output(text) => Self::Output(change(text)),
            Self::Storage(text) => Self::Storage(change(text)),
        }
    }

    /// Names the outcome of a request that succeeded although its output could not be written.
    pub(crate) fn after(self, done: impl fmt::Display) -> Self {
        match self {
            Self::Output(text) => Self::Output(format!("{done}; {text}")),
            other => other,
        }
    }

    /// End of a connection, with the option that fixes it. `password` is the variable for a password.
    pub(crate) fn closed(closed: &StoreClosed, password: &str) -> Self {
        let Some(reason) = &closed.reason else {
            return Self::Unreachable(format!("the connection was closed; {}", check_settings()));
        };
        let code = reason.link_error().and_then(LinkError::reason);
        match reason {
            CloseReason::Journal(error) => Self::Refused(error.to_string()),
            CloseReason::ClientId(error) => Self::Refused(format!(
                "{error}; a user's client ids are the user's name and names that start with it and \
                 a hyphen: leave out {}, set it to such a name, or set {} NAME (also with a \
                 certificate or a token)",
                setting_name("client-id"),
                setting_name("user")
            )),
            CloseReason::Credentials(error)
                if code == Some(ReasonCode::BAD_AUTHENTICATION_METHOD) =>
            {
                Self::Refused(format!("{error}, or leave out {}", setting_name(TOKEN_FILE)))
            }
            CloseReason::Credentials(error)
            | CloseReason::NotAuthorized(error)
            | CloseReason::Unsupported(error) => Self::Refused(format!(
                "{error}; {}, and check that this client id ({}) may connect",
                check_login(password),
                setting_name("client-id")
            )),
            CloseReason::Moved(error) => Self::Unreachable(format!(
                "{error}; set {} to the new address",
                setting_name("broker")
            )),
            CloseReason::TakenOver(error) if code == Some(ReasonCode::SESSION_TAKEN_OVER) => {
                Self::Unreachable(format!("{error}, with {}", setting_name("client-id")))
            }
            CloseReason::Link(error)
                if error.get_ref().is_some_and(|cause| cause.is::<OtherStore>()) =>
            {
                Self::Unreachable(error.to_string())
            }
            CloseReason::Link(error) if error.kind() == LinkErrorKind::Proxy => {
                Self::Unreachable(format!("{error}; check {}", setting_name("proxy")))
            }
            // These errors contain advice, which names options.
            CloseReason::TakenOver(error) | CloseReason::Tls(error) => {
                Self::Unreachable(match sources_notice() {
                    Some(notice) => format!("{error}; {notice}"),
                    None => error.to_string(),
                })
            }
            reason => Self::Unreachable(format!("{reason}; {}", check_settings())),
        }
    }

    /// Unexpected end of a command that runs until it is stopped.
    pub(crate) fn stopped(status: &Status) -> Self {
        let reason = match status {
            Status::Failed(reason) => Some(reason.clone()),
            Status::Offline { last_error: Some(error) } => Some(CloseReason::Link(error.clone())),
            _ => None,
        };
        Self::closed(&StoreClosed { reason }, PASSWORD_VARIABLE)
    }

    /// End of a store that was ready before, so its options are valid.
    pub(crate) fn ended(closed: &StoreClosed) -> Self {
        match &closed.reason {
            // A file that was removed may have contained acknowledged writes.
            Some(CloseReason::Journal(error)) if is_replaced(error) => {
                Self::Storage(error.to_string())
            }
            Some(CloseReason::Journal(error)) => {
                Self::Storage(format!("{error}; every acknowledged write is durable"))
            }
            Some(reason) => Self::Unreachable(reason.to_string()),
            None => Self::Unreachable("the connection was closed".to_owned()),
        }
    }

    /// Error reply of the store, with advice where the operator of the store must act.
    pub(crate) fn refused(error: &ServiceError<Bytes>) -> Self {
        let advice = match error.known() {
            Some(Refusal::NotAuthorized) => {
                "; `statestore policy explain` shows the operator which rule is missing"
            }
            Some(Refusal::QuotaExceeded) => {
                "; the store or its disk is full, this client has used its share, or the key or \
                 value is too long: delete keys, or ask the operator of the store to raise \
                 --max-keys, --max-bytes or --client-quota-percent of `statestore serve`, or to \
                 free disk space"
            }
            _ => "",
        };
        Self::Refused(format!("the store refused: {error}{advice}"))
    }

    /// A failed request.
    pub(crate) fn request(error: Error) -> Self {
        match error {
            Error::Refused { error, reason } => match (Self::refused(&error), reason) {
                (Self::Refused(text), Some(reason)) => {
                    Self::Refused(format!("{text} ({})", on_one_line(&reason)))
                }
                (refused, _) => refused,
            },
            Error::Invalid(_) => Self::Refused(error.to_string()),
            Error::Closed(closed) => Self::closed(&closed, PASSWORD_VARIABLE),
            Error::NotSent { last_error } => Self::Unreachable(match last_error {
                Some(reason) => {
                    let is_of_proxy = reason.kind() == LinkErrorKind::Proxy;
                    let option = if is_of_proxy { "proxy" } else { "broker" };
                    format!(
                        "no connection to the broker: {reason}; check {}{}",
                        setting_name(option),
                        dev_advice(&reason)
                    )
                }
                None => format!(
                    "no connection to the broker in time; check {} and --timeout",
                    setting_name("broker")
                ),
            }),
            Error::Undelivered(ReasonCode::NO_MATCHING_SUBSCRIBERS) => Self::Unreachable(
                "no store is listening on this broker; start one with `statestore serve`"
                    .to_owned(),
            ),
            Error::Undelivered(ReasonCode::PACKET_TOO_LARGE) => Self::Refused(
                "the request exceeds the maximum packet size of the broker; use a smaller value"
                    .to_owned(),
            ),
            Error::Undelivered(reason @ ReasonCode::QUOTA_EXCEEDED) => Self::Refused(format!(
                "the broker limits the rate of this client: {reason}; send more slowly, or ask the \
                 operator of the broker to raise the limit (--rate-limit of `statestore serve`)"
            )),
            Error::TimedOut => Self::Unreachable(
                "no response within --timeout, so the request may have been applied; the store \
                 responded before: try a longer --timeout"
                    .to_owned(),
            ),
            Error::Unanswered { response_topic } => Self::Unreachable(format!(
                "no response within --timeout, so the request may have been applied; is a store \
                 running on this broker (`statestore serve`), and may this client subscribe to \
                 {response_topic}?"
            )),
            other => Self::Unreachable(other.to_string()),
        }
    }

    /// The error of one key of an export or a dump, with advice if the key is fenced in the store.
    pub(crate) fn restored_key(key: &[u8], error: Error) -> Self {
        let advice = match error {
            Error::Refused {
                error:
                    ServiceError::Known(Refusal::FencingTokenRequired | Refusal::FencingTokenLower),
                ..
            } => {
                "; the key is fenced in the store, and requests cannot restore fencing tokens: use \
                 `data restore DIR`"
            }
            _ => "",
        };
        let failure = Self::request(error);
        Self::bad_input(format_args!("the key {}: {failure}{advice}", preview(key)))
    }

    pub(crate) const fn exit(&self) -> Exit {
        match self {
            Self::Refused(_) => Exit::Refused,
            Self::Unreachable(_) => Exit::Unreachable,
            Self::Output(_) => Exit::Output,
            Self::Storage(_) => Exit::Storage,
        }
    }
}

/// Further advice if no broker listens at an address of this machine that is from variables, which
/// `dev env` sets.
fn dev_advice(error: &LinkError) -> &'static str {
    let host = error.address().map(|address| address.host.as_str());
    let is_local = matches!(host, Some("localhost" | "127.0.0.1" | "::1" | "[::1]"));
    let is_set = variables("broker").is_some();
    match is_set && is_local && error.kind() == LinkErrorKind::Unreachable {
        true => "; if `statestore dev env` has set them, start `statestore dev` again",
        false => "",
    }
}

/// Advice for an error of a connection.
pub(crate) fn check_settings() -> String {
    let login = login_variables().unwrap_or_else(|| setting_name("user"));
    format!("check {}, {login} and {}", setting_name("broker"), setting_name("tls-ca"))
}

/// Advice for a rejected login.
fn check_login(password: &str) -> String {
    match login_variables() {
        Some(variables) => format!("check {variables}"),
        None => format!(
            "log in with {} NAME and {password}, a certificate or a token",
            setting_name("user")
        ),
    }
}

/// The variables that set the user or the token.
fn login_variables() -> Option<String> {
    variables("user").or_else(|| variables(TOKEN_FILE))
}

/// Returns whether the path or its permissions are wrong, and not the disk.
fn is_wrong_path(error: &io::Error) -> bool {
    use io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::InvalidInput
            | ErrorKind::InvalidFilename
    ) || Errno::from_io_error(error) == Some(Errno::LOOP)
}

/// Returns whether a file of the data directory was removed, replaced or truncated.
fn is_replaced(error: &JournalError) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    matches!(cause, Some(OpenError::Replaced(_)))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Refused(text)
        | Self::Unreachable(text)
        | Self::Output(text)
        | Self::Storage(text)) = self;
        f.write_str(text)
    }
}

#[cfg(test)]
mod tests {
    use statestore_tokio::adapter::ReasonDetails;

    use super::*;

    #[test]
    fn close_reason_names_the_option_that_fixes_it() {
        let refused = |code| LinkError::refused(code, ReasonDetails::default());
        let taken =
            LinkError::disconnected(ReasonCode::SESSION_TAKEN_OVER, ReasonDetails::default());
        let tls =
            LinkError::new(LinkErrorKind::Tls, "the broker speaks TLS on this port; mqtts://");
        for (error, is_refused, option) in [
            (refused(ReasonCode::BAD_USER_NAME_OR_PASSWORD), true, "--user"),
            (refused(ReasonCode::NOT_AUTHORIZED), true, "--client-id"),
            (refused(ReasonCode::CLIENT_IDENTIFIER_NOT_VALID), true, "--client-id"),
            (refused(ReasonCode::BAD_AUTHENTICATION_METHOD), true, "--service-account-token-file"),
            (refused(ReasonCode::SERVER_MOVED), false, "--broker"),
            (taken, false, "--client-id"),
            (tls, false, "mqtts://"),
            (LinkError::fatal("something else"), false, "--broker"),
        ] {
            let text = error.to_string();
            let failure = Failure::stopped(&Status::Failed(error.into()));
            let shown = failure.to_string();
            assert!(shown.starts_with(&text) && shown.contains(option), "{shown}");
            assert_eq!(matches!(failure, Failure::Refused(_)), is_refused, "{shown}");
        }
    }

    #[test]
    fn durability_of_acknowledged_writes_is_not_promised_after_a_file_was_replaced() {
        for (error, is_promised) in [
            (OpenError::Full("records.db".into()), true),
            (OpenError::Replaced("records.db".into()), false),
        ] {
            let reason = Some(CloseReason::Journal(error.into()));
            let shown = Failure::ended(&StoreClosed { reason }).to_string();
            assert_eq!(shown.contains("every acknowledged write is durable"), is_promised);
        }
    }

    #[test]
    fn full_and_failing_disks_differ_from_wrong_paths() {
        let path = || "dir".into();
        let io = |code| io::Error::from_raw_os_error(code);
        for (failure, is_storage) in [
            (Failure::directory(&OpenError::Full(path())), true),
            (Failure::directory(&OpenError::Io { path: path(), source: io(5) }), true),
            (Failure::directory(&OpenError::Io { path: path(), source: io(2) }), false),
            (Failure::directory(&OpenError::Io { path: path(), source: io(13) }), false),
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
            assert_eq!(matches!(failure, Failure::Storage(_)), is_storage, "{failure}");
        }
    }
}
