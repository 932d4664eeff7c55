//! MQTT 5 reason codes.

use core::fmt;

/// An MQTT 5 reason code, for example of a SUBACK or PUBACK.
///
/// ```
/// use statestore_proto::transport::ReasonCode;
///
/// assert!(ReasonCode::NOT_AUTHORIZED.is_error());
/// assert_eq!(ReasonCode::NOT_AUTHORIZED.to_string(), "not authorized (0x87)");
/// assert_eq!(ReasonCode(0xff).to_string(), "reason 0xff");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReasonCode(pub u8);

/// Declares a constant and a text for each code of table 2-6 of the standard.
macro_rules! reason_codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        impl ReasonCode {
            $($(#[$doc])* pub const $name: Self = Self($code);)*
        }

        impl fmt::Display for ReasonCode {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let text = match self.0 {
                    $($code => $text,)*
                    code => return write!(f, "reason 0x{code:02x}"),
                };
                write!(f, "{text} (0x{:02x})", self.0)
            }
        }
    };
}

reason_codes! {
    /// Success, normal disconnection, or granted QoS 0.
    SUCCESS = 0x00, "success";
    /// Granted QoS 1.
    GRANTED_QOS_1 = 0x01, "granted QoS 1";
    /// Granted QoS 2.
    GRANTED_QOS_2 = 0x02, "granted QoS 2";
    /// The client disconnects and wants its will published.
    DISCONNECT_WITH_WILL = 0x04, "disconnect with will message";
    /// The message was accepted, but no subscription matched its topic.
    NO_MATCHING_SUBSCRIBERS = 0x10, "no matching subscribers";
    /// The subscription to remove did not exist.
    NO_SUBSCRIPTION_EXISTED = 0x11, "no subscription existed";
    /// The authentication exchange continues.
    CONTINUE_AUTHENTICATION = 0x18, "continue authentication";
    /// The client starts a re-authentication.
    RE_AUTHENTICATE = 0x19, "re-authenticate";
    /// No other code fits, or the sender does not reveal the reason.
    UNSPECIFIED_ERROR = 0x80, "unspecified error";
    /// The packet could not be parsed.
    MALFORMED_PACKET = 0x81, "malformed packet";
    /// The packet was unexpected or violates the protocol.
    PROTOCOL_ERROR = 0x82, "protocol error";
    /// The packet is valid, but this receiver does not accept it.
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83, "implementation specific error";
    /// The server does not support this version of MQTT.
    UNSUPPORTED_PROTOCOL_VERSION = 0x84, "unsupported protocol version";
    /// The server does not allow this client id.
    CLIENT_IDENTIFIER_NOT_VALID = 0x85, "client identifier not valid";
    /// The server does not accept the user name or password.
    BAD_USER_NAME_OR_PASSWORD = 0x86, "bad user name or password";
    /// Rejected by the broker's access control.
    NOT_AUTHORIZED = 0x87, "not authorized";
    /// The server is not available.
    SERVER_UNAVAILABLE = 0x88, "server unavailable";
    /// The server is busy.
    SERVER_BUSY = 0x89, "server busy";
    /// The client is banned by an administrative action.
    BANNED = 0x8a, "banned";
    /// The server is shutting down.
    SERVER_SHUTTING_DOWN = 0x8b, "server shutting down";
    /// The authentication method is not supported, or is not the one in use.
    BAD_AUTHENTICATION_METHOD = 0x8c, "bad authentication method";
    /// No packet was received for one and a half times the keep-alive interval.
    KEEP_ALIVE_TIMEOUT = 0x8d, "keep alive timeout";
    /// Another connection uses the same client id.
    SESSION_TAKEN_OVER = 0x8e, "session taken over";
    /// The topic filter is well-formed, but not accepted.
    TOPIC_FILTER_INVALID = 0x8f, "topic filter invalid";
    /// The topic name is well-formed, but not accepted.
    TOPIC_NAME_INVALID = 0x90, "topic name invalid";
    /// The packet identifier is already in use.
    PACKET_IDENTIFIER_IN_USE = 0x91, "packet identifier in use";
    /// The packet identifier is not in use.
    PACKET_IDENTIFIER_NOT_FOUND = 0x92, "packet identifier not found";
    /// More messages were in flight than the Receive Maximum allows.
    RECEIVE_MAXIMUM_EXCEEDED = 0x93, "receive maximum exceeded";
    /// The topic alias is zero or exceeds the Topic Alias Maximum.
    TOPIC_ALIAS_INVALID = 0x94, "topic alias invalid";
    /// The packet exceeds the Maximum Packet Size.
    PACKET_TOO_LARGE = 0x95, "packet too large";
    /// The sender publishes too fast.
    MESSAGE_RATE_TOO_HIGH = 0x96, "message rate too high";
    /// A limit of the receiver is exceeded.
    QUOTA_EXCEEDED = 0x97, "quota exceeded";
    /// An administrative action closed the connection.
    ADMINISTRATIVE_ACTION = 0x98, "administrative action";
    /// The payload does not match its Payload Format Indicator.
    PAYLOAD_FORMAT_INVALID = 0x99, "payload format invalid";
    /// The server does not support retained messages.
    RETAIN_NOT_SUPPORTED = 0x9a, "retain not supported";
    /// The server does not support this QoS.
    QOS_NOT_SUPPORTED = 0x9b, "QoS not supported";
    /// The client should use another server temporarily.
    USE_ANOTHER_SERVER = 0x9c, "use another server";
    /// The client should use another server permanently.
    SERVER_MOVED = 0x9d, "server moved";
    /// The server does not support shared subscriptions.
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9e, "shared subscriptions not supported";
    /// Connections are opened too fast.
    CONNECTION_RATE_EXCEEDED = 0x9f, "connection rate exceeded";
    /// The maximum duration of a connection is over.
    MAXIMUM_CONNECT_TIME = 0xa0, "maximum connect time";
    /// The server does not support subscription identifiers.
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xa1, "subscription identifiers not supported";
    /// The server does not support wildcard subscriptions.
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xa2, "wildcard subscriptions not supported";
}

impl ReasonCode {
    /// Returns whether the code reports a success, for example a granted QoS.
    #[must_use]
    pub const fn is_success(self) -> bool {
        !self.is_error()
    }

    /// Returns whether the code reports a failure.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.0 >= 0x80
    }
}
