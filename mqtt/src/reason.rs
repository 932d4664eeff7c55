//! Reason codes.

use core::fmt;

/// A reason code. Values of 0x80 and above are errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reason(pub u8);

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        impl Reason {
            $($(#[$doc])* pub const $name: Self = Self($code);)*
        }

        impl fmt::Display for Reason {
            /// Writes the name of the standard. For 0x00 to 0x02 that name depends on the packet;
            /// here it does not.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($code => f.write_str($text),)*
                    other => write!(f, "reason code 0x{other:02x}"),
                }
            }
        }
    };
}

reasons! {
    /// Success; a normal disconnection; granted at QoS 0.
    SUCCESS = 0x00, "success";
    /// Granted at QoS 1.
    GRANTED_QOS_1 = 0x01, "granted QoS 1";
    /// Granted at QoS 2.
    GRANTED_QOS_2 = 0x02, "granted QoS 2";
    /// The client disconnects, and the server publishes the will.
    DISCONNECT_WITH_WILL = 0x04, "disconnect with will message";
    /// The message was accepted, but no subscription matches.
    NO_MATCHING_SUBSCRIBERS = 0x10, "no matching subscribers";
    /// No subscription with this filter existed.
    NO_SUBSCRIPTION_EXISTED = 0x11, "no subscription existed";
    /// The authentication continues.
    CONTINUE_AUTHENTICATION = 0x18, "continue authentication";
    /// The client starts a re-authentication.
    RE_AUTHENTICATE = 0x19, "re-authenticate";
    /// Another error, or the sender does not disclose the reason.
    UNSPECIFIED_ERROR = 0x80, "unspecified error";
    /// The received packet is malformed.
    MALFORMED_PACKET = 0x81, "malformed packet";
    /// The received packet is not allowed in this state or has invalid contents.
    PROTOCOL_ERROR = 0x82, "protocol error";
    /// The packet is valid, but this implementation does not accept it.
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83, "implementation specific error";
    /// The server does not support the protocol version.
    UNSUPPORTED_PROTOCOL_VERSION = 0x84, "unsupported protocol version";
    /// The client id is not allowed.
    CLIENT_IDENTIFIER_NOT_VALID = 0x85, "client identifier not valid";
    /// The user name or the password is wrong.
    BAD_USER_NAME_OR_PASSWORD = 0x86, "bad user name or password";
    /// The client is not authorized.
    NOT_AUTHORIZED = 0x87, "not authorized";
    /// The server is not available.
    SERVER_UNAVAILABLE = 0x88, "server unavailable";
    /// The server is busy; try again later.
    SERVER_BUSY = 0x89, "server busy";
    /// The client is banned by an administrator.
    BANNED = 0x8a, "banned";
    /// The server is shutting down.
    SERVER_SHUTTING_DOWN = 0x8b, "server shutting down";
    /// The authentication method is not supported or differs from that of the CONNECT.
    BAD_AUTHENTICATION_METHOD = 0x8c, "bad authentication method";
    /// No packet arrived for one and a half times the keep alive.
    KEEP_ALIVE_TIMEOUT = 0x8d, "keep alive timeout";
    /// Another connection uses the same client id.
    SESSION_TAKEN_OVER = 0x8e, "session taken over";
    /// The topic filter is well-formed, but not accepted.
    TOPIC_FILTER_INVALID = 0x8f, "topic filter invalid";
    /// The topic name is well-formed, but not accepted.
    TOPIC_NAME_INVALID = 0x90, "topic name invalid";
    /// The packet identifier is in use.
    PACKET_IDENTIFIER_IN_USE = 0x91, "packet identifier in use";
    /// The packet identifier is not in use.
    PACKET_IDENTIFIER_NOT_FOUND = 0x92, "packet identifier not found";
    /// More unacknowledged publishes than the Receive Maximum.
    RECEIVE_MAXIMUM_EXCEEDED = 0x93, "receive maximum exceeded";
    /// A topic alias of 0 or above the Topic Alias Maximum.
    TOPIC_ALIAS_INVALID = 0x94, "topic alias invalid";
    /// The packet exceeds the Maximum Packet Size.
    PACKET_TOO_LARGE = 0x95, "packet too large";
    /// Messages arrive too fast.
    MESSAGE_RATE_TOO_HIGH = 0x96, "message rate too high";
    /// A limit of the server is exceeded.
    QUOTA_EXCEEDED = 0x97, "quota exceeded";
    /// An administrator closed the connection.
    ADMINISTRATIVE_ACTION = 0x98, "administrative action";
    /// The payload does not match the Payload Format Indicator.
    PAYLOAD_FORMAT_INVALID = 0x99, "payload format invalid";
    /// The server does not support retained messages.
    RETAIN_NOT_SUPPORTED = 0x9a, "retain not supported";
    /// The server does not support the QoS.
    QOS_NOT_SUPPORTED = 0x9b, "QoS not supported";
    /// Use another server, temporarily.
    USE_ANOTHER_SERVER = 0x9c, "use another server";
    /// Use another server, permanently.
    SERVER_MOVED = 0x9d, "server moved";
    /// The server does not support shared subscriptions.
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9e, "shared subscriptions not supported";
    /// The client connects too often.
    CONNECTION_RATE_EXCEEDED = 0x9f, "connection rate exceeded";
    /// The maximum connection time is over.
    MAXIMUM_CONNECT_TIME = 0xa0, "maximum connect time";
    /// The server does not support subscription identifiers.
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xa1, "subscription identifiers not supported";
    /// The server does not support wildcards in filters.
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xa2, "wildcard subscriptions not supported";
}

impl Reason {
    /// Returns whether the code is an error.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.0 >= 0x80
    }
}
