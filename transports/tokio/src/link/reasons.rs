//! Classification of the reason codes of CONNACK and DISCONNECT, for every link.

use statestore_proto::transport::ReasonCode;

use super::error::{LinkError, LinkErrorKind as Kind};

/// The text fields that a broker may add to a reason code.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ReasonDetails<'a> {
    /// The Reason String.
    pub reason_string: Option<&'a str>,
    /// The Server Reference.
    pub server_reference: Option<&'a str>,
}

impl<'a> ReasonDetails<'a> {
    /// The Reason String and the Server Reference, if any.
    #[must_use]
    pub const fn new(reason_string: Option<&'a str>, server_reference: Option<&'a str>) -> Self {
        Self { reason_string, server_reference }
    }

    fn after(self, what: &str, reason: ReasonCode) -> String {
        match self.reason_string.filter(|text| !text.is_empty()) {
            Some(text) => format!("{what}: {reason} {}", printable(text)),
            None => format!("{what}: {reason}"),
        }
    }
}

/// Advice for a client whose authentication method the broker rejects.
const ADVICE_METHOD: &str = "the broker does not support this authentication method: use a user \
                             name and password, or enable the method in the broker";

/// Advice for a client whose client id the broker rejects.
const ADVICE_CLIENT_ID: &str = "a broker with logins may require a client id that is the user name, \
                                or begins with it and a hyphen";

/// Advice for a client whose session another connection has taken over.
const ADVICE_TAKEN_OVER: &str =
    "another client has connected with this client id: give each client its own client id";

/// Most characters of a Reason String in an error.
const REASON_CHARS_MAX: usize = 200;

/// The beginning of a text of the broker, without control characters: it goes to logs and
/// terminals.
fn printable(text: &str) -> String {
    text.chars()
        .take(REASON_CHARS_MAX)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

impl LinkError {
    /// The broker refused the connection with a CONNACK.
    ///
    /// A retry with the same options is pointless if the options are wrong.
    ///
    /// ```
    /// use statestore_proto::transport::ReasonCode;
    /// use statestore_tokio::adapter::ReasonDetails;
    /// use statestore_tokio::{LinkError, LinkErrorKind};
    ///
    /// let code = ReasonCode::BAD_USER_NAME_OR_PASSWORD;
    /// let error = LinkError::refused(code, ReasonDetails::default());
    /// assert_eq!((error.kind(), error.reason()), (LinkErrorKind::Credentials, Some(code)));
    /// assert!(!error.is_transient());
    /// ```
    #[must_use]
    pub fn refused(reason: ReasonCode, words: ReasonDetails<'_>) -> Self {
        let kind = match reason {
            ReasonCode::BAD_USER_NAME_OR_PASSWORD | ReasonCode::BAD_AUTHENTICATION_METHOD => {
                Kind::Credentials
            }
            ReasonCode::CLIENT_IDENTIFIER_NOT_VALID => Kind::ClientId,
            ReasonCode::NOT_AUTHORIZED | ReasonCode::BANNED => Kind::NotAuthorized,
            ReasonCode::UNSUPPORTED_PROTOCOL_VERSION => Kind::Unsupported,
            ReasonCode::SERVER_MOVED | ReasonCode::USE_ANOTHER_SERVER => Kind::Moved,
            _ => Kind::Refused,
        };
        let text = words.after("the broker refused the connection", reason);
        let error = Self::new(kind, text).with_reason(reason);
        match reason {
            ReasonCode::SERVER_MOVED => error.permanent().address_specific(words.server_reference),
            ReasonCode::USE_ANOTHER_SERVER
            | ReasonCode::SERVER_UNAVAILABLE
            | ReasonCode::SERVER_BUSY => error.address_specific(words.server_reference),
            ReasonCode::BAD_AUTHENTICATION_METHOD => error.with_advice(ADVICE_METHOD),
            ReasonCode::CLIENT_IDENTIFIER_NOT_VALID => error.with_advice(ADVICE_CLIENT_ID),
            _ => error,
        }
    }

    /// The broker ended the connection with a DISCONNECT.
    ///
    /// *Not authorized* concerns a single packet, for example a response to a topic that its
    /// requester chose. So it does not end the link.
    #[must_use]
    pub fn disconnected(reason: ReasonCode, words: ReasonDetails<'_>) -> Self {
        let kind = match reason {
            ReasonCode::SESSION_TAKEN_OVER => Kind::TakenOver,
            ReasonCode::SERVER_MOVED | ReasonCode::USE_ANOTHER_SERVER => Kind::Moved,
            _ => Kind::Disconnected,
        };
        let text = words.after("disconnected by the broker", reason);
        let error = Self::new(kind, text).with_reason(reason);
        match reason {
            ReasonCode::SERVER_MOVED => error.permanent().address_specific(words.server_reference),
            ReasonCode::USE_ANOTHER_SERVER
            | ReasonCode::SERVER_BUSY
            | ReasonCode::SERVER_SHUTTING_DOWN => error.address_specific(words.server_reference),
            ReasonCode::SESSION_TAKEN_OVER => error.with_advice(ADVICE_TAKEN_OVER),
            _ => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::address::Address;

    #[test]
    fn refusal_is_final_exactly_if_the_options_are_wrong() {
        for code in 0x80..=0xff {
            let reason = ReasonCode(code);
            let error = LinkError::refused(reason, ReasonDetails::default());
            let is_final = matches!(code, 0x84..=0x87 | 0x8a | 0x8c | 0x9d);
            assert_eq!(!error.is_transient(), is_final, "{error}");
            assert_eq!(error.reason(), Some(reason));
            assert_eq!(
                error.is_address_specific(),
                matches!(code, 0x88 | 0x89 | 0x9c | 0x9d),
                "{error}"
            );
        }
    }

    #[test]
    fn disconnect_is_final_only_for_a_takeover_or_a_moved_server() {
        for code in 0x00..=0xff {
            let error = LinkError::disconnected(ReasonCode(code), ReasonDetails::default());
            assert_eq!(!error.is_transient(), matches!(code, 0x8e | 0x9d), "{error}");
            let elsewhere = matches!(code, 0x89 | 0x8b | 0x9c | 0x9d);
            assert_eq!(error.is_address_specific(), elsewhere, "{error}");
        }
    }

    #[test]
    fn reason_string_is_shortened_and_has_no_control_characters() {
        let text = format!("\x1b[31mfake\nlog{}", "x".repeat(60_000));
        let words = ReasonDetails::new(Some(&text), None);
        let error = LinkError::refused(ReasonCode::NOT_AUTHORIZED, words).to_string();
        assert!(error.chars().count() < 300 && !error.contains(char::is_control), "{error}");
        assert!(error.contains("fake"), "{error}");
    }

    #[test]
    fn reason_string_and_server_reference_are_in_the_error() {
        let words = ReasonDetails::new(Some("look there"), Some("b.example:1"));
        let error = LinkError::disconnected(ReasonCode::USE_ANOTHER_SERVER, words);
        assert!(error.to_string().ends_with(" look there"), "{error}");
        assert_eq!(error.server_reference(), Some("b.example:1"));
    }

    #[test]
    fn takeover_and_authentication_method_have_advice() {
        let words = ReasonDetails::new(Some("bye"), None);
        let address = Address::new("a", 1883);
        let taken = LinkError::disconnected(ReasonCode::SESSION_TAKEN_OVER, words);
        assert_eq!(
            taken.with_address(&address).to_string(),
            "disconnected by the broker: session taken over (0x8e) bye (at a:1883); another client \
             has connected with this client id: give each client its own client id"
        );
        let method = LinkError::refused(ReasonCode::BAD_AUTHENTICATION_METHOD, words);
        assert_eq!(
            method.to_string(),
            "the broker refused the connection: bad authentication method (0x8c) bye; the broker \
             does not support this authentication method: use a user name and password, or enable \
             the method in the broker"
        );
        let lost = LinkError::disconnected(ReasonCode::SERVER_SHUTTING_DOWN, words);
        assert!(!lost.to_string().contains(';'), "other reasons have no advice: {lost}");
    }
}
